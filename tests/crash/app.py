"""The process under test: a worker whose world kills it, or loses an answer, at one named point.

    python -m tests.crash.app work     # a worker until nothing is due
    python -m tests.crash.app finish   # a worker until nothing is due, now or later, or held by anybody
    python -m tests.crash.app serve    # a worker until SIGTERM
    python -m tests.crash.app submit N # submit N turns of `orders` and leave; `submit N FIRST`: from that number on
    python -m tests.crash.app queue R T # submit T turns of `pay` to each of R runs, and leave
    python -m tests.crash.app ask A    # ask agent A for `o0` in run r0, and tell its answer
    python -m tests.crash.app poison   # submit a turn that kills whoever works on it, and leave

Settings come by the environment: ``CRASH_WORLD`` (store URL), ``CRASH_EFFECTS`` (a file; each effect is a line,
appended in one write, so that it is counted outside of this process), ``CRASH_AT`` (``step:call:how``),
``CRASH_FREEZE`` (``call:how``: that call, once it is under way, blocks the loop: ``sleep``, to be stopped in, or
``spin``; or waits: ``nap``, or for ever: ``hang``), ``CRASH_CLOCK`` (by how many seconds the wall clock of this
process is off), ``CRASH_PAUSE`` (how many seconds the model takes), ``CRASH_VERSION`` (of the code, as it stands in
the log).
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

from journal import Journal, Retry, Turn, step, tool
from journal.core.errors import WorldUnavailable
from journal.core.ports import Answer, Batch, Finish, Unknown
from journal.core.records import CallIntent, CallOutcome
from journal.worlds import open_world

if wrong_by := float(os.environ.get("CRASH_CLOCK", "0")):
    right = time.time
    vars(time)["time"] = lambda: right() + wrong_by

WORLD = os.environ["CRASH_WORLD"]
EFFECTS = os.environ["CRASH_EFFECTS"]
STEP, CALL, HOW = (os.environ.get("CRASH_AT") or "none::").split(":")
FREEZE, FREEZE_HOW = (os.environ.get("CRASH_FREEZE") or ":").split(":")
FREEZE_SECONDS = float(os.environ.get("CRASH_FREEZE_SECONDS", "1"))
PAUSE = float(os.environ.get("CRASH_PAUSE", "0"))
_LOOK_SECONDS = 0.3
"""Between two looks for what is left: on a server of many partitions each takes as long as a turn."""


def effect(name: str) -> None:
    fd = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{name}\n".encode())
    os.close(fd)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def point(step: str, call: str) -> None:
    """Die here, if this is the point."""
    if HOW == "kill" and (step, call) == (STEP, CALL):
        die()


async def freeze(call: str) -> None:
    """Be frozen here, if this is the call."""
    if call != FREEZE:
        return
    effect("frozen")
    end = time.monotonic() + FREEZE_SECONDS
    match FREEZE_HOW:
        case "sleep":
            time.sleep(FREEZE_SECONDS)  # long enough to be stopped in
        case "spin":
            while time.monotonic() < end:
                pass
        case "nap":
            await asyncio.sleep(FREEZE_SECONDS)
        case _:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                effect("stopped")
                raise
    effect("thawed")


class Faulty:
    """A world that forwards everything, except at the point."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._spent = False
        self._die_next = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def append(self, batch: Batch) -> Awaitable[Answer]:
        if self._die_next:
            die()
        return asyncio.ensure_future(self._append(batch))

    async def _append(self, batch: Batch) -> Answer:
        before, after = self._points(batch)
        if STEP in before and not self._spent:
            self._spent = True
            if HOW == "kill":
                die()
            return Unknown("lost on the way there")
        answer: Answer = await self._inner.append(batch)
        if STEP in after and not self._spent:
            self._spent = True
            if HOW == "kill":
                die()
            return Unknown("lost on the way back")
        if STEP == "outcome_acknowledged" and "outcome_durable" in after and HOW == "kill":
            self._die_next = True
        return answer

    def _points(self, batch: Batch) -> tuple[set[str], set[str]]:
        before: set[str] = set()
        after: set[str] = set()
        for record in batch.records:
            if (record.key or "").partition("#")[0] == CALL:
                if record.type == CallIntent.TYPE:
                    before.add("before_intent")
                    after.add("intent_durable")
                if record.type == CallOutcome.TYPE:
                    after.add("outcome_durable")
        if isinstance(batch.queue, Finish):
            before.add("turn_finishing")
            after.add("queue_settled")
        return before, after


@asynccontextmanager
async def faulty_world() -> AsyncIterator[Any]:
    async with open_world(WORLD) as world:
        yield Faulty(world)


