"""The log of a conversation grows with what is new in it, and gives each input back as it was sent."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from journal import Journal, Turn, step, tool
from journal.core import values
from journal.core.codec import open_record
from journal.core.records import BlobRef, CallIntent, Record
from journal.replay.inputs import Inputs, Whole, blobs_of
from journal.worlds import open_world

pytestmark = pytest.mark.anyio
Messages = list[dict[str, Any]]
Handler = Callable[[Turn, Any], Awaitable[Any]]


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}" if request.param == "memory" else f"sqlite:{tmp_path / 'j.db'}"


def words(name: str, number: int, count: int = 40) -> str:
    return f"{name} {number}: " + f"{name}{number} " * count


class Model:
    """Answers, and keeps what it was asked by the digest of it."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.hang_on = 0
        self.inside = asyncio.Event()

    async def ask(self, messages: Messages) -> dict[str, Any]:
        self.sent.append(values.encode({"messages": messages}))
        if len(self.sent) == self.hang_on:
            self.inside.set()
            await asyncio.Event().wait()
        return {"role": "assistant", "content": words("reply", len(messages))}


async def run(url: str, handler: Handler, *, until: asyncio.Event | None = None) -> Any:
    """An attempt at the run `r`; with `until` it is lost at that point."""
    journal = Journal(url)
    work = journal.agent(name="work")(handler)
    async with journal:
        task = asyncio.create_task(work.run(None, run_id="r"))
        if until is None:
            return await task
        reached = asyncio.create_task(until.wait())
        await asyncio.wait({task, reached}, return_when=asyncio.FIRST_COMPLETED)
        assert not task.done()
    await asyncio.wait({task})
    return None


async def log_of(url: str) -> list[Record]:
    found: list[Record] = []
    async with open_world(url) as world:
        while page := await world.read("r", after=len(found)):
            found += page
    return found


async def inputs_of(url: str) -> list[bytes]:
    """The input of each intent of a model call, whole, in the order of the log."""
    inputs, found = Inputs(), []
    async with open_world(url) as world:
        for record in await log_of(url):
            body = open_record(record)
            inputs.add(record, body)
            if isinstance(body, CallIntent) and body.kind == "model":
                entry = inputs.of(record.turn, record.key or "")
                assert entry is not None
                blobs = {ref.blob: await world.get_blob("r", ref.blob) for ref in blobs_of(entry)}
                found.append(Whole(blobs).of(entry))
    return found


def intents(records: list[Record], kind: str = "model") -> list[CallIntent]:
    bodies = map(open_record, records)
    return [body for body in bodies if isinstance(body, CallIntent) and body.kind == kind]


def talk(model: Model, rounds: int) -> Handler:
    async def work(turn: Turn, _: Any) -> int:
        messages: Messages = [{"role": "system", "content": words("rule", 0)}]
        for number in range(rounds):
            messages.append({"role": "user", "content": words("question", number)})
            messages.append(await turn.model(model.ask, messages))
        return len(values.encode(messages))

    return work


async def test_five_hundred_model_calls_take_less_than_one_and_a_half_transcripts(tmp_path: Path) -> None:
    """Counted: all bodies of the log against the conversation as it ended."""
    url, model = f"sqlite:{tmp_path / 'j.db'}", Model()
    transcript = await run(url, talk(model, 500))
    records = await log_of(url)
    assert len(model.sent) == 500
    assert transcript > 250_000  # so that it is about the conversation, and not about envelopes
    assert sum(record.size for record in records) <= 1.5 * transcript
    assert await inputs_of(url) == model.sent


async def test_an_attempt_that_carries_on_builds_on_the_log(url: str) -> None:
    model = Model()
    model.hang_on = 20
    await run(url, talk(model, 30), until=model.inside)
    await run(url, talk(model, 30))
    found = intents(await log_of(url))
    assert [intent.number for intent in found] == [1] * 20 + [2] + [1] * 10
    in_doubt, again = found[19:21]
    assert again.difference is not None
    assert (again.difference.base, again.input) == ("ask#20", b"")  # its own first try
    assert again.input_digest == in_doubt.input_digest
    assert await inputs_of(url) == model.sent


