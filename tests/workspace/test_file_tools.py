"""The tools that a model is given over a workspace."""

from typing import Any

import pytest

from journal import Journal, Turn, VirtualWorkspace, io, tool
from journal.core.errors import EditRefused
from journal.tools.files import (
    FILE_TOOLS,
    delete_file,
    edit_file,
    glob_files,
    grep_files,
    list_files,
    move_file,
    read_file,
    write_file,
)

pytestmark = pytest.mark.anyio


async def using(*calls: tuple[Any, dict[str, Any]], **files: str | bytes) -> list[str]:
    """What a model reads of each of the calls, in a workspace of these files (without slash)."""

    @tool(replay="safe")
    async def fill() -> None:
        for name, content in files.items():
            await io.files.write(f"/{name}", content)

    journal = Journal("memory:")

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> list[str]:
        assert (await turn.tool(fill)).status == "ok"
        return [(await turn.tool(each, **arguments)).text for each, arguments in calls]

    async with journal:
        return await work.run(None)


def test_a_model_is_told_what_each_does() -> None:
    for each in FILE_TOOLS:
        assert each.description.endswith("."), each
        assert each.policy == "safe"
        for name, schema in each.schema["properties"].items():
            assert schema["description"], (each, name)
    assert edit_file.schema["required"] == ["path", "old", "new"]


async def test_reading_is_paged_and_numbered() -> None:
    text = "".join(f"line {n}\n" for n in range(1, 11))
    said = await using(
        (read_file, {"path": "/a", "offset": 3, "limit": 2}),
        (read_file, {"path": "/a", "offset": 10}),
        (read_file, {"path": "/a", "offset": 11}),
        (read_file, {"path": "/empty"}),
        (read_file, {"path": "/long"}),
        (read_file, {"path": "/crlf"}),
        (read_file, {"path": "/binary"}),
        (read_file, {"path": "/none"}),
        a=text,
        empty="",
        long="x" * 5000 + "\nlast",
        crlf="a\r\n\x0b\u2028b",
        binary=b"\xff",
    )
    assert said == [
        "3\tline 3\n4\tline 4\n(lines 3 to 4 of 10; go on with offset=5)",
        "10\tline 10",
        "(nothing from 11 on: there are 10 lines)",
        "(the file is empty)",
        f"1\t{'x' * 2000}… (5,000 characters)\n2\tlast",
        "1\ta\n2\t\x0b\u2028b",
        "read_file failed: FileNotText: file '/binary' is no UTF-8 text: read its bytes",
        "read_file failed: FileMissing: there is no file '/none': list the directory, or glob for its name",
    ]


async def test_a_long_file_is_given_in_pieces_that_make_it_whole() -> None:
    lines = [f"{n}: {'x' * 100}" for n in range(3000)]
    offset, seen = 1, list[str]()
    while True:
        (said,) = await using((read_file, {"path": "/a", "offset": offset}), a="\n".join(lines))
        *page, last = said.split("\n")
        assert len(said) < 70_000
        seen += [line.partition("\t")[2] for line in page]
        if "go on with offset=" not in last:
            seen.append(last.partition("\t")[2])
            break
        offset = int(last.rpartition("=")[2][:-1])
    assert seen == lines


async def test_edits_replace_exactly_one_place_or_say_why_not() -> None:
    text = "def a():\n    return 1\n\ndef b():\n    return 1\n"
    said = await using(
        (edit_file, {"path": "/a", "old": "def a", "new": "def c"}),
        (edit_file, {"path": "/a", "old": "    return 1\n", "new": "    return 2\n"}),
        (edit_file, {"path": "/a", "old": "return 3", "new": "x"}),
        (edit_file, {"path": "/a", "old": "def b():\n\treturn 1", "new": "x"}),
        (edit_file, {"path": "/a", "old": "", "new": "x"}),
        (edit_file, {"path": "/a", "old": "def", "new": "def"}),
        (edit_file, {"path": "/a", "old": "    return 1\n", "new": "    return 2\n", "replace_all": True}),
        (read_file, {"path": "/a"}),
        (edit_file, {"path": "/none", "old": "a", "new": "b"}),
        a=text,
    )
    failed = "edit_file failed: EditRefused: file '/a' was not edited: "
    assert said[:7] == [
        "edited /a: 1 place",
        f"{failed}old is there 2 times (lines 2, 5): give more of the lines around it, or replace_all=true",
        f"{failed}old was not found: read the file again, and copy the text exactly, without line numbers",
        f"{failed}old is not there as it stands: from line 4 on it has other white space; copy it exactly",
        f"{failed}old is empty: use write_file for the whole file",
        f"{failed}old and new are the same",
        "edited /a: 2 places",
    ]
    assert said[7] == "1\tdef c():\n2\t    return 2\n3\t\n4\tdef b():\n5\t    return 2"
    assert "there is no file" in said[8]


