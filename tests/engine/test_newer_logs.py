"""FAULTS 24 in the engine: a log that this version cannot read is left to those that can, and nothing is written."""

from pathlib import Path

import pytest

from journal import Journal, Turn
from journal.core.ids import new_batch_id
from journal.core.ports import Batch, Keyed, Wake
from journal.worlds.contract.harness import raw
from tests.core.hand_msgpack import pack

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}" if request.param == "memory" else f"sqlite:{tmp_path / 'j.db'}"


@pytest.mark.parametrize(
    ("kind", "says"),
    [("call.teleported", {"v": 1}), ("call.outcome", {"v": 99, "status": "later"})],
    ids=["an unknown type", "a later version"],
)
async def test_what_this_version_cannot_read_is_left_to_newer_workers(
    url: str, kind: str, says: dict[str, object]
) -> None:
    journal = Journal(url)
    ran: list[str] = []

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        ran.append(turn.run_id)
        return "done"

    async with journal:
        await work.submit(None, run_id="r")
        world = (await journal.runtime()).world
        record = raw("r", pack(says), kind=kind, turn="start", key="later#1")
        await world.append(Batch("r", new_batch_id(), Keyed("newer", b"digest"), (record,), queue=Wake()))
        before = await journal.read("r")
        for _ in range(3):
            await journal.worker().run(until_idle=True)
        assert await journal.read("r") == before, "neither started nor blocked"
        assert (await journal.get("r")).status == "pending"
        assert await work.run(None, run_id="other") == "done", "others go on"
    assert ran == ["other"]
