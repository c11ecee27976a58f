"""A conversation that is forked, or retried from one of its calls: what is asked then builds on what the log has."""

from typing import Any

import pytest

from journal import Journal, Turn
from journal.core import values
from journal.core.codec import open_record
from journal.core.records import CallIntent
from journal.replay.inputs import Inputs, Whole, blobs_of

pytestmark = pytest.mark.anyio


class Talk:
    """Asks four times; what it asked is kept, and it may fail at the end."""

    def __init__(self, url: str, size: int) -> None:
        self.sent: list[bytes] = []
        self.word = "again "
        self.fails = False
        self.size = size
        self.journal = Journal(url)
        self.agent = self.journal.agent(self._work, name="talk")

    async def ask(self, messages: list[dict[str, str]]) -> str:
        self.sent.append(values.encode({"messages": messages}))
        return f"reply {len(messages)} " + self.word * 100

    async def _work(self, turn: Turn, _: Any) -> int:
        messages = [{"content": "x" * self.size, "role": "system"}]
        for number in range(4):
            messages.append({"content": f"question {number} " + "why " * 100, "role": "user"})
            messages.append({"content": await turn.model(self.ask, messages), "role": "assistant"})
        if self.fails:
            raise ValueError("as it was told to")
        return len(messages)

    async def intents(self, run: str) -> list[tuple[str, CallIntent, bytes]]:
        """Key, intent and whole input of each model call, in the order of the log."""
        world = (await self.journal.runtime()).world
        inputs, found = Inputs(), []
        for record in await self.journal.read(run):
            body = open_record(record)
            inputs.add(record, body)
            if isinstance(body, CallIntent):
                latest = inputs.of(record.turn, record.key or "")
                assert latest is not None
                blobs = {ref.blob: await world.get_blob(run, ref.blob) for ref in blobs_of(latest)}
                found.append((record.key or "", body, Whole(blobs).of(latest)))
        return found


@pytest.fixture(params=[2_000, 100_000], ids=["inline", "in a blob"])
def talk(request: pytest.FixtureRequest, url: str) -> Talk:
    return Talk(url, request.param)


async def test_a_fork_has_the_inputs_of_its_origin_and_builds_on_them(talk: Talk) -> None:
    async with talk.journal as journal:
        await talk.agent.run(None, run_id="r")
        talk.word = "otherwise "
        handle = await journal.fork("r", at=3)
        await talk.agent.run(None, run_id=handle.run_id)
        found = await talk.intents(handle.run_id)
    assert [key for key, _, _ in found] == ["ask#1", "ask#2", "ask#3", "ask#4"]
    first, again = talk.sent[:4], talk.sent[4:]
    assert [data for _, _, data in found] == [*first[:2], *again]
    differences = [intent.difference for _, intent, _ in found]
    assert [said and said.base for said in differences] == [None, "ask#1", "ask#2", "ask#3"]


async def test_a_retry_from_a_call_builds_on_what_it_sets_aside(talk: Talk) -> None:
    talk.fails = True
    async with talk.journal as journal:
        with pytest.raises(Exception, match="as it was told to"):
            await talk.agent.run(None, run_id="r")
        talk.fails, talk.word = False, "otherwise "
        handle = await journal.retry("r", from_call=3)
        assert await handle.settle(10, serve=True) == 9
        found = await talk.intents("r")
    assert [key for key, _, _ in found] == ["ask#1", "ask#2", "ask#3", "ask#4", "ask#3", "ask#4"]
    assert [data for _, _, data in found] == talk.sent
    _, intent, _ = found[4]
    assert intent.difference is not None
    assert intent.difference.base == "ask#4"
