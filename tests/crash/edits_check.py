"""What must hold of turns of `edits.py`, whatever their calls did and wherever their lives ended.

The model goes through the log; after each record there is what it says, as our folds say, as the handler saw, as the
attempts held, as the snapshots keep, and as the last holder's directory has it; and a run that was exported and brought
elsewhere has the same.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from journal import DirectoryWorkspace, Journal
from journal.cli.reading import Found, as_found
from journal.core import values
from journal.core.codec import open_record
from journal.core.ports import World
from journal.core.records import (
    BlobRef,
    CallIntent,
    CallOutcome,
    DocumentEdited,
    FileChange,
    FilesChanged,
    Record,
    TurnFinished,
)
from journal.engine.bundles import open_bundle
from journal.engine.importing import import_bundle
from journal.engine.stored_files import stored_files
from journal.replay.documents import Documents
from journal.replay.workspace import File, Workspace
from journal.testing.life import LaterClock, read_all
from journal.tools.snapshots import Snapshots
from journal.worlds import open_world
from journal.worlds.memory import open_memory
from journal.worlds.opening import Opener
from tests.crash.edits import LOOK, NOTES, Act, Op, Plan, documents, noted, seen_in
from tests.crash.edits_disk import contents, kept
from tests.crash.edits_life import Kills, Spec, play
from tests.crash.edits_model import CONTENTS, DOCS, Seen, State, bytes_of

# By the model ------------------------------------------------------------------------------------------


class Told:
    """The run as the model has it: after each record, and what became of each call."""

    def __init__(self, plans: list[Plan], world: World, run: str, root: str | None) -> None:
        self.acts: dict[tuple[str | None, str], Act] = {
            (f"t{turn}", f"r{number}a{place}"): act
            for turn, plan in enumerate(plans)
            for number, round_ in enumerate(plan.rounds)
            for place, act in enumerate(round_)
        }
        self.after = [State()]
        self.intents: list[tuple[tuple[str | None, str], int]] = []
        """Calls in their order, and where each began."""
        self.tries: dict[tuple[str | None, str], int] = {}
        """Where each began last."""
        self.results: dict[tuple[str | None, str], Seen] = {}
        self.changed: list[int] = [0]
        """Which outcomes changed files."""
        self.rejected: dict[tuple[str | None, str], list[str]] = {}
        self.applied: list[str] = []
        """What the application put into documents."""
        self.snapshots: set[str] = set()
        """All that are named."""
        self._world = world
        self._run = run
        self._root = root
        self._offered = [each["file"] for each in noted() if "file" in each]

    async def read(self, records: list[Record]) -> None:
        for record in records:
            state = self.after[-1].copy()
            match open_record(record):
                case CallIntent(number=number):
                    self.tries[_call_of(record)] = record.seq
                    if number == 1:
                        self.intents.append((_call_of(record), record.seq))
                case CallOutcome() as outcome:
                    await self._outcome(_call_of(record), outcome, state)
                case DocumentEdited(edit=edit):
                    *before, tag = values.decode(await self._bytes(edit.value))
                    assert before == state.docs[edit.doc]
                    state.docs[edit.doc].append(tag)
                    self.applied.append(tag)
                case FilesChanged(changes=(change,)):
                    await self._file(change, state)
            self.after.append(state)

    async def _outcome(self, call: tuple[str | None, str], outcome: CallOutcome, state: State) -> None:
        if outcome.status != "ok":
            assert outcome.edits == ()
            assert outcome.files == ()
            assert outcome.status == "unknown" or self.acts[call].fails, outcome.error
            return
        seen = msgspec.json.decode(await self._bytes(outcome.value), type=Seen)
        assert any(earlier.files == seen.first for earlier in self.after), "what it found was never there"
        self._as_alone(seen, self.acts[call].ops)
        self.results[call] = seen
        self.rejected[call] = sorted(state.land(seen, self.acts[call].ops))
        said = [edit.doc for edit in outcome.edits if edit.rejected is not None]
        said += [change.path for change in outcome.files if change.rejected is not None]
        assert sorted(said) == self.rejected[call]
        if not state.has_files_of(self.after[-1]):
            self.changed.append(len(self.after))
        if self._root is not None:
            named = [change for change in outcome.files if change.rejected is None]
            assert len(named) <= 1
            self._as_kept(named[0] if named else None, state)

    def _as_alone(self, seen: Seen, ops: tuple[Op, ...]) -> None:
        """From when it had the directory no other call changed anything; and it had what there was."""
        if seen.since < 0:
            assert seen.files == seen.first
        elif not any(op.kind in ("write", "run", "delete", "move") for op in ops[: seen.since]):
            assert seen.files in [state.files for state in self.after[self.changed[-1] :]]

    async def _file(self, change: FileChange, state: State) -> None:
        """The application changed a file; of which one we have its word where only a snapshot is named."""
        if self._root is None:
            data = None if change.content is None else await self._bytes(change.content)
            assert state.change(change.path, None if data is None else CONTENTS.index(data))
            return
        assert change.snapshot is not None
        files, _ = kept(self._root, change.snapshot.id)
        for path, content in self._offered:
            after = state.copy()
            if after.change(path, content) and after.files == files:
                state.change(path, content)
                break
        else:
            raise AssertionError("nobody changed files so")
        self._as_kept(change, state)

    def _as_kept(self, change: FileChange | None, state: State) -> None:
        """The snapshot that a record names; of one that names none, nothing has changed."""
        if change is None:
            assert state.has_files_of(self.after[-1])
            return
        assert self._root is not None
        assert change.snapshot is not None
        self.snapshots.add(change.snapshot.id)
        assert kept(self._root, change.snapshot.id) == (state.files, sorted(state.directories))

    async def _bytes(self, value: Any) -> bytes:
        data = await self._world.get_blob(self._run, value.blob) if isinstance(value, BlobRef) else value
        assert isinstance(data, bytes)
        return data


def _call_of(record: Record) -> tuple[str | None, str]:
    assert record.key is not None
    return record.turn, record.key.rpartition("/")[2].partition("#")[0]


# By our folds ------------------------------------------------------------------------------------------


async def folded(world: World, run: str, at: int | None = None) -> State:
    """As `journal files` and `journal docs` have it, whole or as call `at` found it."""
    info = await world.run(run)
    assert info is not None
    found, state = Found(info, world, world), State()
    workspace = await as_found(found, Workspace(), at)
    stored = await stored_files(world, run, workspace)

    async def content(path: str, _: File) -> bytes:
        return await stored.read(path)

    state.files = await seen_in(stored.tree, content)
    if (snapshot := workspace.snapshot) is not None:
        state.directories = set(Snapshots(snapshot.root).load(snapshot.id).directories)
    fold = await as_found(found, Documents(), at)
    for kind in DOCS:
        if (latest := fold.latest(kind)) is not None:
            value = latest.value
            data = await found.get_blob(value.blob) if isinstance(value, BlobRef) else value
            state.docs[kind] = values.decode(data)
            assert data == values.encode(state.docs[kind])
    return state


# What must hold ----------------------------------------------------------------------------------------


async def check(plans: list[Plan], world: World, run: str, root: str | None) -> None:
    """`root`: of the directories that the files are in, if they are; the last plan is to look at one."""
    records, told, notes = await read_all(world, run), Told(plans, world, run, root), noted()
    await told.read(records)
    assert sum(record.type == TurnFinished.TYPE for record in records) == len(plans)
    last = told.after[-1]
    assert await folded(world, run) == last
    for number, (_, seq) in enumerate(told.intents, 1):
        assert await folded(world, run, number) == told.after[seq - 1]
    as_seen(told, notes)
    as_held(told, notes)
    as_told(told, notes)
    if root is not None:
        as_there(told, notes)
        await as_left(told, Path(root))

    @asynccontextmanager
    async def same() -> AsyncIterator[World]:
        yield world

    async with Journal(same) as application:
        assert await application.files.glob(run) == sorted(last.files)
        for path, (number, _) in last.files.items():
            assert number < 0 or await application.files.read(run, path) == CONTENTS[number]
        for doc in documents:
            assert await application.docs.get(run, doc) == last.docs[doc.kind]
        await restored(application, run, last)


def as_seen(told: Told, notes: list[dict[str, Any]]) -> None:
    """The handler, before a round, and a call that runs alone: what the log comes to where the call begins."""
    began = {call: told.after[seq - 1] for call, seq in told.intents}
    for each in notes:
        if "docs" in each and (state := began.get((each["turn"], each["call"]))) is not None:
            assert each["docs"] == state.docs
    for (turn, name), seen in told.results.items():
        if (turn, f"{name[:2]}a1") not in told.acts:
            assert seen.first == told.after[told.tries[turn, name] - 1].files


def as_held(told: Told, notes: list[dict[str, Any]]) -> None:
    """Attempts that came to the end of a turn's calls, the last of each and those that were killed behind it."""
    lives = [each for each in notes if "live" in each]
    assert lives
    for each in lives:
        state = told.after[each["seq"]]
        files = {path: list(file) for path, file in state.files.items()}
        assert each["live"] == [files, sorted(state.directories), state.docs]
        size = sum(len(bytes_of(number)) for number, _ in state.files.values())
        assert (each["count"], each["size"]) == (len(files), size)


