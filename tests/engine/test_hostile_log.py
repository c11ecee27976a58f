"""FAULTS 28: hostile bytes in the store. An error naming run and seq, no code executed, no unbounded memory."""

import pickle
import sqlite3
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from journal import Journal, Turn, TurnBlocked
from journal.core import values
from journal.core.codec import seal
from journal.core.errors import LogError
from journal.core.records import BlobRef, CallIntent, CallOutcome, NewRecord, TurnStarted, Value
from journal.worlds import open_world
from journal.worlds.contract.harness import committed, hold, raw

pytestmark = pytest.mark.anyio


class Trap:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def application(url: str) -> tuple[Journal, Any, list[int]]:
    journal, ran = Journal(url), list[int]()

    async def fetch() -> int:
        ran.append(1)
        return 1

    @journal.agent
    async def work(turn: Turn, _: None) -> Any:
        try:
            return await turn.step(fetch)
        except Exception:
            return "taken for a failure of the call"

    return journal, work, ran


async def plant(journal: Journal, work: Any, url: str, *outcome: NewRecord) -> None:
    """A run whose turn was interrupted after one call, of which the log says that; each record has its checksum."""
    await work.submit(None, run_id="hit")
    async with open_world(url) as world:
        holder = await hold(world, "hit")
        started = seal("hit", TurnStarted(worker="w", attempt=1), turn="start")
        intent = CallIntent(
            kind="step",
            name="fetch",
            input=b"{}",
            input_digest=values.digest(b"{}"),
            policy="safe",
            attempt=1,
        )
        call = seal("hit", intent, turn="start", key="fetch#1")
        committed(await holder.offer(holder.batch(started, call, *outcome)))
        await holder.release()


BODIES = {
    "no MessagePack": b"\xc1",
    "a map of four billion": b"\xdf\xff\xff\xff\xff",
    "4 GiB of text": b"\x81\xa6status\xdb\xff\xff\xff\xff",
    "a hundred thousand levels": b"\x81\xa5later" + b"\x91" * 100_000 + b"\x01",
    "another type": b"\x81\xa6status\x01",
    "nothing": b"",
}


@pytest.mark.parametrize("name", [*BODIES, "a pickle"])
async def test_a_record_that_is_no_record_blocks_its_run_alone(url: str, tmp_path: Path, name: str) -> None:
    trap = tmp_path / "sprung"
    body = BODIES.get(name) or pickle.dumps(Trap(trap))
    if name == "nothing":
        body = b""
    journal, work, ran = application(url)
    async with journal:
        await plant(journal, work, url, raw("hit", body, kind="call.outcome", turn="start", key="fetch#1"))
        tracemalloc.start()
        try:
            with pytest.raises(TurnBlocked, match=r"log_error.*record 5 of run 'hit'"):
                await work.run(None, run_id="hit")
            assert tracemalloc.get_traced_memory()[1] < 64 * 1024 * 1024
        finally:
            tracemalloc.stop()
        assert (await journal.get("hit")).status == "blocked"
        assert ran == []
        assert await work.run(None, run_id="spared") == 1
    assert not trap.exists()


VALUES: dict[str, Value] = {
    "no JSON": b"\x80\x04.",
    "nothing": b"",
    "NaN": b"NaN",
    "no UTF-8": b'"\xff"',
    "a hundred thousand levels": b"[" * 100_000,
    "a number of a million digits": b"1" * 1_000_000,
    "a blob that is not there": BlobRef(blob="0" * 32, size=70_000),
}


@pytest.mark.parametrize("name", VALUES)
async def test_a_value_that_is_no_value_blocks_its_run_alone(url: str, name: str) -> None:
    """The handler must not take it for a failure of the call: the call went well."""
    journal, work, _ = application(url)
    outcome = seal("hit", CallOutcome(status="ok", value=VALUES[name]), turn="start", key="fetch#1")
    async with journal:
        await plant(journal, work, url, outcome)
        try:
            told = str(await work.run(None, run_id="hit"))
        except TurnBlocked as blocked:
            told = str(blocked)
        assert "log_error" in told
        assert "record 5 of run 'hit'" in told


COLUMNS = [
    "body = 7",
    "body = 'text'",
    "type = x'ff'",
    "type = 'no.such.type'",
    "turn = x'00'",
    "key = 1.5",
    "checksum = 'many'",
    "checksum = 9e300",
    "key_id = x'80'",
    "seq = 77",
    "seq = 'five'",
]


@pytest.mark.parametrize("column", COLUMNS)
async def test_a_column_of_another_type_is_an_error_that_names_the_record(
    tmp_path: Path, column: str
) -> None:
    journal, work, _ = application(f"sqlite:{tmp_path / 'j.db'}")
    async with journal:
        for run in ("hit", "spared"):
            assert await work.run(None, run_id=run) == 1
        connection = sqlite3.connect(tmp_path / "j.db", isolation_level=None)
        connection.execute("drop trigger records_never_change")
        rid = "(select rid from runs where run = 'hit')"
        assert connection.execute(f"update records set {column} where rid = {rid} and seq = 5").rowcount == 1
        connection.close()
        with pytest.raises(LogError, match=r"record 5 of run 'hit'"):
            await journal.read("hit")
        assert [r.seq for r in await journal.read("spared")] == [1, 2, 3, 4, 5, 6]
