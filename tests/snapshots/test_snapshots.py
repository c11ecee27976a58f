"""Resuming from a snapshot shows what the whole log comes to, on every world; and no snapshot is ever needed."""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from journal import Journal, Turn, TurnFailed, VirtualWorkspace, define_doc, io, tool
from journal.core.clock import SystemClock
from journal.core.codec import open_record, seal
from journal.core.errors import CorruptRecord, FileMissing
from journal.core.records import Record, Snapshot, TurnFinished, TurnStarted
from journal.engine.bundles import BundleSource, open_bundle
from journal.engine.importing import import_bundle
from journal.engine.moving import Mover
from journal.engine.reading import read_run
from journal.engine.run_reader import RunReader
from journal.engine.snapshots import Reader, before_turn
from journal.engine.verifying import verify
from journal.replay.snapshot import Folded
from journal.replay.verify import Verifier
from journal.worlds import open_world
from journal.worlds.memory import MemoryWorld

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("often")]
LARGE = "x" * 100_000
PATHS = ["/a", "/b", "/d/a", "/d/e/a"]


@dataclass(frozen=True)
class Todos:
    items: list[str] = field(default_factory=list)


Todo = define_doc("todo", 1, Todos)


@tool(replay="safe")
async def act(seed: int) -> None:
    chance = random.Random(seed)
    path = chance.choice(PATHS)
    if chance.random() < 0.3:
        try:
            await io.files.delete(path)
        except FileMissing:
            pass
    else:
        await io.files.write(path, chance.choice(["", "short", LARGE]), is_executable=chance.random() < 0.5)
    io.docs.update(Todo, lambda todos: Todos([*todos.items[-3:], f"{seed}"]))


class Again(RuntimeError):
    """Ends the first attempt."""


def build(url: str) -> tuple[Journal, Any]:
    journal = Journal(url)

    @journal.agent(docs=[Todo], workspace=VirtualWorkspace())
    async def work(turn: Turn, number: int) -> Any:
        seen = [turn.docs.get(Todo).items, [[c.name, c.sequence] for c in await turn.checkpoints.list()]]
        for call in range(3):
            await turn.tool(act, number * 10 + call)
        await turn.checkpoint("plan", {"turn": number}, sequence=number % 3)
        if number == 2:
            await turn.checkpoints.delete("plan", 1)
        if number == 7 and turn.attempt == 1:
            raise Again
        return seen

    return journal, work


def named(records: list[Record]) -> list[Snapshot]:
    """Those that the records name, each once, in order."""
    bodies = [open_record(record) for record in records]
    all_of_them = [b.snapshot for b in bodies if isinstance(b, TurnStarted | TurnFinished) and b.snapshot]
    return list(dict.fromkeys(all_of_them))


async def check(journal: Journal, run: str) -> int:
    """That readers see what the whole log comes to. What the snapshot covers that they began with, 0: they had none."""
    world = (await journal.runtime()).world
    records = await world.read(run, limit=10_000)
    whole = Folded()
    for record in records:
        whole.add(record)
    reader = RunReader(world, run)
    await reader.read_on()
    assert reader.head == records[-1].seq
    assert reader.folded.encode() == whole.encode()
    assert (await verify(world, await world.image(run))).problems == ()
    return reader.folded.covered


def expected(numbers: list[int]) -> list[Any]:
    """What a turn sees after turns with those numbers."""
    items = [str(number * 10 + call) for number in numbers for call in range(3)][-4:]
    there: set[int] = set()
    for number in numbers:
        there.add(number % 3)
        if number == 2:
            there.discard(1)
    return [items, [["plan", sequence] for sequence in sorted(there)]]


async def test_turns_go_on_from_snapshots(world_url: str) -> None:
    """And what the application writes in between is seen too."""
    journal, work = build(world_url)
    async with journal:
        for n in range(6):
            assert await work.run(n, run_id="r", key=f"t{n}") == expected(list(range(n)))
        made = named(await journal.read("r", limit=10_000))
        assert len(made) == 5, "one as each turn but the first began"
        assert await check(journal, "r") == made[-1].upto
        assert [(c.name, c.sequence) for c in await journal.checkpoints.list("r")] == [
            ("plan", 0),
            ("plan", 1),
            ("plan", 2),
        ]
        assert (await journal.docs.get("r", Todo)).items == expected(list(range(6)))[0]
        await journal.docs.update("r", Todo, lambda todos: Todos([*todos.items, "x"]))
        await journal.files.write("r", "/new", "application")
        assert (await work.run(6, run_id="r", key="t6"))[0] == [*expected(list(range(6)))[0], "x"]
        assert await journal.files.read("r", "/new") == b"application"
        assert await check(journal, "r") > made[-1].upto


