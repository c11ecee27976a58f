"""The next version of this package, as the test of a rolling deploy needs one: this tree, and a little more.

Its schema has one more migration, which adds; its functions are others; and what it begins needs a newer reader.
"""

import shutil
from pathlib import Path

from journal.worlds.postgres import statements as postgres
from journal.worlds.sqlite import statements as sqlite
from tests.forks import ROOT

ADDED = "added_later"
"""What the newer version has in its stores: a column of `runs`, a field of a run's hash, a function."""
READER = 2
"""The reader that runs of the newer version need."""


def make_newer(folder: Path) -> Path:
    """Make its tree in `folder`."""
    journal = folder / "journal"
    # Links are followed: the worlds, too, are copies.
    shutil.copytree(ROOT / "journal", journal, ignore=shutil.ignore_patterns("__pycache__"))
    app = Path("tests/crash/app.py")
    (folder / app).parent.mkdir(parents=True)
    shutil.copy(ROOT / app, folder / app)
    _change(journal / "core/records.py", "\nMIN_READER = 1\n", f"\nMIN_READER = {READER}\n")
    _migrate(journal / "worlds/sqlite/migrations", sqlite.migrations(), "runs")
    _migrate(journal / "worlds/postgres/migrations", postgres.migrations("any"), "{schema}.runs")
    (journal / "worlds/postgres/functions/added_later.sql").write_text(
        f"create or replace function {{schema}}.{ADDED}() returns integer language sql as 'select {READER}';\n"
    )
    tip = "  redis.call('HSET', H, 'tip', pack_tip(tip))\n"
    _change(
        journal / "worlds/redis/lua/append.lua",
        tip,
        f"{tip}  if is_new then redis.call('HSET', H, '{ADDED}', '{READER}') end\n",
    )
    return folder


def _migrate(migrations: Path, shipped: list[tuple[int, str]], table: str) -> None:
    number = len(shipped) + 1
    (migrations / f"{number:04d}_{ADDED}.sql").write_text(
        f"-- compatible from: {number - 1}\nalter table {table} add column {ADDED} integer not null default {READER};\n"
    )


def _change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))
