"""The schema: old files are carried forward, and no statement reads a table from end to end."""

import re
import sqlite3
from importlib import import_module
from pathlib import Path

import pytest

from journal.core.errors import WorldTooNew
from journal.core.records import RunCreated
from journal.worlds.contract.harness import begin, claim_all, follow_all, hold, seqs
from journal.worlds.sqlite import open_sqlite, pending_sql
from journal.worlds.sqlite.statements import SQL, migrations
from journal.worlds.versions import stated

MIGRATE = import_module("journal.worlds.sqlite.migrate")  # the package has a function of that name
DUMPS = sorted((Path(__file__).parent / "dumps").glob("*.sql"))


@pytest.mark.anyio
@pytest.mark.parametrize("dump", DUMPS, ids=lambda dump: dump.stem)
async def test_a_file_of_every_schema_ever_shipped_opens_and_goes_on(
    dump: Path, path: Path, url: str
) -> None:
    """The dumps hold: order-42, worked through; order-43, submitted; order-44, closed."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(dump.read_text())
    assert connection.execute("pragma user_version").fetchone()[0] == int(dump.stem)
    connection.close()
    async with open_sqlite(url) as world:
        assert await seqs(world, "order-42") == [1, 2, 3, 4, 5, 6]
        assert (await world.read("order-42", limit=1))[0].type == RunCreated.TYPE
        assert await world.get_blob("order-42", "b1") == b"a blob"
        assert len(await follow_all(world, "order-44")) == 4
        assert [claimed.claim.run for claimed in await claim_all(world)] == ["order-43"]
        await begin(world, "order-42", "t2")
        holder = await hold(world, "order-42")
        assert holder.claim.epoch == 2
        await holder.finish()
    connection = sqlite3.connect(path)
    assert connection.execute("pragma user_version").fetchone()[0] == len(migrations())
    connection.close()


def test_there_is_a_dump_of_every_schema() -> None:
    assert [int(dump.stem) for dump in DUMPS] == [number for number, _ in migrations()]


@pytest.mark.anyio
@pytest.mark.parametrize("is_new", [True, False], ids=["made", "carried forward"])
async def test_older_code_goes_on_until_a_migration_ends_that(
    path: Path, url: str, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    shipped = migrations()
    last = len(shipped)
    adds = (last + 1, f"-- Adds.\n-- compatible from: {last}\nalter table runs add column later text;")
    takes = (last + 2, f"-- compatible from: {last + 1}\nalter table runs drop column later;")

    if not is_new:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.executescript(DUMPS[-1].read_text())
        connection.close()
    with monkeypatch.context() as newer:
        newer.setattr(MIGRATE, "migrations", lambda: [*shipped, adds])
        async with open_sqlite(url) as new:
            await begin(new, "r")
    assert await pending_sql(url) == ""
    async with open_sqlite(url) as old:
        await (await hold(old, "r")).finish()
    with monkeypatch.context() as newest:
        newest.setattr(MIGRATE, "migrations", lambda: [*shipped, adds, takes])
        async with open_sqlite(url) as new:
            await begin(new, "r", "t2")
    content = path.read_bytes()
    with pytest.raises(
        WorldTooNew, match=f"schema {last + 2}, which is for .* {last + 1} or newer.*{last}: upgrade"
    ):
        async with open_sqlite(url):
            pass
    assert path.read_bytes() == content
    with pytest.raises(WorldTooNew):
        await pending_sql(url)


def test_migrations_say_what_older_code_may_do() -> None:
    """All but the two that came before there was anything to say."""
    for number, script in migrations()[2:]:
        says = stated(script)
        assert says is not None, f"migration {number} lacks its line: -- compatible from: NUMBER"
        assert 1 <= says <= number


@pytest.mark.parametrize("name", SQL)
def test_no_statement_reads_a_table_from_end_to_end(name: str) -> None:
    """With a million runs a scan is an outage; the planner says beforehand where it would be."""
    connection = sqlite3.connect(":memory:")
    for _, script in migrations():
        connection.executescript(script)
    statement = SQL[name]
    named = set(re.findall(r":(\w+)", statement))
    numbered = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    values: dict[str, int] | list[int] = [1] * max(numbered, default=statement.count("?"))
    if named:
        values = dict.fromkeys(named, 1)
    plan = [row[3] for row in connection.execute(f"explain query plan {statement}", values)]
    connection.close()
    scans = [
        step
        for step in plan
        # Of an array, of a constant, of the rows that are bound: not of a table.
        if step.startswith("SCAN") and not re.search("json_each|CONSTANT|subquery", step)
    ]
    assert not scans, plan
    # `count_runs` counts what there is, when somebody asks for it.
    assert name == "count_runs" or not [step for step in plan if "TEMP B-TREE" in step], plan
