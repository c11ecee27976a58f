"""Make the dump of the newest schema: ``python -m tests.sqlite.dump``.

Run it when a migration is finished; older dumps stay as they are.
"""

import sqlite3
import tempfile
from pathlib import Path

import anyio

from journal.worlds.sqlite import door, open_sqlite
from journal.worlds.sqlite.statements import migrations
from tests.dumped import fill

FOLDER = Path(__file__).parent / "dumps"


async def make(url: str) -> None:
    """A store with what is dumped, in several segments."""
    door.SEGMENT_RECORDS = 4
    async with open_sqlite(url) as world:
        await fill(world)


def main() -> None:
    """Fill a store and write what it holds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        anyio.run(make, f"sqlite:{path}")
        connection = sqlite3.connect(path)
        lines = list(connection.iterdump())
        for name in ("application_id", "user_version"):
            ((value,),) = connection.execute(f"pragma {name}")
            lines += [f"PRAGMA {name} = {value};"]
        connection.close()
    (FOLDER / f"{len(migrations()):04d}.sql").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
