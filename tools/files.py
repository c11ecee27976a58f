"""Tools over a workspace for a model: ``turn.tool(read_file, path="/a.py")``, or all of `FILE_TOOLS`.

All are `safe`: a change counts only with the outcome of its call. Errors are written for a model to act on. A harness
that makes its own tools of functions takes ``read_file.fn``.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Annotated, Any

import anyio.lowlevel

from journal.core.errors import EditRefused, FileNotText
from journal.tools.io import io
from journal.tools.policy import safe
from journal.tools.tool import Tool, tool

_LINES = 2000
_LINE_CHARACTERS = 2000
_CHARACTERS = 60_000
"""Of what a model is given at once."""
_PATHS, _HITS = 1000, 200
_PLACES = 5
_FARTHEST = 1_000_000_000
_EDITED_BYTES = 64 * 1024 * 1024
"""What a file may become by an edit, before its quota is asked: text in a million places need not fit in memory."""


@tool
@safe
async def read_file(
    path: Annotated[str, "Absolute path, as in /src/app.py"],
    offset: Annotated[int, "The first line to read, from 1"] = 1,
    limit: Annotated[int, "How many lines to read"] = _LINES,
) -> str:
    """Read a text file of the workspace. Each line has its number and a tab before it, which are not in the file."""
    lines = _lines(await io.files.read_text(path))
    if not lines:
        return "(the file is empty)"
    numbered = (f"{number}\t{_cut(line)}" for number, line in enumerate(lines, 1))
    return _page(numbered, "lines", offset, limit, len(lines))


@tool
@safe
async def write_file(
    path: Annotated[str, "Absolute path, as in /src/app.py; directories need not exist"],
    content: Annotated[str, "The whole file"],
) -> str:
    """Write a text file of the workspace, whole: what was there is replaced. To change a part of it use edit_file."""
    if not isinstance(content, str):
        raise EditRefused(path=path, why="content is text, the whole file")
    there = await io.files.exists(path)
    await io.files.write(path, content)
    return f"{'replaced' if there else 'created'} {path}: {len(content.encode()):,} bytes"


@tool
@safe
async def edit_file(
    path: Annotated[str, "Absolute path of a text file"],
    old: Annotated[str, "The text to replace, exactly as it is in the file, without line numbers"],
    new: Annotated[str, "The text to put in its place"],
    replace_all: Annotated[bool, "Replace each occurrence; else there must be just one"] = False,
) -> str:
    """Replace text in a file of the workspace. Give enough of what surrounds the text to make it unique."""
    text = await io.files.read_text(path)
    count = text.count(old) if old else 0
    if not old:
        why = "old is empty: use write_file for the whole file"
    elif old == new:
        why = "old and new are the same"
    elif not count:
        why = _not_found(text, old)
    elif count > 1 and not replace_all:
        why = (
            f"old is there {count:,} times ({_places(text, old)}): "
            "give more of the lines around it, or replace_all=true"
        )
    elif (size := len(text.encode()) + count * (len(new.encode()) - len(old.encode()))) > _EDITED_BYTES:
        why = f"it would become {size:,} bytes, {_EDITED_BYTES:,} at most"
    else:
        await io.files.write(path, text.replace(old, new))
        return f"edited {path}: {count:,} {'place' if count == 1 else 'places'}"
    raise EditRefused(path=path, why=why)


@tool
@safe
async def move_file(
    path: Annotated[str, "Absolute path of the file"],
    to: Annotated[str, "Absolute path that it gets; a file that is there is replaced"],
) -> str:
    """Move or rename a file of the workspace."""
    await io.files.move(path, to)
    return f"moved {path} to {to}"


@tool
@safe
async def delete_file(path: Annotated[str, "Absolute path of the file"]) -> str:
    """Delete a file of the workspace."""
    await io.files.delete(path)
    return f"deleted {path}"


@tool
@safe
async def list_files(
    path: Annotated[str, "Absolute path of a directory; / is the root"] = "/",
    offset: Annotated[int, "The first entry to give, from 1"] = 1,
) -> str:
    """List what is in a directory of the workspace, directories with a slash behind, and sizes in bytes."""
    found = await io.files.list(path)
    lines = (f"{each.path}{'/' if each.is_directory else ''}\t{each.size}" for each in found)
    return _page(lines, "entries", offset, _PATHS, len(found)) if found else "(empty)"


@tool
@safe
async def glob_files(
    pattern: Annotated[str, "As in /src/**/*.py: * and ? within a name, ** for any directories"],
    offset: Annotated[int, "The first path to give, from 1"] = 1,
) -> str:
    """Find files of the workspace by name. Gives their paths, sorted."""
    found = await io.files.glob(pattern)
    return _page(found, "paths", offset, _PATHS, len(found)) if found else "(no file matches)"


@tool
@safe
async def grep_files(
    text: Annotated[str, "The text to look for, as it is: no regular expression"],
    files: Annotated[str, "Which files, as in /src/**/*.py"] = "/**",
    ignore_case: Annotated[bool, "Take upper and lower case for the same"] = False,
    offset: Annotated[int, "The first hit to give, from 1"] = 1,
) -> str:
    """Find the lines that hold a text, in the text files of the workspace. Gives path:line: text."""
    if not text:
        raise EditRefused(path=files, why="text is empty")
    wanted = text.casefold() if ignore_case else text
    hits: list[str] = []
    for path in await io.files.glob(files):
        await anyio.lowlevel.checkpoint()  # large files take long, and others want the loop
        try:
            content = await io.files.read_text(path)
        except FileNotText:
            continue
        if wanted not in (content.casefold() if ignore_case else content):
            continue
        for number, line in enumerate(_lines(content), 1):
            if wanted in (line.casefold() if ignore_case else line):
                hits.append(f"{path}:{number}: {_cut(line.strip(), 300)}")
                if len(hits) >= max(offset, 1) + _HITS:
                    return _page(hits, "hits", offset, _HITS, None)
    return _page(hits, "hits", offset, _HITS, len(hits)) if hits else "(not found)"


FILE_TOOLS: tuple[Tool[..., Any], ...] = (
    read_file,
    write_file,
    edit_file,
    move_file,
    delete_file,
    list_files,
    glob_files,
    grep_files,
)
"""All of them."""


def _lines(text: str) -> list[str]:
    """Lines end with a line feed, and with nothing else that looks like an end of line."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _cut(line: str, characters: int = _LINE_CHARACTERS) -> str:
    return line if len(line) <= characters else f"{line[:characters]}… ({len(line):,} characters)"


