"""A turn is cancelled, and its worker killed in the middle of the clean-up: another one carries the clean-up on."""

from pathlib import Path
from typing import cast

import anyio
import pytest

from journal import Journal
from journal.core.codec import open_record
from journal.core.records import CallIntent
from tests.crash.stage import Stage
from tests.crash.test_matrix import NEVER, SAFE

pytestmark = pytest.mark.anyio

KILLS = [("refund", step) for step in NEVER if step != "queue_settled"] + [
    ("look", step) for step in ("act_started", "outcome_durable")
]


@pytest.mark.parametrize(("call", "step"), KILLS)
async def test_killed_while_it_cleans_up(tmp_path: Path, call: str, step: str) -> None:
    stage = Stage(tmp_path)
    async with Journal(stage.url) as journal:
        await journal.submit("rental", "o0", run_id="r0")
        worker = stage.start("work", at=f"{step}:{call}:kill", freeze="ask:hang")
        with anyio.fail_after(60):
            while not stage.effects()["frozen"]:
                await anyio.sleep(0.02)
            await journal.cancel("r0")
            assert await anyio.to_thread.run_sync(worker.wait) == -9
    assert stage.finish() == 0
    times, status = (NEVER if call == "refund" else SAFE)[step]
    effects = stage.effects()
    assert effects[f"{call} o0"] == times
    assert effects["note o0"] == 1
    assert effects["ask o0"] == 0, "it was cancelled, and is not sent again"
    assert (await stage.finished("r0")).status == "cancelled"
    outcomes = await stage.outcomes("r0")
    assert outcomes == {"ask#1": "cancelled", "refund#1": "ok", "look#1": "ok", "note#1": "ok"} | {
        f"{call}#1": status
    }
    intents = {r.key: b for r in await stage.log("r0") if isinstance(b := open_record(r), CallIntent)}
    assert b"cancelled, " in cast("bytes", intents["note#1"].input)
