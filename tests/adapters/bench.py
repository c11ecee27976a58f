"""What the tests of the OpenAI Agents adapter share: attempts at one turn, some of which are lost in the middle."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest
from agents import set_tracing_disabled
from agents.items import TResponseStreamEvent
from agents.testing import ScriptedModel

from journal import Journal, Turn
from journal.core.codec import open_record
from journal.core.records import CallIntent, CallOutcome, Policy
from journal.engine.agent import Agent
from journal.engine.offline import replay
from journal.engine.reading import read_run
from journal.replay.verdict import Replay

set_tracing_disabled(True)

Handler = Callable[[Turn, str], Awaitable[Any]]


class Logged(msgspec.Struct):
    """One call as the log has it."""

    intents: list[CallIntent]
    outcome: CallOutcome | None = None

    @property
    def status(self) -> str:
        return "in doubt" if self.outcome is None else self.outcome.status

    @property
    def value(self) -> Any:
        assert self.outcome is not None
        assert isinstance(self.outcome.value, bytes)
        return msgspec.json.decode(self.outcome.value)


class CountingModel(ScriptedModel):
    """Notes how often it was really asked; what it was asked stays in `calls`."""

    @property
    def asked(self) -> int:
        return len(self.calls)


class Bench:
    """One turn of one run, tried again and again."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.ran: list[str] = []
        self.is_losing = False
        self.inside = asyncio.Event()

    async def effect(self, name: str, *, hang: bool = False) -> None:
        """Something that counts. With `hang` it does not end in an attempt that is to be lost."""
        self.ran.append(name)
        if hang and self.is_losing:
            await self.hang()

    async def hang(self) -> NoReturn:
        """The point at which the process is lost."""
        self.inside.set()
        await asyncio.Event().wait()
        raise AssertionError("it goes on")

    async def after(self, *keys: str) -> None:
        """In an attempt that is to be lost: come back once these calls, which run beside, are recorded as ok.

        What is unfinished when the process goes may or may not have happened, and no test can count on either.
        """
        async with asyncio.timeout(60):
            while self.is_losing and any(status != "ok" for status in await self._statuses(keys)):
                await asyncio.sleep(0.01)

    async def _statuses(self, keys: Collection[str]) -> list[str | None]:
        statuses = await self.statuses()
        return [statuses.get(key) for key in keys]

    def journal(
        self,
        handler: Handler,
        *,
        tools: Mapping[str, Policy] | None = None,
        by_agent: Any = None,
        model_retry: bool | None = None,
        resources: Any = None,
    ) -> tuple[Journal, Agent[str, Any]]:
        journal = Journal(self.url, tools=tools, resources=resources)
        return journal, journal.agent(name="work", tools=by_agent, model_retry=model_retry)(handler)

    async def run(self, handler: Handler, **options: Any) -> Any:
        """An attempt that is left alone."""
        journal, work = self.journal(handler, **options)
        async with journal:
            return await work.run("go", run_id="r")

    async def lose(self, handler: Handler, **options: Any) -> None:
        """An attempt whose process goes, as far as the log can tell, once `hang` is reached."""
        self.is_losing = True
        self.inside.clear()
        journal, work = self.journal(handler, **options)
        task = asyncio.create_task(work.run("go", run_id="r"))
        reached = asyncio.create_task(self.inside.wait())
        await asyncio.wait({task, reached}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            raise AssertionError(f"it ended before it could be lost: {task.result()}")
        await journal.aclose()
        await asyncio.wait({task})
        assert task.cancelled() or task.exception() is not None
        self.is_losing = False

    async def replayed(self, handler: Handler) -> Replay:
        """The run replayed offline, without what `resources` would give."""
        journal, work = self.journal(handler)
        async with journal.open_world() as world:
            log = await read_run(world, "r")
        return await replay(work, log)

    async def calls(self) -> dict[str, Logged]:
        """The calls of the run by key."""
        found: dict[str, Logged] = {}
        async with Journal(self.url) as journal:
            for record in await journal.read("r"):
                body = open_record(record)
                if isinstance(body, CallIntent):
                    found.setdefault(record.key or "", Logged([])).intents.append(body)
                elif isinstance(body, CallOutcome):
                    found[record.key or ""].outcome = body
        return found

    async def statuses(self) -> dict[str, str]:
        return {key: call.status for key, call in (await self.calls()).items()}


@pytest.fixture(params=["memory", "sqlite"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    url = (
        f"memory:{tmp_path.parent.name}-{tmp_path.name}"
        if request.param == "memory"
        else f"sqlite:{tmp_path / 'j.db'}"
    )
    return Bench(url)


def outputs(result: Any) -> dict[str, str]:
    """What the model was told of each tool call, by id."""
    return {
        item.raw_item["call_id"]: str(item.output)
        for item in result.new_items
        if item.type == "tool_call_output_item"
    }


async def drained(stream: AsyncIterator[Any]) -> list[str]:
    """Types of the raw events of a streamed run."""
    seen: list[str] = []
    async for event in stream:
        if event.type == "raw_response_event":
            data: TResponseStreamEvent = event.data
            seen.append(data.type)
    return seen
