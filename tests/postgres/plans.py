"""What the server did for each statement, told by itself: auto_explain writes the plans to its log, nested ones too."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

_OPTIONS = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_buffers": "on",
    "auto_explain.log_format": "json",
    "auto_explain.log_parameter_max_length": "0",
}
EXPLAINED = "options=" + quote(" ".join(f"-c {name}={value}" for name, value in _OPTIONS.items()))
"""For the URL of a store: its connections are explained."""
_PLAN = re.compile(r" plan:\n((?:\t.*\n)+)")


class Plan:
    """One statement that was executed."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.text = " ".join(found["Query Text"].split())
        self.root = found["Plan"]

    @property
    def blocks(self) -> int:
        """Of 8 KiB that were looked at, by what it called too."""
        return int(self.root["Shared Hit Blocks"] + self.root["Shared Read Blocks"])

    @property
    def passed_over(self) -> int:
        """Rows that it came by, and that were not what it looked for."""
        names = ("Rows Removed by Filter", "Rows Removed by Join Filter", "Rows Removed by Index Recheck")
        return sum(int(node.get(name, 0) * node["Actual Loops"]) for node in self.nodes() for name in names)

    def nodes(self) -> Iterator[dict[str, Any]]:
        """All of its steps."""
        left = [self.root]
        while left:
            node = left.pop()
            yield node
            left += node.get("Plans", ())

    def scanned(self) -> set[str]:
        """Tables that were read from end to end, or whose index was."""
        whole: set[str] = set()
        for node in self.nodes():
            kind = node["Node Type"]
            if kind == "Seq Scan" or (kind.startswith("Index") and not node.get("Index Cond")):
                whole.add(str(node.get("Relation Name")))
        return whole

    def __repr__(self) -> str:
        steps = [
            f"{n['Node Type']} {n.get('Index Name', n.get('Relation Name', ''))}".strip()
            for n in self.nodes()
        ]
        return f"{self.blocks} blocks, {self.passed_over} passed over: {self.text[:160]} … {steps}"


def read_plans(directory: Path) -> list[Plan]:
    """The plans of all statements so far, of the server in that directory."""
    log = (directory / "log").read_text()
    return [Plan(json.loads(re.sub(r"^\t", "", text, flags=re.MULTILINE))) for text in _PLAN.findall(log)]
