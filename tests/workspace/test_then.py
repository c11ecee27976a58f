"""`upto=`: files and documents as they stood behind a record of the log, read by the application."""

import pytest

from journal import Journal, Turn, VirtualWorkspace, define_doc, io, step
from journal.core.codec import open_record
from journal.core.errors import FileMissing, InvalidOptions
from journal.core.records import CallOutcome

pytestmark = pytest.mark.anyio
Count = define_doc("count", type=int, initial=0)


@step
async def save(number: int) -> None:
    await io.files.write(f"/d/{number}", str(number) * 5_000)
    if number == 3:
        await io.files.delete("/d/1")
    io.docs.update(Count, lambda count: count + 1)


async def test_the_log_is_read_up_to_a_record(world_url: str) -> None:
    journal = Journal(world_url)

    @journal.agent(workspace=VirtualWorkspace(), docs=[Count])
    async def work(turn: Turn, _: None) -> None:
        for number in (1, 2, 3):
            await turn.step(save, number)

    async with journal:
        await work.run(None, run_id="r")
        await journal.files.write("r", "/d/2", "the application's")
        log = await journal.read("r")
        ends = [record.seq for record in log if isinstance(open_record(record), CallOutcome)]
        there = [await journal.files.glob("r", upto=seq) for seq in ends]
        assert there == [["/d/1"], ["/d/1", "/d/2"], ["/d/2", "/d/3"]]
        assert [await journal.docs.get("r", Count, upto=seq) for seq in ends] == [1, 2, 3]
        assert await journal.files.glob("r", upto=ends[0] - 1) == []
        assert await journal.docs.get("r", Count, upto=1) == 0
        assert await journal.files.read("r", "/d/2", upto=ends[2]) == b"2" * 5_000
        assert await journal.files.read("r", "/d/2", upto=log[-1].seq) == b"the application's"
        assert [each.path for each in await journal.files.list("r", "/d", upto=ends[0])] == ["/d/1"]
        with pytest.raises(FileMissing):
            await journal.files.read("r", "/d/1", upto=ends[2])
        with pytest.raises(InvalidOptions, match="numbered from 1"):
            await journal.files.list("r", upto=0)
        beyond = f"upto={log[-1].seq + 1}: the log of run 'r' ends with record {log[-1].seq}"
        with pytest.raises(InvalidOptions, match=beyond):
            await journal.files.read("r", "/d/2", upto=log[-1].seq + 1)
        with pytest.raises(InvalidOptions, match=beyond):
            await journal.docs.get("r", Count, upto=log[-1].seq + 1)
