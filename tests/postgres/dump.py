"""Make the dump of the newest schema: ``python -m tests.postgres.dump [DIRECTORY OF POSTGRES'S PROGRAMS]``.

Run it when a migration is finished, with the oldest Postgres at hand; older dumps stay as they are.
"""

import re
import subprocess
import sys
from pathlib import Path

import anyio

from journal.testing import servers
from journal.worlds.postgres import open_postgres
from journal.worlds.postgres.statements import migrations
from tests.dumped import fill

FOLDER = Path(__file__).parent / "dumps"
SCHEMA = "dumped_store"
_LEFT_OUT = ("--", "SET ", "\\", "SELECT pg_catalog.set_config(")
"""Remarks, psql's own commands, and settings that not every version knows."""


async def make(url: str) -> None:
    """A store with what is dumped."""
    async with open_postgres(url) as world:
        await fill(world)


def main(programs: Path | None) -> None:
    """Fill a store and write what it holds."""
    programs = programs or servers.postgres_programs()
    with servers.start_postgres(binaries=programs) as server:
        url = servers.postgres_url(server)
        anyio.run(make, f"{url}?schema={SCHEMA}")
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