def as_told(told: Told, notes: list[dict[str, Any]]) -> None:
    """The handler, of what was rejected; the application, of what was taken."""
    for each in notes:
        for name, status, rejected in each.get("output", ()):
            if status == "ok" and rejected is not None:
                assert rejected == told.rejected[each["turn"], name]
    assert len(set(told.applied)) == len(told.applied)
    offered, taken = ({each[word] for each in notes if word in each} for word in ("offered", "taken"))
    assert taken <= set(told.applied) <= offered


def as_there(told: Told, notes: list[dict[str, Any]]) -> None:
    """What the last holder's directory held, which is no other's."""
    *others, last = [each for each in notes if "entered" in each]
    files = {path: list(file) for path, file in told.after[-1].files.items()}
    assert last["entered"] == [files, sorted(told.after[-1].directories)]
    assert last["at"] not in {each["at"] for each in others}


async def as_left(told: Told, root: Path) -> None:
    """There is no directory of anybody; and what no record names, nor needs, goes when it is old enough."""
    (place,) = (root / "runs").glob("*/*")
    assert {path.name for path in (place / "refs").iterdir()} == told.snapshots
    assert list((place / "trees").iterdir()) == []
    for path in root.rglob("*"):
        os.utime(path, (0, 0))
    await DirectoryWorkspace(root).sweep()
    assert {path.name for path in (root / "snapshots").iterdir()} == told.snapshots
    needed = {name for snapshot in told.snapshots for name in contents(str(root), snapshot)}
    assert {path.parent.name + path.name for path in (root / "objects").glob("*/*")} == needed
    assert list((root / "staging").iterdir()) == []


