"""FAULTS 1: a batch of records and a queue change, killed at every point: both or neither."""

from pathlib import Path

import anyio
import pytest

from journal.core.ports import Finish
from journal.core.records import TurnFinished
from journal.worlds.contract.harness import begin, claim_all, committed, hold, raw, submit
from journal.worlds.sqlite import SqliteWorld, open_sqlite
from tests.sqlite.conftest import Start, line

pytestmark = pytest.mark.anyio


async def is_submitted(world: SqliteWorld) -> bool:
    """Whether the submit is there as a whole; it must be that, or not there at all."""
    info = await world.run("run")
    claimed = await claim_all(world)
    if info is None:
        assert claimed == []
        return False
    assert (info.status, info.turn, info.turns, info.head) == ("pending", "t1", 1, 2)
    assert [r.type for r in await world.read("run")] == ["run.created", "turn.submitted"]
    assert [(c.turn, c.submitted, c.taken_over) for c in claimed] == [("t1", 2, False)]
    assert getattr(await world.append(submit("run")), "original", None) is not None, "its key is there too"
    return True


async def is_finished(world: SqliteWorld) -> bool:
    """Whether the end of the turn is there as a whole; it must be that, or not there at all."""
    info, turn = await world.run("run"), await world.turn("run", "t1")
    assert info is not None
    assert turn is not None
    claimed = await claim_all(world)
    if info.status == "succeeded":
        assert [r.type for r in await world.read("run")][2:] == ["call.outcome", "turn.finished"]
        assert (turn.status, turn.finished, info.turn, claimed) == ("succeeded", 4, None, [])
        return True
    assert (info.status, info.head, info.turn) == ("running", 2, "t1")
    assert (turn.status, turn.finished) == (None, None)
    assert [(c.turn, c.taken_over) for c in claimed] == [("t1", True)]
    return False


SIGHTS = {"submit": is_submitted, "finish": is_finished}


@pytest.mark.parametrize("kind", SIGHTS)
async def test_killed_between_any_two_statements(tmp_path: Path, start: Start, kind: str) -> None:
    process = start("die", tmp_path, kind)
    with anyio.fail_after(120):
        points = int(await line(process))
    seen = []
    for number in range(points + 1):
        path = tmp_path / f"{number}.db"
        async with open_sqlite(f"sqlite:{path}") as world:
            seen.append(await SIGHTS[kind](world))
        assert seen[-1] or not path.with_suffix(".answered").exists(), "it was acknowledged"
    assert points > 10
    assert seen == sorted(seen), "from one point on it is there"
    assert (seen[0], seen[-1]) == (False, True)


@pytest.mark.parametrize("kind", SIGHTS)
async def test_killed_while_the_commit_was_being_written(tmp_path: Path, kind: str) -> None:
    """What a kill leaves of a commit is a beginning of the write-ahead log: any, from none to all of it."""
    path = tmp_path / "whole.db"
    log = Path(f"{path}-wal")
    async with open_sqlite(f"sqlite:{path}") as world:
        batch = submit("run")
        if kind == "finish":
            await begin(world, "run")
            holder = await hold(world, "run", lease_seconds=0.001)
            finished = raw("run", b"", kind=TurnFinished.TYPE, turn="t1")
            batch = holder.batch(holder.outcome(), finished, queue=Finish("t1", "succeeded"))
        before = log.stat().st_size if log.exists() else 0
        committed(await world.append(batch))
        database, written = path.read_bytes(), log.read_bytes()
    assert len(written) > before
    seen = []
    for size in [*range(before, len(written), 509), len(written)]:
        cut = tmp_path / f"{size}.db"
        cut.write_bytes(database)
        Path(f"{cut}-wal").write_bytes(written[:size])
        async with open_sqlite(f"sqlite:{cut}") as world:
            seen.append(await SIGHTS[kind](world))
    assert seen == sorted(seen), "from one byte on it is there"
    assert (seen[0], seen[-1]) == (False, True)
