"""What workers of the version before make of a run that is being built, or was moved away."""

import sqlite3
from pathlib import Path

import pytest

from journal.core.ports import SweepPolicy
from journal.worlds.contract.building import built, move, worked_on
from journal.worlds.contract.harness import committed
from journal.worlds.sqlite import open_sqlite

OLD_LOOK = "select closed_at, gone_until, token, due_at from runs where run = 'r' and namespace = ?"
OLD_SWEEP = "select count(*) from runs where closed_at <= 9e9 and gone_until is null and namespace = ?"


@pytest.mark.anyio
async def test_older_workers_find_the_door_shut(path: Path, url: str) -> None:
    """They know of neither column: to them it is closed, nobody's, not due, and too young to be swept."""
    connection = sqlite3.connect(path, isolation_level=None)
    async with open_sqlite(url) as source, open_sqlite(url, namespace="two") as target:
        await worked_on(source)
        await built(source, target)
        closed_at, *others = connection.execute(OLD_LOOK, ("two",)).fetchone()
        assert closed_at is not None
        assert others == [None, None, None]
        assert connection.execute(OLD_SWEEP, ("two",)).fetchone() == (0,)
        assert await target.sweep(SweepPolicy(closed_older_than_seconds=-1)) == 0
        await target.settle("r", is_live=True)
        assert connection.execute(OLD_LOOK, ("two",)).fetchone()[:2] == (None, None)
        committed(await source.append(move("r", 11)))
        closed_at, *others = connection.execute(OLD_LOOK, ("default",)).fetchone()
        assert closed_at is not None
        assert others == [None, None, None]
    connection.close()
