"""The tests that `docs/faults.md` names are there, under those names; the test in `docs/testing.md` passes."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from journal.testing import CrashFailed

ROOT = Path(__file__).parent.parent
LISTED = re.findall(r"`([\w/]+\.py)::([\w:]+)`", (ROOT / "docs" / "faults.md").read_text())


def names_in(path: Path) -> set[str]:
    """Tests of that file, those in a class behind its name."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}::{part.name}" for part in node.body if isinstance(part, ast.AsyncFunctionDef)
            }
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
    return {name for name in found if name.rpartition("::")[2].startswith("test_")}


@pytest.mark.parametrize("file", sorted({file for file, _ in LISTED}))
def test_every_test_of_a_fault_is_there(file: str) -> None:
    assert {name for listed, name in LISTED if listed == file} - names_in(ROOT / file) == set()


def test_every_line_of_the_tables_names_a_test() -> None:
    text = (ROOT / "docs" / "faults.md").read_text()
    tables = [
        [line for line in section.splitlines() if line.startswith("| ")][1:]
        for section in text.split("\n## ")
        if "\n| " in section
    ]
    assert len(tables) == 3
    for lines in tables:
        numbers = [int(number) for line in lines if (number := line.split()[1]).isdigit()]
        assert numbers == sorted(numbers)
        assert [line for line in lines if ".py::test_" not in line and "Cases::test_" not in line] == []
    assert len(LISTED) == sum(line.count("::test_") for lines in tables for line in lines)


def test_the_crash_test_in_the_docs_is_fifteen_lines_that_pass() -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "testing.md").read_text(), re.DOTALL)
    assert len([line for line in snippet.splitlines() if line]) <= 15
    names: dict[str, object] = {"__name__": "users_test"}
    exec(compile(snippet, "docs/testing.md", "exec", dont_inherit=True), names)
    tests = [name for name in names if name.startswith("test_")]
    assert len(tests) == 1
    test = names[tests[0]]
    assert callable(test)
    test()


def test_it_fails_if_the_refund_is_made_between_calls() -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "testing.md").read_text(), re.DOTALL)
    wrong = snippet.replace("    return (await", '    effects.add("mail")\n    return (await')
    assert wrong != snippet
    names: dict[str, Any] = {"__name__": "users_test"}
    exec(compile(wrong, "docs/testing.md", "exec", dont_inherit=True), names)
    with pytest.raises(CrashFailed, match="'mail' happened 2 times instead of 1, between calls"):
        names["test_a_crash_anywhere_refunds_at_most_once"]()
