"""Turns made by Hypothesis whose calls edit documents and files, side by side and under the application's edits.

A plan is data, so that a failing one is printed and shrunk; `edits` carries it out. What a call saw is its result, so
the log tells it; what the handler saw, and what a live attempt holds, is noted in a file, which outlives every kill.
Files are in the log, or in directories, where calls do what programs do (`edits_disk.py`). Next: `edits_model.py`,
which says by hand what must come of it.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import msgspec
from hypothesis import strategies as st

from journal import Journal, Retry, Turn, VirtualWorkspace, define_doc, io, step, tool
from journal.core.errors import WorkspaceError
from journal.engine.attempt import Attempt
from journal.engine.context import in_call
from journal.replay.workspace import File, Tree
from tests.crash.edits_disk import do, target_of, there
from tests.crash.edits_model import (
    CONTENTS,
    DISK,
    DOCS,
    PATHS,
    Disk,
    Draft,
    Seen,
    View,
    blocks,
    long,
    putting,
)

KINDS = ("append", "fussy", "write", "run", "delete", "move", "app_append", "app_write", "app_delete", "wait")
"""Of things that a call does, besides those that it does in a directory: `DISK`."""


class Op(msgspec.Struct, frozen=True):
    """Something that a call does: `at` chooses the document or path, `what` the length, content or target."""

    kind: str
    at: int
    what: int


class Act(msgspec.Struct, frozen=True):
    """A call."""

    kind: Literal["step", "flaky", "model", "safe", "never"]
    ops: tuple[Op, ...]
    fails: bool


class Plan(msgspec.Struct, frozen=True):
    """A turn: its rounds come one after the other, the acts of a round at once."""

    rounds: tuple[tuple[Act, ...], ...]


def plans(kinds: Sequence[str]) -> st.SearchStrategy[Plan]:
    """Turns whose calls do things of these kinds."""
    places = st.integers(0, len(PATHS) - 1)
    ops = st.builds(Op, kind=st.sampled_from(kinds), at=places, what=places)
    acts = st.builds(
        Act,
        kind=st.sampled_from(["step", "flaky", "model", "safe", "safe", "never"]),
        ops=st.lists(ops, min_size=1, max_size=5).map(tuple),
        fails=st.sampled_from([False, False, False, False, True]),
    )
    rounds = st.lists(st.lists(acts, min_size=1, max_size=3).map(tuple), min_size=1, max_size=4)
    return st.builds(Plan, rounds=rounds.map(tuple))


NOTES = "EDITS_NOTES"
"""Names the file."""
LOOK = Plan(((Act("step", (Op("look", 0, 0),), False),),))
"""Changes nothing, and looks at what is in the directory."""
journal = Journal()
documents = [define_doc(kind, 1, list[str]) for kind in DOCS]


def note(**what: Any) -> None:
    """A line of the file, which no kill takes back."""
    descriptor = os.open(os.environ[NOTES], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{json.dumps(what)}\n".encode())
    os.close(descriptor)


def noted() -> list[dict[str, Any]]:
    """All lines."""
    path = Path(os.environ[NOTES])
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@journal.agent(docs=documents, workspace=VirtualWorkspace())
async def edits(turn: Turn, plan: Plan) -> list[Any]:
    """Carries the plan out."""
    told: list[Any] = []
    for number, round_ in enumerate(plan.rounds):
        names = [f"r{number}a{place}" for place in range(len(round_))]
        docs = {doc.kind: turn.docs.get(doc) for doc in documents}
        note(turn=turn.id, call=names[0], docs=docs)
        tasks = [
            asyncio.ensure_future(_call(turn, act, name)) for act, name in zip(round_, names, strict=True)
        ]
        told += await asyncio.gather(*tasks) if len(tasks) > 1 else [await tasks[0]]
    await _note_live(turn._attempt)
    return told


async def _note_live(attempt: Attempt) -> None:
    """What the attempt holds, if the log has been answered for by now; else it knows more than it handed out."""
    if attempt.history.unclaimed() is not None:
        return
    while not attempt.holding.is_idle or attempt.holding.unread:
        await asyncio.sleep(0.001)
    tree, seq = attempt.files.workspace.view(), attempt.holding.last
    docs = {doc.kind: attempt.docs.value_of(doc, attempt.docs.base(doc.kind)) for doc in documents}
    directory = attempt.files.directory
    directories = sorted(directory.manifest.directories) if directory is not None else []
    files = await seen_in(tree, attempt.files.content)
    attempt.files.workspace.release(tree)
    note(seq=seq, live=[files, directories, docs], size=tree.size, count=tree.count)


async def _call(turn: Turn, act: Act, name: str) -> list[Any]:
    tries: list[int] = []

    async def body() -> Seen:
        tries.append(1)
        seen = await _carry_out(act, name)
        if act.fails or (act.kind == "flaky" and len(tries) == 1):
            raise ValueError(name)
        return seen

    body.__name__ = name
    try:
        match act.kind:
            case "step":
                await turn.step(body)
            case "flaky":
                await turn.step(step(retry=Retry(tries=2, min_delay=0.0, max_delay=0.0))(body))
            case "model":
                await turn.model(body)
            case "safe" | "never":
                result = await turn.tool(tool(body, replay=act.kind))
                return [name, result.status, sorted(result.rejected)]
    except ValueError:
        return [name, "error", []]
    return [name, "ok", None]


async def _carry_out(act: Act, name: str) -> Seen:
    """Also asserts that the call has before its eyes what it should have: its own changes over what it found."""
    found = await _files()
    seen = Seen(found, files=found)
    view = seen.view()
    for place, block in blocks(act.ops):
        try:
            if block[0].kind in DISK:
                view = await _in_directory(block, place, view, seen)
            else:
                await _do(block[0], name, view, seen.updates)
        except WorkspaceError:
            assert view.refused
        else:
            assert not view.refused
        view.refused = False
        now = await _files()
        assert now == view.files, f"{now} after {block} of {seen}, not {view.files}"
    seen.docs = {doc.kind: io.docs.get(doc) for doc in documents}
    return seen


async def _do(op: Op, name: str, view: Draft, updates: list[tuple[str, int, str]]) -> None:
    path, other = PATHS[op.at], PATHS[op.what]
    doc = documents[op.at % len(documents)]
    match op.kind:
        case "append":
            tag = long(name, op.what)
            io.docs.update(doc, putting(tag))
            updates.append((doc.kind, -1, tag))
        case "fussy":
            length = len(io.docs.get(doc))
            io.docs.update(doc, putting(name, length))
            updates.append((doc.kind, length, name))
        case "write" | "run":
            content = op.what % len(CONTENTS)
            is_executable = True if op.kind == "run" else None
            view.write(path, content, is_executable)
            await io.files.write(path, CONTENTS[content], is_executable=is_executable)
        case "delete":
            view.delete(path)
            await io.files.delete(path)
        case "move":
            view.move(path, other)
            await io.files.move(path, other)
        case "wait":
            for _ in range(op.what):
                await asyncio.sleep(0)
        case _:
            await _application(op)


class _LeftError(Exception):
    """Something fails while the call has its directory."""


async def _in_directory(block: Sequence[Op], place: int, view: Draft, seen: Seen) -> Draft:
    """What the call has changed by then, as it should be: it may have found newer files than it saw before."""
    try:
        async with io.files.directory() as directory:
            files, directories = there(directory.path)
            note(entered=[files, directories], at=directory.path)
            if view.is_new:
                seen.files, seen.since = files, place
                view = seen.view()
            if view.brought is None:
                seen.directories = directories
            disk = Disk(view, directories)
            assert files == disk.files
            assert directories == sorted(disk.directories)
            for op in block:
                if op.kind == "leave":
                    raise _LeftError
                if op.kind not in DISK:
                    await _do(op, "", view, [])
                elif disk.do(op):
                    await do(directory.path, op)
    except _LeftError:
        return view
    disk.read_back(view)
    return view


async def _files() -> View:
    """The workspace as the running call sees it."""
    tree = io.files._tree  # type: ignore[attr-defined]  # who may run a file is told nowhere else

    async def content(path: str, _: File) -> bytes:
        return await io.files.read(path)

    assert await io.files.glob("/**") == tree.under("/")
    return await seen_in(tree, content)


async def seen_in(tree: Tree, content: Callable[[str, File], Awaitable[bytes]]) -> View:
    """The files of `tree`; `content` reads one."""
    files: View = {}
    for path in tree.under("/"):
        file = tree.get(path)
        assert file is not None
        if file.is_link:
            files[path] = target_of(file.digest), False
        else:
            files[path] = CONTENTS.index(await content(path, file)), file.is_executable
    return files


async def _application(op: Op) -> None:
    """Edits as an application does, from outside of the call; once the call's intent lies before that in the log."""
    context = in_call()
    assert context is not None
    attempt = context.attempt
    mine, run = attempt.agent.journal, attempt.holding.run
    while not attempt.holding.is_idle:
        await asyncio.sleep(0.001)
    try:
        match op.kind:
            case "app_append":
                tag = long(f"app-{uuid4().hex}", op.what)
                note(offered=tag)
                doc = documents[op.at % len(documents)]
                await mine.docs.update(run, doc, putting(tag))
                note(taken=tag)
            case "app_write":
                content = op.what % len(CONTENTS)
                note(file=[PATHS[op.at], content])
                await mine.files.write(run, PATHS[op.at], CONTENTS[content])
            case _:
                note(file=[PATHS[op.at], None])
                await mine.files.delete(run, PATHS[op.at])
    except WorkspaceError:
        pass
