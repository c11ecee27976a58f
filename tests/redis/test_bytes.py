"""Whatever bytes names and values are made of, they come back, and stay apart."""

import pytest

from journal.core.codec import Blob, seal
from journal.core.ids import new_batch_id
from journal.core.ports import Batch, Create, Delta, Finish, Keyed, RunQuery, Submit, SweepPolicy
from journal.core.records import RunCreated
from journal.worlds import open_world
from journal.worlds.contract.harness import begin, claim_all, close, committed, follow_all, hold, raw, submit

pytestmark = pytest.mark.anyio

NAMES = [
    "plain",
    "a",
    "a\0",
    "a\0b",
    "a\1",
    "a\1\1",
    "a\1b",
    "a b",
    "ü\n{x}",
    "{p1}",
    "ÿ",
    "a}h:b",
    "*",
    "'--",
]


async def test_agents_of_any_name_are_told_apart(url: str) -> None:
    async with open_world(url) as world:
        for n, agent in enumerate(NAMES):
            await begin(world, f"r{n}", agent=agent)
        for n, agent in enumerate(NAMES):
            assert [info.run for info in await world.runs(RunQuery(agent=agent))] == [f"r{n}"]
            pending = await world.runs(RunQuery(agent=agent, status="pending"))
            assert [(info.run, info.agent) for info in pending] == [(f"r{n}", agent)]
        for n, agent in enumerate(NAMES[:7]):
            (claimed,) = await claim_all(world, agents={agent})
            assert (claimed.claim.run, claimed.agent) == (f"r{n}", agent)
        assert {claimed.agent for claimed in await claim_all(world)} == set(NAMES[7:])


async def test_runs_turns_keys_and_calls_of_any_name(url: str) -> None:
    async with open_world(url) as world:
        for name in NAMES:
            created = Create("agent", seal(name, RunCreated(agent="agent", nonce=b"n")))
            record = raw(name, b"\0\xff", kind="turn.submitted", turn=name)
            batch = Batch(
                name, new_batch_id(), Keyed(name, b"\0 1 2\n"), (record,), create=created, queue=Submit(name)
            )
            committed(await world.append(batch))
            same = Batch(name, new_batch_id(), Keyed(name, b"\0 1 2\n"), (record,))
            assert type(await world.append(same)).__name__ == "Duplicate"
            other = Batch(name, new_batch_id(), Keyed(name, b"\0 1 2"), (record,))
            assert type(await world.append(other)).__name__ == "KeyConflict"
        for name in NAMES:
            holder = await hold(world, name)
            assert holder.claimed.turn == name
            delta = Delta(call=name, number=1, data=b'"\0\xff\r\n"')
            assert await world.publish(holder.claim, [delta])
            ended = raw(name, b"\r\n", kind="turn.finished", turn=name, key=name, key_id=name)
            blobs = (Blob(name, b"\0\r\n"), Blob(f"0:{name}", b"beside it"))
            committed(await holder.offer(holder.batch(ended, queue=Finish(name, "succeeded"), blobs=blobs)))
            committed(await world.append(close(name)))
        for name in NAMES:
            turn = await world.turn(name, name)
            assert turn is not None
            assert (turn.submitted, turn.status, turn.finished) == (2, "succeeded", 3)
            assert (await world.read(name))[2].key == name
            assert await world.get_blob(name, name) == b"\0\r\n"
            assert [item.call for item in await follow_all(world, name) if isinstance(item, Delta)] == [name]
        assert {info.run for info in await world.runs(RunQuery(status="succeeded"))} == set(NAMES)
        assert await world.sweep(SweepPolicy(closed_older_than_seconds=0)) == len(NAMES)
        assert await world.runs(RunQuery()) == []


async def test_namespaces_of_any_name_are_apart(url: str) -> None:
    for namespace in NAMES:
        async with open_world(url, namespace=namespace) as world:
            assert await world.run("r") is None
            committed(await world.append(submit("r")))
    for namespace in NAMES:
        async with open_world(url, namespace=namespace) as world:
            assert [info.namespace for info in await world.runs(RunQuery())] == [namespace]
            assert len(await claim_all(world)) == 1


async def test_a_blob_in_pieces(url: str) -> None:
    data = bytes(range(256)) * 4 * 1024 * 5 + b"and a little more"
    async with open_world(url) as world:
        await begin(world, "r")
        holder = await hold(world, "r")
        blobs = (Blob("large", data), Blob("exact", data[: 1 << 20]), Blob("empty", b""))
        committed(await holder.offer(holder.batch(blobs=blobs)))
        for blob in blobs:
            assert await world.get_blob("r", blob.id) == blob.data
