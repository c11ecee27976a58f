"""A replica that lacks the tail takes over: who is ahead of the log is told, and nothing is doubled."""

import pytest
import redis
from anyio import to_thread

from journal.testing import servers
from journal.testing.cluster import start_cluster
from journal.testing.proxy import Proxy
from journal.testing.servers import Server
from journal.worlds.redis import open_redis
from tests.redis.test_cluster import _until_linked, slot_of_run
from tests.regression import begin_copied, check_older_copy, go_on_alone

pytestmark = pytest.mark.anyio


def has_everything(primary: Server, replica: Server) -> None:
    with redis.Redis(port=primary.port) as client, redis.Redis(port=replica.port) as other:
        while (
            client.info("replication")["master_repl_offset"]
            != other.info("replication").get("slave_repl_offset")
            or other.info("replication")["master_link_status"] != "up"
        ):
            pass


async def test_a_replica_that_lacks_the_tail(server: Server) -> None:
    """FAULTS 11 and 40. Whoever fails it over leads the clients to it, here by the address."""
    with servers.start_valkey() as replica, Proxy(server.port) as proxy:
        with redis.Redis(port=replica.port) as client:
            client.execute_command("REPLICAOF", "127.0.0.1", server.port)
        await to_thread.run_sync(has_everything, server, replica)
        async with open_redis(f"redis://127.0.0.1:{proxy.port}/0") as world:
            assert "log.survives_failover" not in world.capabilities, "it says so"
            copy = await begin_copied(world)
            await to_thread.run_sync(has_everything, server, replica)
            await to_thread.run_sync(replica.kill)
            tail = await go_on_alone(world, copy)
            await to_thread.run_sync(server.kill)
            await to_thread.run_sync(replica.restart)  # as a primary: it was told otherwise while it ran
            proxy.lead_to(replica.port)
            await check_older_copy(world, copy, tail)


async def test_a_replica_of_a_cluster_that_lacks_the_tail() -> None:
    """FAULTS 11 and 40."""
    with start_cluster(replicas=1) as cluster:
        await to_thread.run_sync(_until_linked, cluster)
        primary, replica = cluster.primaries[0], cluster.replicas[0]
        here = [name for name in (f"run-{n}" for n in range(100)) if slot_of_run(name) < 5462]
        async with open_redis(cluster.url) as world:
            copy = await begin_copied(world, runs=(here[0], here[1]))
            await to_thread.run_sync(has_everything, primary, replica)
            await to_thread.run_sync(replica.kill)
            tail = await go_on_alone(world, copy, run=here[2])
            await to_thread.run_sync(primary.kill)
            await to_thread.run_sync(replica.restart)
            with redis.Redis(port=replica.port) as client:
                client.execute_command("CLUSTER", "FAILOVER", "TAKEOVER")
            await check_older_copy(world, copy, tail)
