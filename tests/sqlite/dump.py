"""Make the dump of the newest schema: ``python -m tests.sqlite.dump``.

Run it when a migration is finished; older dumps stay as they are.
"""

import sqlite3
import tempfile
from pathlib import Path

import anyio

from journal.core.codec import Blob
from journal.core.ports import Delta
from journal.worlds.contract.harness import begin, close, committed, hold
from journal.worlds.sqlite import door, open_sqlite
from journal.worlds.sqlite.statements import migrations

FOLDER = Path(__file__).parent / "dumps"


async def fill(url: str) -> None:
    """order-42, worked through; order-43, submitted; order-44, closed. In several segments."""
    door.SEGMENT_RECORDS = 4
    async with open_sqlite(url) as world:
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


def main() -> None:
    """Fill a store and write what it holds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        anyio.run(fill, f"sqlite:{path}")
        connection = sqlite3.connect(path)
        lines = list(connection.iterdump())
        for name in ("application_id", "user_version"):
            ((value,),) = connection.execute(f"pragma {name}")
            lines += [f"PRAGMA {name} = {value};"]
        connection.close()
    (FOLDER / f"{len(migrations()):04d}.sql").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
