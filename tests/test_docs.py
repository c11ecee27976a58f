"""The tests that `docs/faults.md` and `docs/semantics.md` name are there; the test in `docs/testing.md` passes."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from journal.testing import CrashFailed

ROOT = Path(__file__).parent.parent
TABLES = {name: (ROOT / "docs" / name).read_text() for name in ("faults.md", "semantics.md")}
LISTED = {name: re.findall(r"`([\w/]+\.py)::([\w:]+)`", text) for name, text in TABLES.items()}
NAMED = {named for listed in LISTED.values() for named in listed}


def names_in(path: Path) -> set[str]:
    """Tests of that file, those in a class behind its name."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}::{part.name}"
                for part in node.body
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
            }
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
    return {name for name in found if name.rpartition("::")[2].startswith("test_")}


@pytest.mark.parametrize("file", sorted({file for file, _ in NAMED}))
def test_every_test_that_is_named_is_there(file: str) -> None:
    assert {name for listed, name in NAMED if listed == file} - names_in(ROOT / file) == set()


@pytest.mark.parametrize(("page", "count"), [("faults.md", 3), ("semantics.md", 10)])
def test_every_line_of_the_tables_names_a_test(page: str, count: int) -> None:
    tables = [rows.splitlines() for rows in re.findall(r"\n\|---.*\n((?:\| .*\n)+)", TABLES[page])]
    assert len(tables) == count
    for lines in tables:
        numbers = [int(number) for line in lines if (number := line.split()[1]).isdigit()]
        assert numbers == sorted(numbers)
        assert [line for line in lines if ".py::test_" not in line and "Cases::test_" not in line] == []
    others = 1 if page == "semantics.md" else 0  # in its text
    assert len(LISTED[page]) == sum(line.count("::test_") for lines in tables for line in lines) + others


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
