"""The server dies, connections are cut, contents are bad: who is told what, and what is in the log afterwards."""

import asyncio
import os
from typing import Any

import anyio
import psycopg
import pytest
from anyio import to_thread
from msgspec.structs import replace

from journal.core.errors import InvalidValue, WorldMissing, WorldReadOnly, WorldUnavailable
from journal.core.ports import Committed, Duplicate, Unknown
from journal.testing import servers
from journal.worlds.contract.harness import (
    Watcher,
    at_once,
    begin,
    close,
    committed,
    follow_all,
    hold,
    raw,
    refusal,
    seqs,
    signal,
    submit,
)
from journal.worlds.postgres import connection, drop_schema, link, open_postgres
from tests.load import Load

pytestmark = pytest.mark.anyio


def _cut(admin: psycopg.Connection[Any]) -> int:
    """End every connection of ours."""
    rows = admin.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'durable-journal'"
    ).fetchall()
    return len(rows)


async def test_a_server_that_is_killed_under_load_loses_and_doubles_nothing(
    own_server: servers.Server,
) -> None:
    async with open_postgres(servers.postgres_url(own_server)) as world:
        load = Load(world)
        watcher = Watcher()
        async with anyio.create_task_group() as watching:
            watching.start_soon(watcher.watch, world, "r0")
            async with anyio.create_task_group() as group:
                for number in range(8):
                    group.start_soon(load.work, f"r{number}")
                await load.until(50)
                for _ in range(3):
                    await to_thread.run_sync(own_server.restart)
                    await load.until(50)
                load.is_over = True
            with anyio.fail_after(30):
                await watcher.until_count(2 + 2 * len(load.acknowledged["r0"]))
            watching.cancel_scope.cancel()
        assert watcher.places() == [(seq, 0) for seq in await seqs(world, "r0")]
        await load.check()


async def test_connections_that_are_cut_under_load(url: str, admin: psycopg.Connection[Any]) -> None:
    async with open_postgres(url) as world:
        load = Load(world)
        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(load.work, f"r{number}")
            await load.until(50)
            for _ in range(5):
                assert _cut(admin)
                await load.until(50)
            load.is_over = True
        await load.check()


async def test_a_server_that_hangs_is_left_and_the_batch_is_offered_again(
    own_server: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "ANSWER_SECONDS", 0.3)
    async with open_postgres(servers.postgres_url(own_server)) as world:
        await begin(world, "r")
        batch = signal("r")
        own_server.pause()
        try:
            answer = asyncio.ensure_future(world.append(batch))
            done, _ = await asyncio.wait([answer], timeout=0.8)
            assert not done, "a new connection is sought first"
        finally:
            own_server.resume()
        assert isinstance(await answer, Unknown)
        settled = await world.append(batch)
        assert isinstance(settled, Committed | Duplicate)
        assert await seqs(world, "r") == [1, 2, 3]


async def test_a_renewer_connects_again(url: str, admin: psycopg.Connection[Any]) -> None:
    async with open_postgres(url) as world:
        await begin(world, "r")
        holder = await hold(world, "r")
        renewer = world.open_renewer()
        assert await to_thread.run_sync(renewer.renew, [holder.claim], 30.0) == {holder.claim}
        _cut(admin)
        assert await to_thread.run_sync(renewer.renew, [holder.claim], 30.0) == {holder.claim}
        renewer.close()


async def test_a_renewal_waits_for_a_row_that_is_locked(url: str, schema: str, postgres_server: str) -> None:
    """A skipped row is not a lost lease."""
    async with open_postgres(url) as world:
        for run in ("locked", "free"):
            await begin(world, run)
        claims = {(await hold(world, run)).claim for run in ("locked", "free")}
        renewer = world.open_renewer()
        async with await psycopg.AsyncConnection.connect(postgres_server) as other:
            await other.execute(f"select from {schema}.queue order by rid limit 1 for update")
            renewing = asyncio.ensure_future(to_thread.run_sync(renewer.renew, list(claims), 30.0))
            done, _ = await asyncio.wait([renewing], timeout=0.2)
            assert not done
            await other.rollback()
            assert await renewing == claims
        renewer.close()