async def restored(application: Journal, run: str, last: State) -> None:
    """From its export, in another store."""
    with TemporaryDirectory() as folder:
        file = str(Path(folder) / "run.jsonl")
        await application.export(run, file)
        with open_bundle(file) as bundle:
            async with open_memory(f"memory:{folder}") as world:
                await import_bundle(bundle, world, lambda *_: None)
                assert await folded(world, run) == last


# Runs --------------------------------------------------------------------------------------------------


def run(
    turns: list[Plan],
    kills: Kills,
    store: AbstractContextManager[tuple[Opener, str]],
    *,
    in_directories: bool = False,
) -> None:
    """What only `open_world` opens is worked on by processes, else by this one."""
    with store as (opener, url), TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv(NOTES, str(Path(folder) / "notes"))
        root = str(Path(folder) / "files") if in_directories else None
        spec = Spec(url, f"edits-{uuid4().hex[:12]}", turns, None, 0.0, root)
        lives = None if opener is open_world else opener
        later = play(spec, kills, lives)
        if in_directories:
            spec = msgspec.structs.replace(spec, plans=[*turns, LOOK], later=later)
            later = play(spec, [], lives)

        async def look() -> None:
            async with opener(url, clock=LaterClock(later)) as world:
                await check(spec.plans, world, spec.run, root)

        asyncio.run(look())


@contextmanager
def processes(url: str) -> Iterator[tuple[Opener, str]]:
    """A store of many runs."""
    yield open_world, url