async def test_results_of_tools_are_not_written_twice(url: str) -> None:
    model, read = Model(), [0]

    @tool(replay="safe")
    async def look(number: int) -> str:
        read[0] += 1
        return words("page", number, 400)

    async def work(turn: Turn, _: Any) -> int:
        messages: Messages = [{"role": "system", "content": words("rule", 0)}]
        for number in range(40):
            messages.append(await turn.model(model.ask, messages))
            pages = await asyncio.gather(*(turn.tool(look, 2 * number + n) for n in range(2)))
            messages += [{"role": "tool", "content": page.value} for page in reversed(pages)]
        return len(values.encode(messages))

    transcript = await run(url, work)
    assert sum(record.size for record in await log_of(url)) <= 1.3 * transcript
    assert await inputs_of(url) == model.sent


async def test_a_conversation_over_64_kib_has_one_blob_and_then_what_is_new(url: str) -> None:
    model = Model()

    async def work(turn: Turn, _: Any) -> None:
        messages: Messages = [{"role": "user", "content": words("book", 0, 20_000)}]
        for number in range(5):
            messages.append(await turn.model(model.ask, messages))
            messages.append({"role": "user", "content": words("question", number)})

    await run(url, work)
    found = intents(await log_of(url))
    assert isinstance(found[0].input, BlobRef)
    assert all(isinstance(intent.input, bytes) and len(intent.input) < 1000 for intent in found[1:])
    assert await inputs_of(url) == model.sent


async def test_scopes_do_not_build_on_one_another(url: str) -> None:
    model = Model()

    async def branch(turn: Turn, name: str) -> None:
        messages: Messages = [{"role": "system", "content": words(name, 0, 200)}]
        for _ in range(4):
            messages.append(await turn.model(model.ask, messages))

    async def work(turn: Turn, _: Any) -> None:
        await asyncio.gather(branch(turn, "left"), branch(turn, "right"))

    await run(url, work)
    records = await log_of(url)
    for record in records:
        body = open_record(record)
        if isinstance(body, CallIntent) and body.difference is not None:
            assert (record.key or "").partition("/")[0] == body.difference.base.partition("/")[0]
    assert sorted(await inputs_of(url)) == sorted(model.sent)
    assert sum(intent.difference is None for intent in intents(records)) == 2


async def test_nothing_builds_on_a_call_that_is_being_asked_anew(url: str) -> None:
    """A named call is asked again while others of its scope are asked: whichever lands first."""
    model = Model()

    async def named(turn: Turn, key: str, number: int) -> None:
        messages: Messages = [{"role": "user", "content": words("question", n)} for n in range(8 + number)]
        await turn.model(step(model.ask).options(key=key), messages)

    async def work(turn: Turn, _: Any) -> None:
        for number in range(6):
            first = asyncio.create_task(named(turn, f"k{number}", number))
            await asyncio.sleep(0)
            first.cancel()  # while its intent is on its way
            await asyncio.wait({first})
            async with asyncio.TaskGroup() as group:
                group.create_task(named(turn, f"k{number}", number))
                group.create_task(named(turn, f"other{number}", number))

    await run(url, work)
    found = await inputs_of(url)
    assert set(model.sent) <= set(found)


async def test_where_full_copies_are_cheap_there_is_one_after_64(url: str) -> None:
    """A window that moves on: what was written since outweighs it soon."""
    model = Model()

    async def work(turn: Turn, _: Any) -> None:
        messages: Messages = [{"role": "user", "content": words("question", n)} for n in range(12)]
        for number in range(70):
            await turn.model(model.ask, messages)
            messages = [*messages[1:], {"role": "user", "content": words("question", 12 + number)}]

    await run(url, work)
    whole = [place for place, intent in enumerate(intents(await log_of(url))) if intent.difference is None]
    assert whole == [0, 65]
    assert await inputs_of(url) == model.sent


async def test_steps_and_small_inputs_are_kept_as_ever(url: str) -> None:
    model = Model()

    async def work(turn: Turn, _: Any) -> None:
        for number in range(3):
            await turn.model(model.ask, [{"role": "user", "content": f"{number}"}])
            await turn.step(model.ask, [{"role": "user", "content": words("same", 0, 500)}])

    await run(url, work)
    records = await log_of(url)
    assert all(
        intent.difference is None and intent.v == 1 for intent in intents(records) + intents(records, "step")
    )
