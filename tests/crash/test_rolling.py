"""A rolling deploy: workers of two versions on one store, which the newer one migrates under the older one's feet."""

import signal
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
import redis

from journal.core.codec import open_record
from journal.core.records import RunCreated, TurnStarted
from journal.worlds import open_world
from journal.worlds.redis.library import NAME
from tests.crash.newer import ADDED, READER, make_newer
from tests.crash.stage import Process, Stage
from tests.crash.test_holders import living
from tests.crash.test_random import every_turn

pytestmark = pytest.mark.anyio

BATCH = 16
"""Runs that are submitted at once."""


async def until(is_so: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not is_so():
            await anyio.sleep(0.01)


def has_newer_schema(url: str) -> bool:
    """Whether the newer version has been at the store; asked of the store itself."""
    if url.startswith("sqlite:"):
        connection = sqlite3.connect(url.removeprefix("sqlite:"))
        try:
            return ADDED in [row[1] for row in connection.execute("pragma table_info(runs)")]
        finally:
            connection.close()
    server, _, parameter = url.rpartition("?")
    if url.startswith("postgresql:"):
        name = f"{parameter.removeprefix('schema=')}.{ADDED}()"
        with psycopg.connect(server) as admin:
            return admin.execute("select to_regprocedure(%s)", (name,)).fetchone() != (None,)
    with redis.Redis.from_url(server) as client:
        names = {library[1].decode() for library in client.function_list("journal_v1_*")}
        return len(names - {NAME}) > 0 and NAME in names


async def test_old_and_new_workers_on_one_store(stage: Stage, tmp_path: Path) -> None:
    """An old one works, a new one comes and migrates, an old one is killed and started again: all of them go on."""
    newer = make_newer(tmp_path / "newer")
    old: dict[str, Any] = {"version": "old", "pause": 0.1}
    new: dict[str, Any] = {"version": "new", "pause": 0.1, "root": newer}
    running = ExitStack()

    def serve(settings: dict[str, Any]) -> Process:
        return running.enter_context(living(stage.start("serve", slots=2, **settings)))

    def submit(first: int, settings: dict[str, Any]) -> None:
        assert stage.start("submit", str(BATCH), str(first), **settings).wait(60) == 0

    def done() -> int:
        return sum(times for name, times in stage.effects().items() if name.startswith("note "))

    with running:
        submit(0, old)
        first, second = serve(old), serve(old)
        await until(lambda: done() >= 4)
        assert not has_newer_schema(stage.url)
        serve(new)
        await until(lambda: stage.effects()["serving"] == 3)
        assert has_newer_schema(stage.url)
        submit(BATCH, new)
        first.kill()
        first.wait()
        again = serve(old)
        await until(lambda: stage.effects()["serving"] == 4)
        second.send_signal(signal.SIGTERM)
        assert second.wait(60) == 0
        submit(2 * BATCH, old)
        submit(3 * BATCH, new)
        await until(lambda: done() >= 4 * BATCH)
        again.send_signal(signal.SIGTERM)
        assert again.wait(60) == 0
    await check(stage, again.pid)


async def check(stage: Stage, restarted: int) -> None:
    """Every turn succeeded, once, and each version worked on what it can read; `restarted`: that process, too."""
    workers: dict[int, set[tuple[str | None, str]]] = {}
    async with open_world(stage.url) as world:
        await every_turn(stage, world, 4 * BATCH)
        for n in range(4 * BATCH):
            info = await world.run(f"r{n}")
            assert info is not None
            assert info.status == "succeeded"
            bodies = [open_record(record) for record in await stage.log(f"r{n}", world)]
            created = next(body for body in bodies if isinstance(body, RunCreated))
            is_new = n // BATCH in (1, 3)
            assert created.min_reader == (READER if is_new else 1)
            started = {(body.version, body.worker) for body in bodies if isinstance(body, TurnStarted)}
            workers[n // BATCH] = workers.get(n // BATCH, set()) | started
    for batch, by in workers.items():
        versions = {version for version, _ in by}
        assert versions == {"new"} if batch in (1, 3) else "old" in versions
    after_restart = {(version, worker.split(":")[1]) for version, worker in workers[2]}
    assert ("old", str(restarted)) in after_restart
    assert "new" in {version for version, _ in after_restart}, "it takes what it can, of older runs too"
