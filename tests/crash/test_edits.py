"""Documents and files, whatever calls do to them and wherever the worker is killed: live, folded and restored are one.

Hypothesis makes turns (`edits.py`); each is killed up to three times at whatever moment, and carried on. Then a model
by hand (`edits_model.py`) goes through the log: after each record there is what it says, as our folds say, as the
handler saw, and as the attempts held; and a run that was exported and brought elsewhere has the same.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from journal import Journal
from journal.cli.reading import Found, as_found
from journal.core import values
from journal.core.codec import open_record
from journal.core.ports import World
from journal.core.records import (
    BlobRef,
    CallIntent,
    CallOutcome,
    DocumentEdited,
    FilesChanged,
    Record,
    TurnFinished,
)
from journal.engine.attempt_files import read_content
from journal.engine.bundles import open_bundle
from journal.engine.importing import import_bundle
from journal.replay.documents import Documents
from journal.replay.workspace import Workspace
from journal.testing.life import LaterClock, read_all
from journal.worlds import open_world
from journal.worlds.memory import open_memory
from journal.worlds.opening import Opener
from tests.contract.harnesses import with_parameter
from tests.crash.anywhere import kills, memory, normal, sqlite
from tests.crash.edits import NOTES, Act, Plan, documents, noted, plans
from tests.crash.edits_life import Kills, Spec, play
from tests.crash.edits_model import CONTENTS, DOCS, Seen, State, is_in_the_way

turns = st.lists(plans, min_size=1, max_size=2)


# By the model ------------------------------------------------------------------------------------------


class Told:
    """The run as the model has it: after each record, and what became of each call."""

    def __init__(self, plans: list[Plan], world: World, run: str) -> None:
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
        self.rejected: dict[tuple[str | None, str], list[str]] = {}
        self.applied: list[str] = []
        """What the application put into documents."""
        self._world = world
        self._run = run

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
                    was = state.files.pop(change.path, None)
                    if change.content is None:
                        assert was is not None
                    else:
                        assert not is_in_the_way(change.path, state.files)
                        content = CONTENTS.index(await self._bytes(change.content))
                        state.files[change.path] = content, was is not None and was[1]
            self.after.append(state)

    async def _outcome(self, call: tuple[str | None, str], outcome: CallOutcome, state: State) -> None:
        if outcome.status != "ok":
            assert outcome.edits == ()
            assert outcome.files == ()
            assert outcome.status == "unknown" or self.acts[call].fails, outcome.error
            return
        seen = msgspec.json.decode(await self._bytes(outcome.value), type=Seen)
        assert any(earlier.files == seen.files for earlier in self.after), "what it found was never there"
        self.results[call] = seen
        self.rejected[call] = sorted(state.land(seen, self.acts[call].ops))
        said = [edit.doc for edit in outcome.edits if edit.rejected is not None]
        said += [change.path for change in outcome.files if change.rejected is not None]
        assert sorted(said) == self.rejected[call]

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
    tree = (await as_found(found, Workspace(), at)).tree
    for path in tree.under("/"):
        file = tree.get(path)
        assert file is not None
        content = CONTENTS.index(await read_content(world, run, path, file))
        state.files[path] = content, file.is_executable
    fold = await as_found(found, Documents(), at)
    for kind in DOCS:
        if (latest := fold.latest(kind)) is not None:
            value = latest.value
            data = await found.get_blob(value.blob) if isinstance(value, BlobRef) else value
            state.docs[kind] = values.decode(data)
            assert data == values.encode(state.docs[kind])
    return state


# What must hold ----------------------------------------------------------------------------------------


async def check(plans: list[Plan], world: World, run: str) -> None:
    records, told, notes = await read_all(world, run), Told(plans, world, run), noted()
    await told.read(records)
    assert sum(record.type == TurnFinished.TYPE for record in records) == len(plans)
    last = told.after[-1]
    assert await folded(world, run) == last
    for number, (_, seq) in enumerate(told.intents, 1):
        assert await folded(world, run, number) == told.after[seq - 1]
    as_seen(told, notes)
    as_held(told, notes)
    as_told(told, notes)

    @asynccontextmanager
    async def same() -> AsyncIterator[World]:
        yield world

    async with Journal(same) as application:
        paths = await application.files.glob(run)
        there = {path: await application.files.read(run, path) for path in paths}
        assert there == {path: CONTENTS[content] for path, (content, _) in last.files.items()}
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
            assert seen.files == told.after[told.tries[turn, name] - 1].files


def as_held(told: Told, notes: list[dict[str, Any]]) -> None:
    """Attempts that came to the end of a turn's calls, the last of each and those that were killed behind it."""
    lives = [each for each in notes if "live" in each]
    assert lives
    for each in lives:
        state = told.after[each["seq"]]
        files = {path: list(file) for path, file in state.files.items()}
        assert each["live"] == [files, state.docs]
        size = sum(len(CONTENTS[content]) for content, _ in state.files.values())
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


