"""Make the dump of the newest schema: ``python -m tests.postgres.dump [DIRECTORY OF POSTGRES'S PROGRAMS]``.

Run it when a migration is finished, with the oldest Postgres at hand; older dumps stay as they are.
"""

import re
import subprocess
import sys
from pathlib import Path

import anyio

from journal.core.codec import Blob
from journal.core.ports import Delta
from journal.testing import servers
from journal.worlds.contract.harness import begin, close, committed, hold
from journal.worlds.postgres import open_postgres
from journal.worlds.postgres.statements import migrations

FOLDER = Path(__file__).parent / "dumps"
SCHEMA = "dumped_store"
_LEFT_OUT = ("--", "SET ", "\\", "SELECT pg_catalog.set_config(")
"""Remarks, psql's own commands, and settings that not every version knows."""


async def fill(url: str) -> None:
    """order-42, worked through; order-43, submitted; order-44, closed."""
    async with open_postgres(url) as world:
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


def main(programs: Path | None) -> None:
    """Fill a store and write what it holds."""
    programs = programs or servers.postgres_programs()
    with servers.start_postgres(binaries=programs) as server:
        url = servers.postgres_url(server)
        anyio.run(fill, f"{url}?schema={SCHEMA}")
        command: list[str | Path] = [
            programs / "pg_dump",
            "--inserts",
            f"--schema={SCHEMA}",
            "--no-owner",
            "--no-privileges",
            url,
        ]
        dumped = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = [line for line in dumped.splitlines() if not line.startswith(_LEFT_OUT)]
    # The functions come before the tables that they speak of.
    text = "set check_function_bodies = off;\n" + re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    (FOLDER / f"{len(migrations(SCHEMA)):04d}.sql").write_text(text + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
