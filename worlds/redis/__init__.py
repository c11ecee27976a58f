"""The Redis world: a server of Redis or Valkey, or a cluster, for workers on many hosts.

One stream and one hash a run, changed by functions on the server: everything of a batch lands together, and all that
waits at the same moment shares one sync of its disk. The server's clock decides. What its configuration can lose is
not declared. Next: `world.py` (the parts put together), `lua/append.lua` (the door), `keys.py` (where things lie).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from journal.core.clock import Clock, SystemClock
from journal.worlds.redis.address import Address, parse_address
from journal.worlds.redis.cluster import ClusterLine
from journal.worlds.redis.connection import connect
from journal.worlds.redis.keys import meta_key
from journal.worlds.redis.node import at_node
from journal.worlds.redis.opening import open_wire
from journal.worlds.redis.refusals import checked
from journal.worlds.redis.wire import PATIENCE_SECONDS
from journal.worlds.redis.world import RedisWorld

__all__ = ["RedisWorld", "drop_prefix", "open_redis"]


@asynccontextmanager
async def open_redis(
    url: str,
    *,
    namespace: str = "default",
    clock: Clock | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
) -> AsyncIterator[RedisWorld]:
    """Open the store at `url`: `redis://`, `rediss://`, `valkey://`, `redis+cluster://`, `rediss+cluster://`.

    Of its parameters, `prefix`, `partitions` and `wait` are ours.
    `clock` stands in for the server's, for tests; `patience_seconds` bounds every wait for the server. Raises
    `WorldUnavailable`, `WorldReadOnly`, `WorldTooNew`, `WorldFull`, and `WorldUnknown` for a URL or a server that
    cannot be used.
    """
    address = parse_address(url)
    wire, findings = await open_wire(address, patience_seconds=patience_seconds)
    # The time of a store that many hosts share is the server's; a clock of the host is never asked.
    given = None if isinstance(clock, SystemClock) else clock
    world = RedisWorld(wire, address, findings, namespace=namespace, clock=given)
    try:
        yield world
    finally:
        await world.aclose()


async def drop_prefix(url: str) -> None:
    """Remove everything that lies under the prefix of `url`, of all namespaces: for tests."""
    address = parse_address(url)
    if not address.is_cluster:
        await _drop(address)
        return
    wire = ClusterLine(address)
    await wire.refresh()
    for node in wire.primaries:
        await _drop(at_node(address, node))


async def _drop(address: Address) -> None:
    greeting = await connect(address)
    assert greeting.connection is not None, "it has just been made"
    try:
        for pattern in (f"{{{address.prefix}:*", meta_key(address.prefix)):
            cursor = b"0"
            while True:
                cursor, names = checked(
                    await greeting.ask("SCAN", cursor, "MATCH", pattern, "COUNT", 1000), address.shown
                )
                for reply in await asyncio.gather(*(greeting.ask("UNLINK", name) for name in names)):
                    checked(reply, address.shown)
                if cursor == b"0":
                    break
    finally:
        greeting.connection.close()