async def test_the_other_tools() -> None:
    said = await using(
        (write_file, {"path": "/src/a.py", "content": "import ä\n"}),
        (write_file, {"path": "/src/a.py", "content": "import b\n"}),
        (write_file, {"path": "/src/deep/b.py", "content": "IMPORT c\n"}),
        (list_files, {}),
        (list_files, {"path": "/src"}),
        (glob_files, {"pattern": "/src/**/*.py"}),
        (glob_files, {"pattern": "/*.py"}),
        (glob_files, {"pattern": "*.py"}),
        (grep_files, {"text": "import"}),
        (grep_files, {"text": "import", "ignore_case": True, "files": "/src/*/*"}),
        (grep_files, {"text": "."}),
        (move_file, {"path": "/src/a.py", "to": "/b.py"}),
        (delete_file, {"path": "/bin"}),
        (glob_files, {"pattern": "/**"}),
        bin=b"\xffimport",
    )
    assert said == [
        "created /src/a.py: 10 bytes",
        "replaced /src/a.py: 9 bytes",
        "created /src/deep/b.py: 9 bytes",
        "/bin\t7\n/src/\t18",
        "/src/a.py\t9\n/src/deep/\t9",
        "/src/a.py\n/src/deep/b.py",
        "(no file matches)",
        "glob_files failed: PathRefused: path '*.py' is refused: patterns begin at the root, as in '/**/*.py'",
        "/src/a.py:1: import b",
        "/src/deep/b.py:1: IMPORT c",
        "(not found)",
        "moved /src/a.py to /b.py",
        "deleted /bin",
        "/b.py\n/src/deep/b.py",
    ]


async def test_lists_paths_and_hits_come_in_pages() -> None:
    many = {f"f{n:04}": "hit\n" for n in range(1001)} | {"zlong": "x hit\n" * 300}
    said = await using(
        (glob_files, {"pattern": "/f*"}),
        (glob_files, {"pattern": "/f*", "offset": 1001}),
        (glob_files, {"pattern": "/f*", "offset": 1002}),
        (list_files, {}),
        (list_files, {"offset": 1001}),
        (grep_files, {"text": "hit"}),
        (grep_files, {"text": "hit", "offset": 201}),
        (grep_files, {"text": "x hit", "offset": 201}),
        (grep_files, {"text": "x hit", "offset": 301}),
        **many,
    )
    paths = [f"/f{n:04}" for n in range(1001)]
    assert said[0].split("\n") == [*paths[:1000], "(paths 1 to 1000 of 1,001; go on with offset=1001)"]
    assert said[1] == paths[1000]
    assert said[2] == "(nothing from 1,002 on: there are 1,001 paths)"
    assert said[3].endswith("\n(entries 1 to 1000 of 1,002; go on with offset=1001)")
    assert said[4] == "/f1000\t4\n/zlong\t1800"
    hits = [f"{path}:1: hit" for path in paths]
    assert said[5].split("\n") == [*hits[:200], "(hits 1 to 200; go on with offset=201)"]
    assert said[6].split("\n") == [*hits[200:400], "(hits 201 to 400; go on with offset=401)"]
    assert said[7].split("\n") == [f"/zlong:{n}: x hit" for n in range(201, 301)]
    assert said[8] == "(nothing from 301 on: there are 300 hits)"


async def test_errors_are_themselves_again() -> None:
    journal = Journal("memory:")

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> bool:
        await turn.tool(write_file, "/a", "x")
        failure = (await turn.tool(edit_file, "/a", "y", "z")).failure
        return isinstance(failure, EditRefused) and failure.reason == "invalid_reference"

    async with journal:
        assert await work.run(None)
