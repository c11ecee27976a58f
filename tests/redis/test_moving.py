"""What a copy on Redis rests on: the replicas that a batch rests on, and nothing left behind in memory."""

import anyio
import pytest
import redis
from anyio import to_thread

from journal.core.codec import Blob
from journal.core.errors import WorldUnavailable
from journal.core.ports import SweepPolicy
from journal.testing import servers
from journal.testing.servers import Server
from journal.worlds import open_world
from journal.worlds.contract.building import built, move, worked_on
from journal.worlds.contract.harness import committed, hold, refusal
from journal.worlds.redis import RedisWorld, open_redis, transfer

pytestmark = pytest.mark.anyio


async def test_a_copy_is_there_once_the_replicas_have_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with servers.start_valkey() as replica:
        with redis.Redis(port=replica.port) as client:
            client.execute_command("REPLICAOF", "127.0.0.1", server.port)
            await to_thread.run_sync(_until_linked, client)
        async with (
            open_world("memory:") as source,
            open_redis(f"{servers.redis_url(server)}?wait=1", patience_seconds=1) as target,
        ):
            await worked_on(source)
            image, records = await source.image("r"), await source.read("r")
            blobs = [Blob(name, await source.get_blob("r", name)) for name in image.blobs]
            monkeypatch.setattr(transfer, "ANSWER_SECONDS", 0.2)
            replica.pause()
            error = await refusal(WorldUnavailable, target.build(image, records, blobs))
            assert "0 of 1 replicas" in str(error)
            replica.resume()
            assert await target.build(image, records, blobs) == 11
            replica.pause()
            await refusal(WorldUnavailable, target.settle("r", is_live=True))
            replica.resume()
            assert (await hold(target, "r")).claimed.turn == "t2"


async def test_a_settling_whose_answer_was_lost_is_no_refusal(server: Server) -> None:
    with servers.start_valkey() as replica:
        with redis.Redis(port=replica.port) as client:
            client.execute_command("REPLICAOF", "127.0.0.1", server.port)
            await to_thread.run_sync(_until_linked, client)
        async with (
            open_world("memory:") as source,
            open_redis(f"{servers.redis_url(server)}?wait=1", patience_seconds=1) as target,
        ):
            await worked_on(source)
            await built(source, target)
            replica.pause()
            async with anyio.create_task_group() as group:
                group.start_soon(_settle, target)
                await anyio.sleep(1)  # it has landed, and is offered again, since no replica has it
                replica.resume()
            assert (await hold(target, "r")).claimed.turn == "t2"


async def test_what_was_moved_away_leaves_a_hash_and_its_place_in_the_index(url: str) -> None:
    async with open_world(f"{url}&partitions=1") as world:
        await worked_on(world)
        committed(await world.append(move("r", 11)))
        await world.sweep(SweepPolicy(closed_older_than_seconds=0, moved=("r",)))
    prefix = url.rpartition("=")[2]
    with redis.Redis.from_url(url.partition("?")[0]) as client:
        names = sorted(name.decode() for name in client.scan_iter(f"{{{prefix}:*"))
        tag = f"{{{prefix}:default:p0}}"
        assert names == [f"{tag}h:r", f"{tag}x"]
        fields = {name.decode() for name in client.hkeys(f"{tag}h:r")}
        assert fields == {"gone", "log", "moved"}
        assert [member[:1] for member in client.zrange(f"{tag}x", 0, -1)] == [b"g"]


async def _settle(target: RedisWorld) -> None:
    await target.settle("r", is_live=True)


def _until_linked(client: redis.Redis) -> None:
    while client.info("replication")["master_link_status"] != "up":
        pass