async def test_a_turn_that_is_resumed_sees_what_it_saw(world_url: str) -> None:
    """Though the document was edited since, by the turn itself: the snapshot is of what stood when it began."""
    journal, work = build(world_url)
    async with journal:
        for n in range(4):
            await work.run(n, run_id="r", key=f"t{n}")
        with pytest.raises(TurnFailed):
            await work.run(7, run_id="r", key="t7")
        before = named(await journal.read("r", limit=10_000))
        retried = await journal.retry("r", turn_id="t7")
        assert await retried.settle(60, serve=True) == expected([0, 1, 2, 3])
        assert named(await journal.read("r", limit=10_000)) == before, "no other one in the same turn"
        assert await check(journal, "r") == before[-1].upto


async def test_an_earlier_turn_that_is_retried(world_url: str) -> None:
    """Snapshots made since cover its work: neither it nor whoever comes after trusts them. Later ones have new ones."""
    journal, work = build(world_url)
    async with journal:
        for n in (0, 1):
            await work.run(n, run_id="r", key=f"t{n}")
        with pytest.raises(TurnFailed):
            await work.run(7, run_id="r", key="t7")
        for n in (2, 3):
            await work.run(n, run_id="r", key=f"t{n}")
        calls = (await numbers_of(journal, "r"))["t7"]
        retried = await journal.retry("r", turn_id="t7", from_call=calls[1])
        assert await check(journal, "r") == 0, "what was set aside is covered by all that readers look at"
        assert await retried.settle(60, serve=True) == expected([0, 1])
        await check(journal, "r")
        items = ["22", "30", "31", "32"][-4:]
        assert (await work.run(4, run_id="r", key="t4"))[0] == [*items[-2:], "71", "72"]
        assert await check(journal, "r") > 0


async def test_an_earlier_turn_that_is_retried_with_nothing_set_aside(world_url: str) -> None:
    """It reads again what it read, which the snapshots of later turns know no more."""
    journal, work = build(world_url)
    async with journal:
        for n in (0, 1):
            await work.run(n, run_id="r", key=f"t{n}")
        with pytest.raises(TurnFailed):
            await work.run(7, run_id="r", key="t7")
        await work.run(2, run_id="r", key="t2")
        upto = await check(journal, "r")
        retried = await journal.retry("r", turn_id="t7")
        assert await check(journal, "r") == upto, "whoever wants to know what stands may use them"
        assert await retried.settle(60, serve=True) == expected([0, 1])
        assert await work.run(3, run_id="r", key="t3") == expected([0, 1, 7, 2])
        await check(journal, "r")


async def numbers_of(journal: Journal, run: str) -> dict[str, list[int]]:
    """The numbers of its calls, by turn."""
    log = await read_run((await journal.runtime()).world, run)
    found: dict[str, list[int]] = {}
    for call in log.state().calls:
        found.setdefault(call.turn, []).append(call.number)
    return found


@pytest.mark.parametrize("at", [2, 10, 16])
async def test_a_fork_has_none_of_them(world_url: str, at: int) -> None:
    """It is another log, with other places: it folds what it took over, and makes its own."""
    journal, work = build(world_url)
    async with journal:
        for n in range(6):
            await work.run(n, run_id="r", key=f"t{n}")
        number = (at - 1) // 3
        forked = await journal.fork("r", at=at, new_id="f")
        assert await forked.settle(60, serve=True) == expected(list(range(number)))
        image = await (await journal.runtime()).world.image("f")
        taken = named(await journal.read("f", limit=10_000))
        assert all(snapshot.blob in image.blobs for snapshot in taken)
        await check(journal, "f")
        assert await work.run(8, run_id="f", key="next") == expected([*range(number), number])
        assert await check(journal, "f") > 0


async def test_a_run_that_moves_takes_them_along(world_url: str, tmp_path: Path) -> None:
    """By copy and by import, to another store, where it goes on from them."""
    journal, work = build(world_url)
    async with journal:
        for n in range(5):
            await work.run(n, run_id="r", key=f"t{n}")
        upto = await check(journal, "r")
        await journal.export("r", tmp_path / "r.jsonl")
        async with open_world(f"sqlite:{tmp_path / 'there.db'}") as target:
            await Mover((await journal.runtime()).world, target, clock=SystemClock()).carry("r")
    with open_bundle(str(tmp_path / "r.jsonl")) as bundle:
        assert (await verify(BundleSource(bundle), bundle.image)).problems == ()
        async with open_world(f"sqlite:{tmp_path / 'imported.db'}") as target:
            await import_bundle(bundle, target, lambda *_: None)
    for name in ("there", "imported"):
        other, work = build(f"sqlite:{tmp_path / name}.db")
        async with other:
            assert await check(other, "r") == upto > 0
            assert await work.run(5, run_id="r", key="t5") == expected(list(range(5)))
            assert await check(other, "r") > upto


