"""FAULTS 50: the cancel flag that was read in mid-turn is the same on replay, whatever was asked for since."""

import asyncio
from pathlib import Path

import pytest

from journal import Journal, Turn, TurnCancelled, TurnFailed
from journal.core.codec import open_record
from journal.core.records import CallOutcome, Observed
from journal.engine.offline import replay
from journal.engine.reading import read_run

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}" if request.param == "memory" else f"sqlite:{tmp_path / 'j.db'}"


async def test_what_was_read_before_a_cancel_is_read_again_after_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("journal.engine.cancelling.PATIENCE_SECONDS", 0.3)  # it hangs before the log ends
    journal = Journal(url)
    seen: list[tuple[str, list[bool]]] = []
    waits = asyncio.Event()

    async def quick(n: int) -> int:
        return n

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        flags: list[bool] = []
        seen.append((f"attempt {turn.attempt}", flags))
        await turn.step(quick, 1)
        try:
            if turn.attempt > 1:  # offline too, where it is cancelled as it was
                waits.set()
                await asyncio.sleep(30)
        finally:
            flags.append(turn.is_cancel_requested())
            await turn.step(quick, 2)
            if turn.attempt == 1:
                raise RuntimeError
            flags.append(turn.is_cancel_requested())
            await turn.step(quick, 3)

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        handle = await journal.retry("r")
        serving = asyncio.create_task(handle.settle(20, serve=True))
        await waits.wait()
        await handle.cancel()
        with pytest.raises(TurnCancelled):
            await serving
        assert seen == [("attempt 1", [False]), ("attempt 2", [False, True])]
        log = await read_run((await journal.runtime()).world, "r")
        observed = [body.value for body in map(open_record, log.records) if isinstance(body, Observed)]
        assert observed == [b"false", b"true"]
        outcomes = [body.status for body in map(open_record, log.records) if isinstance(body, CallOutcome)]
        assert outcomes == ["ok"] * 3, "the cancel came once, and left the steps in `finally` alone"
        found = await replay(work, log)
    assert seen[-1][1] == [False, True]
    assert found.verdict == "same"
