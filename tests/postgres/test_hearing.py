"""How worlds hear of each other: by NOTIFY, and by looking where that is off or was lost."""

import time
from collections.abc import Mapping
from typing import Any

import anyio
import psycopg
import pytest

from journal.worlds.contract.harness import (
    PATIENCE_SECONDS,
    begin,
    claim_all,
    close,
    committed,
    hold,
    signal,
    watching,
)
from journal.worlds.postgres import bells, listening, open_postgres
from journal.worlds.postgres.binary import long
from journal.worlds.postgres.listening import MAX_RUNS, parse_payload, payload_of
from journal.worlds.postgres.places import Places
from journal.worlds.postgres.pool import Pool

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("notify", ["on", "off"])
async def test_a_follower_sees_what_another_process_appends(url: str, notify: str) -> None:
    """Within 50 ms on a machine that is not loaded; here within a second, most of them much sooner."""
    url = f"{url}&notify={notify}"
    async with open_postgres(url) as world, open_postgres(url) as other:
        await begin(other, "r")
        took = []
        async with watching(world, "r") as watcher:
            await watcher.until_count(2)
            for number in range(3, 13):
                committed(await other.append(signal("r", f"s{number}")))
                started = time.monotonic()
                await watcher.until_count(number)
                took.append(time.monotonic() - started)
        assert sorted(took)[5] < 0.5, took


@pytest.mark.parametrize("notify", ["on", "off"])
async def test_a_worker_hears_of_work_that_another_process_brings(url: str, notify: str) -> None:
    url = f"{url}&notify={notify}"
    async with open_postgres(url) as world, open_postgres(url) as other:
        for number in range(3):
            assert await claim_all(world) == []
            with anyio.fail_after(PATIENCE_SECONDS):
                async with anyio.create_task_group() as group:
                    group.start_soon(begin, other, f"r{number}")
                    while not await claim_all(world):
                        await world.wait_for_work(60)


async def test_following_goes_on_though_every_connection_is_cut(
    url: str, admin: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bells, "LISTENING_POLL_SECONDS", 0.2)
    async with open_postgres(url) as world, open_postgres(url) as other:
        await begin(other, "r")
        async with watching(world, "r") as watcher:
            await watcher.until_count(2)
            for number in range(3, 8):
                admin.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity "
                    "where application_name = 'durable-journal'"
                )
                batch = signal("r", f"s{number}")
                with anyio.fail_after(PATIENCE_SECONDS):
                    while type(await other.append(batch)).__name__ == "Unknown":
                        pass
                await watcher.until_count(number)
            while type(await other.append(close("r"))).__name__ == "Unknown":
                pass
            await watcher.until_end()
            assert watcher.places() == [(seq, 0) for seq in range(1, 9)]


async def test_a_world_that_closes_at_once_still_rings(url: str) -> None:
    """A command that submits and exits: the worker need not wait for its next look."""
    async with open_postgres(url) as world:
        assert await claim_all(world) == []
        await world.wait_for_work(0.3)  # by now it listens
        async with open_postgres(url) as other:
            await begin(other, "r")
        before = world._bells.work_count
        with anyio.fail_after(PATIENCE_SECONDS):
            while world._bells.work_count == before and not await claim_all(world):
                await world.wait_for_work(60)


async def test_a_held_row_is_looked_at_again_soon(url: str, schema: str, postgres_server: str) -> None:
    """Due, but locked by somebody at this moment: not given, and not forgotten."""
    async with open_postgres(url) as world:
        await begin(world, "r")
        async with await psycopg.AsyncConnection.connect(postgres_server) as other:
            await other.execute(f"select from {schema}.queue for update")
            claims = await world.claim(worker="w", limit=5, lease_seconds=30.0, agents=None, reads=1)
            assert claims.claimed == ()
            assert claims.next_due_seconds is not None
            assert 0 < claims.next_due_seconds < 0.1
        assert (await hold(world, "r")).claim.epoch == 1


async def test_a_follower_reads_where_it_hears(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    plain = Pool.fetch

    async def fetch(self: Pool, name: str, asked: Mapping[str, Any], *, is_read: bool = True) -> list[Any]:
        read.append(name)
        return await plain(self, name, asked, is_read=is_read)

    async with open_postgres(url) as world, open_postgres(url) as other:
        await begin(other, "r")
        async with watching(world, "r") as watcher:
            await watcher.until_count(2)
            with anyio.fail_after(PATIENCE_SECONDS):
                while not world._bells._is_heard("r"):
                    await anyio.sleep(0.01)
            monkeypatch.setattr(Pool, "fetch", fetch)
            for number in range(3, 8):
                committed(await other.append(signal("r", f"s{number}")))
                await watcher.until_count(number)
        assert "read_page" not in read


async def test_whoever_reads_where_it_hears_hinders_nobody(
    url: str, schema: str, postgres_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a read there waits for somebody's lock: others follow, their ears are held, and the world can be closed."""
    monkeypatch.setattr(listening, "READ_SECONDS", 3600.0)
    lock = {run: Places("default").lock(run) for run in ("r", "s")}
    async with open_postgres(url) as world, open_postgres(url) as other:
        listener = world._bells._listener
        assert listener is not None
        await begin(other, "r")
        async with watching(world, "r") as watcher:
            await watcher.until_count(2)
            with anyio.fail_after(PATIENCE_SECONDS):
                while not world._bells._is_heard("r"):
                    await anyio.sleep(0.01)
        async with await psycopg.AsyncConnection.connect(postgres_server) as admin:
            await admin.execute(f"lock table {schema}.records")
            async with anyio.create_task_group() as group:
                group.start_soon(listener.read, b"read_page", page("r"))
                await anyio.sleep(0)
                assert await listener.read(b"read_page", page("s")) is None, "it is taken"
                listener.ears.want(lock["s"])
                assert listener.ears.known_since(lock["s"]) is None
                await admin.rollback()
        with anyio.fail_after(PATIENCE_SECONDS):
            while listener.ears.known_since(lock["s"]) is None:
                await anyio.sleep(0.01)
        async with await psycopg.AsyncConnection.connect(postgres_server) as admin:
            await admin.execute(f"lock table {schema}.records")
            with anyio.fail_after(PATIENCE_SECONDS):
                async with anyio.create_task_group() as group:
                    group.start_soon(listener.read, b"read_page", page("r"))
                    await anyio.sleep(0)
                    await world.aclose()


def page(run: str) -> list[bytes | None]:
    return [None, long(0), long(0), long(10), b"default", run.encode()]


def test_hints_fit_and_come_back() -> None:
    locks = {-(2**63), -1, 0, 1, 2**63 - 1}
    found, has_work = parse_payload(payload_of(locks, True))
    assert found is not None
    assert (set(found), has_work) == (locks, True)
    assert parse_payload(payload_of({5}, False)) == ([5], False)
    assert parse_payload(payload_of(set(), True)) == ([], True)
    most = payload_of({-n - 1 for n in range(MAX_RUNS)}, True)
    assert len(most) < 8000
    assert parse_payload(payload_of(set(range(MAX_RUNS + 1)), False)) == (None, True)
