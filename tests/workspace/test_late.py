"""An outcome that changes files, alone on its way to the store: cancelled there, overtaken there, or never answered."""

import asyncio
from typing import Any, Literal

import pytest

from journal import Journal, Turn, TurnFailed, VirtualWorkspace, io
from journal.core.codec import open_record
from journal.core.ports import Answer, Batch, Unknown
from journal.core.records import CallOutcome
from journal.worlds.memory import MemoryWorld

pytestmark = pytest.mark.anyio
Trouble = Literal["cancelled", "overtaken", "unanswered", "all of it"]


class Again(RuntimeError):
    """Ends the first attempt."""


async def write(text: str) -> str:
    await io.files.write("/a", text)
    await io.files.write(f"/{text}", text)
    return text


@pytest.mark.parametrize("trouble", ["cancelled", "overtaken", "unanswered", "all of it"])
async def test_an_edit_that_is_alone_on_its_way(
    trouble: Trouble, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    has_all = trouble == "all of it"
    plain, journal = MemoryWorld.append, Journal(f"memory:{tmp_path.name}")
    is_on, offers = False, list[Answer]()

    async def troubled(world: MemoryWorld, batch: Batch) -> Answer:
        nonlocal is_on
        if not is_on or not any(record.type == "call.outcome" for record in batch.records):
            return await plain(world, batch)
        if not offers and (trouble == "overtaken" or has_all):
            is_on = False
            await journal.files.write("r", "/a", "the application's")
            is_on = True
        answer = await plain(world, batch)
        offers.append(answer)
        if trouble == "cancelled" or has_all:
            await asyncio.sleep(0.3)
        if len(offers) == 2 - (not has_all and trouble == "unanswered") and (
            trouble == "unanswered" or has_all
        ):
            return Unknown("the answer was lost")
        return answer

    monkeypatch.setattr(MemoryWorld, "append", troubled)
    said: list[str] = []

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> None:
        nonlocal is_on
        await turn.step(write, "first")
        is_on = turn.attempt == 1
        try:
            said.append(await asyncio.wait_for(turn.step(write, "second"), 0.1 if is_on else 5))
        except TimeoutError:
            said.append("out of time")
        is_on = False
        said.append(await turn.files.read_text("/a"))
        if turn.attempt == 1:
            raise Again

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        await (await journal.retry("r")).settle(30, serve=True)
        log = [open_record(record) for record in await journal.read("r")]
        left = {path: await journal.files.read("r", path) for path in await journal.files.glob("r")}
    is_late, is_overtaken = trouble == "cancelled" or has_all, trouble == "overtaken" or has_all
    in_a = "the application's" if is_overtaken else "second"
    assert said == ["out of time" if is_late else "second", in_a] * 2
    assert left == {"/a": in_a.encode(), "/first": b"first", "/second": b"second"}
    changed = [body.files for body in log if isinstance(body, CallOutcome) and body.files]
    assert [len(files) for files in changed] == [2, 2], "each is there once"
    assert [change.path for change in changed[1] if change.rejected] == (["/a"] if is_overtaken else [])
    assert len(offers) > 1, "it was offered again"