@pytest.mark.parametrize("damage", ["missing", "changed", "another", "later"])
async def test_one_that_cannot_be_read_is_not_needed(
    damage: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The log is read whole, and the next one is made from that."""
    journal, work = build(f"memory:{tmp_path.name}")
    async with journal:
        for n in range(4):
            await work.run(n, run_id="r", key=f"t{n}")
        made = named(await journal.read("r", limit=10_000))
        plain, names = MemoryWorld.get_blob, {snapshot.blob for snapshot in made}

        async def get_blob(self: MemoryWorld, run: str, blob: str) -> bytes:
            if blob not in names:
                return await plain(self, run, blob)
            if damage == "missing":
                raise CorruptRecord(run_id=run, seq=0, reason=f"blob {blob} is missing")
            if damage == "another":
                return await plain(self, run, made[0].blob if blob != made[0].blob else made[1].blob)
            return b"\x94\x90\x90\x90\x90"

        if damage == "later":
            monkeypatch.setattr("journal.replay.snapshot.FORMAT", 2)
        else:
            monkeypatch.setattr(MemoryWorld, "get_blob", get_blob)
        reader = RunReader((await journal.runtime()).world, "r")
        await reader.read_on()
        assert reader.folded.covered == 0
        assert (await journal.docs.get("r", Todo)).items == expected(list(range(4)))[0]
        assert await work.run(4, run_id="r", key="t4") == expected(list(range(4)))
        later = named(await journal.read("r", limit=10_000))
        assert len(later) == len(made) + 1
        monkeypatch.undo()


async def test_verify_finds_one_that_is_not_the_fold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its bytes are what its name says, and it was written by whoever held the run: it is wrong all the same."""
    journal, work = build(f"memory:{tmp_path.name}")
    async with journal:
        world = (await journal.runtime()).world
        await work.run(0, run_id="r", key="t0")
        plain = Folded.encode
        monkeypatch.setattr(
            Folded, "encode", lambda folded: plain(folded).replace(b"/d/", b"/e/").replace(b"todo", b"tomo")
        )
        await work.run(1, run_id="r", key="t1")
        monkeypatch.setattr(Folded, "encode", plain)
        (snapshot,) = named(await journal.read("r"))
        (first,) = [r.seq for r in await journal.read("r") if r.type == TurnStarted.TYPE and r.turn == "t1"]
        found = await verify(world, await world.image("r"))
        assert [(problem.seq, problem.what) for problem in found.problems] == [
            (first, f"its snapshot is not what the records up to {snapshot.upto} come to")
        ]


async def test_verify_finds_one_of_records_to_come(tmp_path: Path) -> None:
    snapshot = Snapshot(upto=3, blob="00", size=1)
    verifier = Verifier("r")
    started = seal("r", TurnStarted(worker="w", attempt=1, snapshot=snapshot), turn="t")
    verifier.add(Record("r", 3, 0.0, started.type, "t", None, 1, bytes(16), started.body, started.checksum))
    assert "its snapshot is of record 3, which does not stand before it" in [
        p.what for p in verifier.problems
    ]


async def test_a_handler_that_only_keeps_checkpoints(world_url: str) -> None:
    """It folds when it first asks, from a snapshot too; that one comes with the end of the turn."""
    journal = Journal(world_url)

    @journal.agent
    async def work(turn: Turn, number: int) -> list[int]:
        await turn.step(len, "one")
        await turn.step(len, "two")
        there = [c.sequence for c in await turn.checkpoints.list("plan")]
        if number == 3 and turn.attempt == 1:
            await turn.checkpoint("plan", number)
            raise Again
        await turn.checkpoint("plan", number)
        return there

    async with journal:
        for n in range(3):
            assert await work.run(n, run_id="r", key=f"t{n}") == list(range(1, n + 1))
        made = named(await journal.read("r", limit=10_000))
        assert len(made) == 2
        with pytest.raises(TurnFailed):
            await work.run(3, run_id="r", key="t3")
        assert await (await journal.retry("r", turn_id="t3")).settle(60, serve=True) == [1, 2, 3]
        assert await check(journal, "r") > made[-1].upto
        assert await work.run(4, run_id="r", key="t4") == [1, 2, 3, 4]


async def test_how_much_a_turn_reads_does_not_grow(world_url: str) -> None:
    """FAULTS 25: the hundredth turn of an agent with documents and files reads what the tenth did."""
    journal, work = build(world_url)
    async with journal:
        world = (await journal.runtime()).world
        counts = []
        for n in range(40):
            await work.run(n % 6, run_id="r", key=f"t{n}")
            reader = Reader(world, "r")
            await reader.read(before_turn((await journal.get("r")).head))
            counts.append(reader.head - reader.folded.covered)
        assert max(counts[20:]) <= max(counts[5:20])
