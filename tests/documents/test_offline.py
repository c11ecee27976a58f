"""A replay offline that comes to a late result which edits: nothing is recorded, as with any other."""

from typing import Any

import pytest

from journal import Journal, Turn, VirtualWorkspace, define_doc, io, tool
from journal.core.codec import open_record, seal
from journal.core.records import CallEvidence, CallOutcome, Record
from journal.engine.offline import replay
from journal.replay.recorded import RecordedRun

pytestmark = pytest.mark.anyio
Todo = define_doc("todo", 1, list[str])


def with_late_result(records: list[Record]) -> RecordedRun:
    """The run as it would be had its holder lost the claim inside the call."""
    kept: list[Record] = []
    for record in records:
        body = open_record(record)
        if isinstance(body, CallOutcome):
            late = seal(record.run, CallEvidence(outcome=body, epoch=1), turn=record.turn, key=record.key)
            kept.append(
                Record(record.run, record.seq, record.time, late.type, late.turn, late.key, 0, b"late" * 4, late.body,
                       late.checksum)
            )  # fmt: skip
            break
        kept.append(record)
    return RecordedRun(kept)


@pytest.mark.parametrize("what", ["files", "docs", "nothing"])
async def test_a_late_result_that_edits_is_not_recorded_offline(what: str) -> None:
    journal = Journal("memory:")

    @tool(replay="never")
    async def publish() -> str:
        if what == "files":
            await io.files.write("/a", "x")
        elif what == "docs":
            io.docs.update(Todo, lambda items: [*items, "x"])
        return "published"

    @journal.agent(workspace=VirtualWorkspace(), docs=[Todo])
    async def work(turn: Turn, _: None) -> Any:
        return (await turn.tool(publish)).value

    async with journal:
        await work.run(None, run_id="r")
        log = with_late_result(await journal.read("r"))
    replayed = await replay(work, log)
    assert (replayed.verdict, replayed.detail) == ("log_ends", "")
