"""Nobody is told of runs that nobody follows; whoever begins to follow misses nothing."""

import subprocess
import sys
from itertools import takewhile
from typing import Any

import anyio
import psycopg
import pytest

from journal.worlds.contract.harness import (
    PATIENCE_SECONDS,
    begin,
    committed,
    hold,
    signal,
    watching,
)
from journal.worlds.postgres import bells, ears, open_postgres
from journal.worlds.postgres.address import parse_url
from journal.worlds.postgres.listening import channel_of
from journal.worlds.postgres.places import Places
from journal.worlds.postgres.world import PostgresWorld

pytestmark = pytest.mark.anyio

FOLLOW = """
import asyncio, sys
from journal.worlds import open_world

async def follow():
    async with open_world(sys.argv[1]) as world:
        async for item in world.follow("r"):
            print(item.seq, flush=True)

asyncio.run(follow())
"""


def locks(admin: psycopg.Connection[Any], url: str) -> list[tuple[int, int]]:
    """Who holds which ear of the store: (process of the server, ear)."""
    key = int.from_bytes(ears.first_key(parse_url(url), "default"), "big")
    return admin.execute(
        "select pid, objid::bigint from pg_locks where locktype = 'advisory' and objsubid = 2 "
        "and classid::bigint = %s and granted",
        (key,),
    ).fetchall()


def held(admin: psycopg.Connection[Any], url: str) -> list[int]:
    return sorted({ear for _, ear in locks(admin, url)})


def held_by(admin: psycopg.Connection[Any], url: str) -> set[int]:
    return {pid for pid, _ in locks(admin, url)}


async def until_held(admin: psycopg.Connection[Any], url: str, expected: list[int]) -> None:
    with anyio.fail_after(PATIENCE_SECONDS):
        while held(admin, url) != expected:
            await anyio.sleep(0.01)


async def until_heard(world: PostgresWorld, run: str) -> None:
    """From now on the follower relies on what it is told."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while not world._bells._is_heard(run):
            await anyio.sleep(0.01)


def ear(run: str) -> int:
    return ears.ear_of(Places("default").lock(run))


async def told(admin: psycopg.Connection[Any], url: str, run: str) -> list[str]:
    """What a process says that works on a new run."""
    channel = channel_of(parse_url(url), "default")
    admin.execute(f'listen "{channel}"'.encode())
    async with open_postgres(url) as world:
        await begin(world, run)
        holder = await hold(world, run)
        for _ in range(5):
            await holder.record()
            await anyio.sleep(ears.SILENCE_SECONDS / 2)
    admin.execute("select pg_notify(%s, 'end')", (channel,))
    notices = admin.notifies(timeout=PATIENCE_SECONDS)
    return list(takewhile(lambda payload: payload != "end", (notice.payload for notice in notices)))


async def test_nobody_is_told_of_a_run_that_nobody_follows(url: str, admin: psycopg.Connection[Any]) -> None:
    """Of work everybody is, and of the run along with it."""
    said = await told(admin, url, "r")
    assert said
    assert [payload for payload in said if not payload.startswith("w")] == []


async def test_a_follower_relies_on_hints_once_every_writer_knows(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bells, "LISTENING_POLL_SECONDS", 3600.0)
    async with open_postgres(url) as world, open_postgres(url) as other:
        await begin(other, "r")
        async with watching(world, "r") as watcher:
            await watcher.until_count(2)
            await until_heard(world, "r")
            looks = world._bells._looked_at["r"]
            for number in range(3, 8):
                committed(await other.append(signal("r", f"s{number}")))
                await watcher.until_count(number)
            assert world._bells._looked_at["r"] == looks


async def test_a_follower_that_starts_between_the_look_and_the_commit_misses_nothing(
    url: str, admin: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer takes it that nobody follows; the look of once a second does not help."""
    monkeypatch.setattr(bells, "LISTENING_POLL_SECONDS", 3600.0)
    monkeypatch.setattr(ears, "SILENCE_SECONDS", 3.0)
    async with open_postgres(url) as world, open_postgres(url) as other:
        await begin(other, "r")
        lock = Places("default").lock("r")
        ringer = other._ringer
        assert ringer is not None
        committed(await other.append(signal("r", "s1")))
        with anyio.fail_after(PATIENCE_SECONDS):
            while ringer._silence.heard([lock], ringer._loop.time()):
                await anyio.sleep(0.01)
        admin.execute("select pg_advisory_lock(%s)", (lock,))
        under_way = other.append(signal("r", "s2"))
        async with watching(world, "r") as watcher:
            await watcher.until_count(3)
            await until_held(admin, url, [ear("r")])
            admin.execute("select pg_advisory_unlock(%s)", (lock,))
            committed(await under_way)
            await watcher.until_count(4)
            committed(await other.append(signal("r", "s3")))
            await watcher.until_count(5)


async def test_the_ears_of_the_dead_are_free(url: str, admin: psycopg.Connection[Any]) -> None:
    async with open_postgres(url) as world:
        await begin(world, "r")
        with subprocess.Popen([sys.executable, "-c", FOLLOW, url], stdout=subprocess.PIPE) as follower:
            assert follower.stdout is not None
            assert follower.stdout.readline() == b"1\n"
            await until_held(admin, url, [ear("r")])
            follower.kill()
    await until_held(admin, url, [])


async def test_ears_are_held_again_after_their_session_was_cut(
    url: str, admin: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bells, "LISTENING_POLL_SECONDS", 3600.0)
    async with open_postgres(url) as world, open_postgres(url) as other:
        await begin(other, "r")
        async with watching(world, "r") as watcher:
            await watcher.until_count(2)
            await until_heard(world, "r")
            (session,) = held_by(admin, url)
            admin.execute("select pg_terminate_backend(%s)", (session,))
            with anyio.fail_after(PATIENCE_SECONDS):
                while session in held_by(admin, url):
                    await anyio.sleep(0.01)
            committed(await other.append(signal("r", "s1")))
            await watcher.until_count(3)
            await until_held(admin, url, [ear("r")])
            await until_heard(world, "r")
            committed(await other.append(signal("r", "s2")))
            await watcher.until_count(4)


async def test_many_followers_hold_few_locks(url: str, admin: psycopg.Connection[Any]) -> None:
    async with open_postgres(url) as world, anyio.create_task_group() as group:

        async def follow(run: str) -> None:
            async for _ in world.follow(run):
                pass

        for number in range(200):
            group.start_soon(follow, f"r{number}")
        await until_held(admin, url, list(range(ears.COUNT)))
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await until_held(admin, url, [])


def test_a_writer_does_not_ask_again_within_the_silence() -> None:
    """Runs 3 and 19 have one ear (16 of them), run 4 another."""
    silence = ears.Silence()
    assert silence.heard([3, 4, 19], 10.0) == [3, 4, 19]
    silence.learn([3], 10.0)
    assert silence.heard([3, 4, 19], 10.09) == [4]
    assert silence.heard([3, 4, 19], 10.11) == [3, 4, 19]
    silence.learn([3, 4], 10.2)
    assert silence.questions([5, 19]) == {3, 4, 5}, "all at one time, not each at its own"
    silence.learn([3], 10.4)
    assert silence.questions([]) == {3}, "what is held is not asked about but for its own runs"
    assert {ears.ear_of(lock) for lock in (-1, -(2**63), 2**63 - 1)} == {15, 0}
