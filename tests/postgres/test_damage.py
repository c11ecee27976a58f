"""Bytes in the store that are not ours: an error that names run and seq, and the other runs are spared."""

from typing import Any

import psycopg
import pytest

from journal.core.errors import CorruptRecord
from journal.core.ports import Delta
from journal.worlds.contract.harness import begin, follow_all, hold, refusal, seqs
from journal.worlds.postgres import open_postgres

pytestmark = pytest.mark.anyio

COLUMNS = [
    "body = '\\x07'",
    "body = ''",
    "type = 'no.such.type'",
    "type = ''",
    "turn = '\\xff'",
    "key = '\\x80'",
    "key_id = '\\x80'",
    "checksum = -1",
    "checksum = 9223372036854775807",
    "seq = 77",
]


@pytest.mark.parametrize("column", COLUMNS)
async def test_a_record_that_somebody_changed(
    url: str, schema: str, admin: psycopg.Connection[Any], column: str
) -> None:
    """FAULTS 7 and 28: by somebody who went round the trigger."""
    async with open_postgres(url) as world:
        for run in ("hit", "spared"):
            await begin(world, run)
            holder = await hold(world, run)
            for number in range(3):
                await holder.record(f"step#{number}")
        admin.execute("set session_replication_role = replica")
        where = f"rid = (select rid from {schema}.runs where run = 'hit') and seq = 4"
        assert admin.execute(f"update {schema}.records set {column} where {where}".encode()).rowcount == 1
        for attempt in (world.read("hit"), follow_all(world, "hit")):
            error = await refusal(CorruptRecord, attempt)
            assert (error.run_id, error.seq) == ("hit", 4)
        assert await seqs(world, "spared") == [1, 2, 3, 4, 5]


async def test_a_delta_that_is_none(url: str, schema: str, admin: psycopg.Connection[Any]) -> None:
    """FAULTS 28."""
    async with open_postgres(url) as world:
        await begin(world, "hit")
        holder = await hold(world, "hit")
        assert await world.publish(holder.claim, [Delta(call="c", number=1, data=b"x")])
        assert admin.execute(f"update {schema}.deltas set call = '\\xff'".encode()).rowcount == 1
        error = await refusal(CorruptRecord, follow_all(world, "hit"))
        assert (error.run_id, error.seq) == ("hit", 2)