def _page(lines: Iterable[str], what: str, offset: int, most: int, count: int | None) -> str:
    """Some of `lines`, from the one that `offset` names, and how to go on. `count` of all; None: more than those."""
    first = min(max(offset, 1), _FARTHEST)
    shown: list[str] = []
    room = _CHARACTERS
    for line in islice(lines, first - 1, first - 1 + min(max(most, 0), _FARTHEST)):
        room -= len(line) + 1
        if room < 0 and shown:
            break
        shown.append(line)
    last = first + len(shown) - 1
    if not shown:
        return f"(nothing from {first:,} on: there are {count:,} {what})"
    if count is None or last < count:
        of = "" if count is None else f" of {count:,}"
        shown.append(f"({what} {first} to {last}{of}; go on with offset={last + 1})")
    return "\n".join(shown)


def _places(text: str, old: str) -> str:
    lines: list[str] = []
    at = text.find(old)
    while at >= 0 and len(lines) < _PLACES:
        lines.append(str(text.count("\n", 0, at) + 1))
        at = text.find(old, at + len(old))
    return f"lines {', '.join(lines)}{', …' if at >= 0 else ''}"


def _not_found(text: str, old: str) -> str:
    """What a model should look at: most often the white space is another, or the file has changed."""
    at = _bare(text).find(_bare(old.strip()))
    if at >= 0 and old.strip():
        line = _bare(text).count("\n", 0, at + 1)
        return f"old is not there as it stands: from line {line} on it has other white space; copy it exactly"
    return "old was not found: read the file again, and copy the text exactly, without line numbers"


def _bare(text: str) -> str:
    """Line by line, with one space between words, and a line feed on either side."""
    return "\n" + "".join(" ".join(line.split()) + "\n" for line in text.split("\n"))
