"""Many large values at once: no batch carries more of them than a store takes, and what refers to them comes behind."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from journal import Journal, Turn, VirtualWorkspace, define_doc, io, step, tool
from journal.core.codec import open_record
from journal.core.ports import Answer, Batch, Committed, Duplicate, Unknown, World
from journal.core.records import CallOutcome
from journal.engine import claim
from journal.engine.offline import replay
from journal.engine.reading import read_file
from journal.testing import Effects, crash_everywhere
from journal.worlds import open_world

pytestmark = pytest.mark.anyio
LIMIT, LARGE = 300_000, 100_000
Notes = define_doc("notes", 1, list[str], initial=[])


@pytest.fixture(autouse=True)
def _low_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "BLOB_BYTES", LIMIT)


class Weighed:
    """A world that weighs what it is given; of every third batch with blobs the answer is lost."""

    def __init__(self, inner: World, weights: list[int]) -> None:
        self._inner = inner
        self._weights = weights
        self._known: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def append(self, batch: Batch) -> Awaitable[Answer]:
        return asyncio.ensure_future(self._append(batch))

    async def _append(self, batch: Batch) -> Answer:
        await asyncio.sleep(0.001)  # others are handed in meanwhile
        answer = await self._inner.append(batch)
        if batch.blobs and type(answer) in (Committed, Duplicate):
            self._weights.append(sum(len(blob.data) for blob in batch.blobs))
            if len(self._weights) % 3 == 0:
                return Unknown("the answer was lost")
        return answer


def journal_on(url: str, weights: list[int]) -> Journal:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        async with open_world(url) as world:
            yield Weighed(world, weights)

    return Journal(opened)


async def results(turn: Turn, count: int) -> list[int]:
    async def large(number: int) -> str:
        return chr(97 + number) * LARGE

    return [len(text) for text in await asyncio.gather(*(turn.step(large, n) for n in range(count)))]


async def inputs(turn: Turn, count: int) -> list[int]:
    async def size(text: str) -> int:
        return len(text)

    texts = (chr(97 + number) * LARGE for number in range(count))
    return list(await asyncio.gather(*(turn.step(size, text) for text in texts)))


async def edits(turn: Turn, count: int) -> list[int]:
    @step
    async def note(number: int) -> int:
        io.docs.update(Notes, lambda notes: [*notes[-1:], chr(97 + number) * LARGE])
        await io.files.write(f"/{number}", chr(97 + number) * LARGE)
        return number

    await asyncio.gather(*(turn.step(note, number) for number in range(count)))
    files = [len(await turn.files.read(f"/{number}")) for number in range(count)]
    notes: list[str] = turn.docs.get(Notes)
    return [*files, *(len(text) for text in notes)]


@pytest.mark.parametrize("handler", [results, inputs, edits])
async def test_no_batch_carries_much_more_than_the_limit(url: str, handler: Any, tmp_path: Path) -> None:
    weights: list[int] = []
    journal = journal_on(url, weights)

    @journal.agent(docs=[Notes], workspace=VirtualWorkspace())
    async def work(turn: Turn, count: int) -> list[int]:
        return list(await handler(turn, count))

    async with journal:
        sizes = await work.run(20, run_id="r", timeout=60)
        assert sizes == [LARGE] * (22 if handler is edits else 20)
        assert sum(weights) >= 20 * LARGE
        most = LIMIT + 3 * LARGE  # one value more; of edits a call's result, document and file
        assert max(weights) <= most
        path = tmp_path / "run.jsonl"
        await journal.export("r", path)
    assert str(await replay(work, await read_file(path))).startswith("ended as recorded")


async def test_killed_between_blobs_and_what_refers_to_them() -> None:
    effects = Effects()
    journal = Journal()

    @tool(replay="never")
    async def pay(number: int) -> str:
        effects.add(f"paid {number}")
        return chr(97 + number) * LARGE

    @journal.agent
    async def work(turn: Turn, count: int) -> list[str]:
        paid = await asyncio.gather(*(turn.tool(pay, number) for number in range(count)))
        return [result.status for result in paid]

    report = await asyncio.to_thread(crash_everywhere, work, 6, effects=effects)
    outcomes = [open_record(record) for record in report.crashes[-1].log]
    assert sum(isinstance(body, CallOutcome) for body in outcomes) == 6
