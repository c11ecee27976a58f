"""What the dumps of old schemas hold (`tests/sqlite/dump.py`, `tests/postgres/dump.py`)."""

from journal.core.codec import Blob
from journal.core.ports import Delta, World
from journal.worlds.contract.harness import begin, close, committed, hold


async def fill(world: World) -> None:
    """order-42, worked through; order-43, submitted; order-44, closed."""
    await begin(world, "order-42")
    holder = await hold(world, "order-42")
    await holder.start()
    blob = Blob("b1", b"a blob")
    committed(await holder.offer(holder.batch(holder.outcome("c"), blobs=(blob,))))
    await holder.record("d")
    assert await world.publish(holder.claim, [Delta(call="c", number=1, data=b'"piece"')])
    await holder.finish()
    await begin(world, "order-43")
    await begin(world, "order-44")
    await (await hold(world, "order-44")).finish()
    committed(await world.append(close("order-44")))