journal = Journal(
    faulty_world,
    lease_seconds=float(os.environ.get("CRASH_LEASE", "30")),
    version=os.environ.get("CRASH_VERSION"),
)


@tool(replay="safe")
async def look(order: str) -> dict[str, Any]:
    point("act_started", "look")
    effect(f"look {order}")
    point("act_done", "look")
    return {"order": order, "amount": 5}


@tool(replay="never")
async def refund(order: str, amount: int) -> str:
    point("act_started", "refund")
    effect(f"refund {order}")
    await freeze("refund")
    point("act_done", "refund")
    return f"refunded {amount}"


async def ask(prompt: str) -> str:
    await freeze("ask")
    await asyncio.sleep(PAUSE)
    point("act_started", "ask")
    effect(f"ask {prompt}")
    point("act_done", "ask")
    return f"about {prompt}"


async def note(order: str, text: str) -> None:
    effect(f"note {order}")


@journal.agent
async def orders(turn: Turn, order: str) -> list[str]:
    said = await turn.model(ask, order)
    found = (await turn.tool(look, order)).value
    result = await turn.tool(refund, order, found["amount"])
    told = "unknown" if result.status == "unknown" else result.value
    await turn.step(note, order, told)
    return [said, told]


@journal.agent
async def rental(turn: Turn, order: str) -> None:
    """Has something to clean up; what it was cancelled over is told."""
    told = "ended"
    try:
        await turn.model(ask, order)
    except asyncio.CancelledError:
        told = "cancelled"
        raise
    finally:
        result = await turn.tool(refund, order, 5)
        found = await turn.tool(look, order)
        await turn.step(note, order, f"{told}, {result.status}, {found.status}")


@journal.agent
async def pay(turn: Turn, number: int) -> str:
    result = await turn.tool(refund, f"{turn.run_id}.{number}", 5)
    return result.status


@step(retry=Retry(tries=3, min_delay=1.0, max_delay=1.0))
async def shaky(order: str) -> str:
    effect(f"shaky {order}")
    if times_of(f"shaky {order}") < 4:
        raise ConnectionError("not yet")
    return "done"


def times_of(name: str) -> int:
    with open(EFFECTS) as lines:
        return lines.read().split("\n").count(name)


@journal.agent
async def stubborn(turn: Turn, order: str) -> str:
    return await turn.step(shaky, order)


@journal.agent
async def poison(turn: Turn, _: None) -> None:
    effect("poisoned")
    die()


async def work() -> None:
    async with journal:
        await journal.worker(concurrency=int(os.environ.get("CRASH_SLOTS", "1"))).run(until_idle=True)


async def finish() -> None:
    async with journal, journal.worker(concurrency=int(os.environ.get("CRASH_SLOTS", "1"))).running():
        effect("opened")
        while await is_anything_left():
            await asyncio.sleep(_LOOK_SECONDS)


async def is_anything_left() -> bool:
    try:
        return any(s.due or s.later or s.held for s in await journal.stats())
    except WorldUnavailable:
        return True  # cut off for longer than the store is waited for; the worker goes on asking


async def serve() -> None:
    async with journal:
        worker = journal.worker(concurrency=int(os.environ.get("CRASH_SLOTS", "1")))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        effect("serving")
        await worker.run()


async def submit(count: int, start: int = 0) -> None:
    async with journal:
        for first in range(start, start + count, 200):
            some = range(first, min(first + 200, start + count))
            await asyncio.gather(*(orders.submit(f"o{n}", run_id=f"r{n}") for n in some))


async def queue(runs: int, turns: int) -> None:
    async with journal:
        for number in range(turns):
            for first in range(0, runs, 500):
                some = range(first, min(first + 500, runs))
                await asyncio.gather(*(pay.submit(number, run_id=f"r{n}", key=f"t{number}") for n in some))


async def ask_for(agent: str) -> None:
    """As an application does, which works on what it waits for."""
    async with journal:
        effect("asked")
        asked: Any = {"orders": orders, "stubborn": stubborn}[agent]
        effect(f"told {await asked.run('o0', run_id='r0')}")


async def submit_poison() -> None:
    async with journal:
        await poison.submit(None, run_id="poisoned")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["work"]:
            asyncio.run(work())
        case ["finish"]:
            asyncio.run(finish())
        case ["serve"]:
            asyncio.run(serve())
        case ["submit", *counts]:
            asyncio.run(submit(*map(int, counts)))
        case ["queue", runs, turns]:
            asyncio.run(queue(int(runs), int(turns)))
        case ["ask", agent]:
            asyncio.run(ask_for(agent))
        case ["poison"]:
            asyncio.run(submit_poison())