async def restored(application: Journal, run: str, last: State) -> None:
    """From its export, in another store."""
    with TemporaryDirectory() as folder:
        file = str(Path(folder) / "run.jsonl")
        await application.export(run, file)
        with open_bundle(file) as bundle:
            async with open_memory(f"memory:{folder}") as world:
                await import_bundle(bundle, world, lambda *_: None)
                assert await folded(world, run) == last


# Stores ------------------------------------------------------------------------------------------------


def run(turns: list[Plan], kills: Kills, store: AbstractContextManager[tuple[Opener, str]]) -> None:
    """What only `open_world` opens is worked on by processes, else by this one."""
    with store as (opener, url), TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv(NOTES, str(Path(folder) / "notes"))
        spec = Spec(url, f"edits-{uuid4().hex[:12]}", turns, None, 0.0)
        later = play(spec, kills, None if opener is open_world else opener)

        async def look() -> None:
            async with opener(url, clock=LaterClock(later)) as world:
                await check(turns, world, spec.run)

        asyncio.run(look())


@contextmanager
def processes(url: str) -> Iterator[tuple[Opener, str]]:
    """A store of many runs."""
    yield open_world, url


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path / 'journal.db'}"
        return
    name = f"edits_{uuid4().hex[:12]}"
    if request.param == "postgres":
        from journal.worlds.postgres import drop_schema

        url = with_parameter(request.getfixturevalue("postgres_server"), "schema", name)
        yield url
        asyncio.run(drop_schema(url))
    else:
        from journal.worlds.redis import drop_prefix

        url = with_parameter(request.getfixturevalue("redis_server"), "prefix", name)
        yield url
        asyncio.run(drop_prefix(url))


def share(examples: int, *, is_search: bool = False) -> settings:
    """So many examples on one store, which all of them share."""
    health = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
    return settings(normal(examples, is_search=is_search), suppress_health_check=health)


@normal(30)
@given(turns, kills)
def test_in_memory(turns: list[Plan], kills: Kills) -> None:
    run(turns, kills, memory())


@normal(12)
@given(turns, kills)
def test_on_sqlite(turns: list[Plan], kills: Kills) -> None:
    run(turns, kills, sqlite())


@share(6)
@given(turns=turns, kills=kills)
def test_processes(url: str, turns: list[Plan], kills: Kills) -> None:
    run(turns, kills, processes(url))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@normal(1000, is_search=True)
@given(turns, kills)
def test_in_memory_for_long(turns: list[Plan], kills: Kills) -> None:
    run(turns, kills, memory())


@pytest.mark.soak
@pytest.mark.timeout(3600)
@normal(250, is_search=True)
@given(turns, kills)
def test_on_sqlite_for_long(turns: list[Plan], kills: Kills) -> None:
    run(turns, kills, sqlite())


@pytest.mark.soak
@pytest.mark.timeout(3600)
@share(250, is_search=True)
@given(turns=turns, kills=kills)
def test_processes_for_long(url: str, turns: list[Plan], kills: Kills) -> None:
    run(turns, kills, processes(url))