async def test_a_server_that_stays_away_is_named(
    own_server: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_postgres(servers.postgres_url(own_server)) as world:
        await begin(world, "r")
        monkeypatch.setattr(connection.connect_patiently, "__defaults__", (0.3,))
        own_server.kill()
        first = await world.append(signal("r"))
        assert isinstance(first, Unknown)
        error = await refusal(WorldUnavailable, world.append(signal("r", "later")))
        assert "not to be reached" in str(error)
        monkeypatch.undo()
        await to_thread.run_sync(own_server.restart)
        committed(await world.append(signal("r", "later still")))


async def test_a_bad_batch_stands_alone(url: str) -> None:
    """Contents that the server refuses: too long for an index, a NUL where text must be, a lone surrogate."""
    surrogate = submit("e")
    assert surrogate.create is not None
    async with open_postgres(url) as world:
        offers = [
            submit("a"),
            submit("b", agent="nul\x00"),
            submit("c"),
            submit("d", os.urandom(3000).hex()),
            replace(surrogate, create=replace(surrogate.create, agent="\ud800")),
            submit("f"),
        ]
        answers = await asyncio.gather(*(world.append(offer) for offer in offers), return_exceptions=True)
        kinds = [type(answer) for answer in answers]
        assert kinds == [Committed, InvalidValue, Committed, InvalidValue, InvalidValue, Committed]
        for run in "acf":
            assert await seqs(world, run) == [1, 2]
        for run in "bd":
            assert await world.run(run) is None


async def test_nul_and_every_character_survive(url: str) -> None:
    text = "a\x00b\n\t\U0001f600é"
    async with open_postgres(url) as world:
        await begin(world, "r", text)
        holder = await hold(world, "r")
        assert holder.claimed.turn == text
        record = raw("r", b"\x00", turn=text, key=text, key_id=text)
        committed(await world.append(holder.batch(record)))
        committed(await world.append(signal("r", text)))
        found = (await world.read("r", after=2))[0]
        assert (found.turn, found.key, found.key_id) == (text, text, text)
        turn = await world.turn("r", text)
        assert turn is not None
        assert turn.turn == text
        committed(await world.append(close("r")))
        assert len(await follow_all(world, "r")) == 5


async def test_a_schema_that_was_dropped_is_named(url: str) -> None:
    async with open_postgres(url) as world:
        await begin(world, "r")
        await drop_schema(url)
        error = await refusal(WorldMissing, world.append(signal("r")))
        assert "was the schema dropped" in str(error)
        await refusal(WorldMissing, world.read("r"))


async def test_a_user_who_may_not_write_is_told(
    url: str, schema: str, postgres_server: str, admin: psycopg.Connection[Any]
) -> None:
    async with open_postgres(url) as world:
        await begin(world, "r")
    admin.execute(f"create role reader_{schema} login")
    admin.execute(f"grant usage on schema {schema} to reader_{schema}")
    admin.execute(f"grant select on all tables in schema {schema} to reader_{schema}")
    try:
        async with open_postgres(url.replace("postgres@", f"reader_{schema}@")) as world:
            assert await seqs(world, "r") == [1, 2]
            await refusal(WorldReadOnly, world.append(signal("r")))
    finally:
        admin.execute(f"drop owned by reader_{schema}")
        admin.execute(f"drop role reader_{schema}")


async def test_what_was_offered_is_finished_though_the_world_closes(url: str) -> None:
    async with open_postgres(url) as world:
        offers = [world.append(submit(f"r{number}")) for number in range(30)]
    assert all(isinstance(answer, Committed) for answer in await at_once(*offers))
