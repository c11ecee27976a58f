"""The Redis world: a server of Redis or Valkey, for workers on many hosts.

One stream and one hash a run, changed by functions on the server: everything of a batch lands together, and all that
waits at the same moment shares one sync of its disk. The server's clock decides. What its configuration can lose is
not declared. Next: `world.py` (the parts put together), `lua/append.lua` (the door), `keys.py` (where things lie).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from journal.core.clock import Clock
from journal.core.errors import WorldUnavailable
from journal.worlds.redis.address import parse_address
from journal.worlds.redis.connection import connect
from journal.worlds.redis.keys import meta_key
from journal.worlds.redis.line import PATIENCE_SECONDS, Line
from journal.worlds.redis.refusals import checked
from journal.worlds.redis.server import agree_on_layout, examine
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
    """Open the store at `url` (`redis://`, `rediss://`, `valkey://`; ours: `prefix`, `partitions`, `wait`).

    `clock` stands in for the server's, for tests; `patience_seconds` bounds every wait for the server. Raises
    `WorldUnavailable`, `WorldReadOnly`, `WorldTooNew`, `WorldFull`, and `WorldUnknown` for a URL or a server that
    cannot be used.
    """
    address = parse_address(url)
    line = Line(address, patience_seconds=patience_seconds)
    greeting = await line.open()
    try:
        findings = await examine(greeting, address)
        await agree_on_layout(greeting, address)
        line.use(greeting)
    except OSError as error:
        raise WorldUnavailable(f"the connection was lost: {error}", world=address.shown) from error
    except BaseException:
        if greeting.connection is not None:
            greeting.connection.abort()
        raise
    world = RedisWorld(line, address, findings, namespace=namespace, clock=clock)
    try:
        yield world
    finally:
        await world.aclose()


async def drop_prefix(url: str) -> None:
    """Remove everything that lies under the prefix of `url`, of all namespaces: for tests."""
    address = parse_address(url)
    greeting = await connect(address)
    assert greeting.connection is not None, "it has just been made"
    try:
        for pattern in (f"{{{address.prefix}:*", meta_key(address.prefix)):
            cursor = b"0"
            while True:
                cursor, names = checked(
                    await greeting.ask("SCAN", cursor, "MATCH", pattern, "COUNT", 1000), address.shown
                )
                if names:
                    checked(await greeting.ask("UNLINK", *names), address.shown)
                if cursor == b"0":
                    break
    finally:
        greeting.connection.close()
