"""One life of a worker inside this process: an event loop of its own on a thread of its own, that can be killed.

The kill is abandonment, and equals a real one: once `die` was called, no callback of that loop runs any more, so
nothing after the point happens: no `finally`, no `except`, no other task. Threads that sync functions run on cannot be
stopped; they are waited for, and what they return is not heard, as if the process had died just behind them.
Connections that the handler opened stay open. Where that matters, kill processes: `process.py`.
"""

import asyncio
import atexit
import copy
import ctypes
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import Any

import msgspec

from journal.core.clock import Clock, SystemClock
from journal.core.errors import TurnError
from journal.core.ports import World
from journal.core.records import Record
from journal.engine.agent import Agent
from journal.engine.journal import Journal
from journal.testing.mortal import MortalWorld, Watch
from journal.testing.threads import workers_of
from journal.worlds.opening import Opener

LEASE_SECONDS = 9.0
RUN = "crash"
"""Id of the run that lives in this process work on, in a store of its own for each kill."""
_THREAD_SECONDS = 10.0

_graves: list[object] = []
"""What went on in lives that were killed. Dropping it would close their coroutines, which runs `finally` blocks."""
atexit.register(lambda: ctypes.pythonapi.Py_IncRef(ctypes.py_object(_graves)))


class LaterClock(SystemClock):
    """The clocks of this host, some seconds on: a life that follows a dead one finds its lease run out."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def time(self) -> float:
        return super().time() + self.seconds

    def boottime(self) -> float:
        return super().boottime() + self.seconds


class Life(msgspec.Struct, kw_only=True):
    """What one life left."""

    found: list[Record]
    """The log as it found it."""
    log: list[Record] = []
    """The log as it left it, unless it was killed."""
    failure: BaseException | None = None
    """What `Agent.run` raised, if it did; `TurnFailed` too."""
    is_killed: bool = False


def copy_agent(agent: Agent[Any, Any], **changes: Any) -> Agent[Any, Any]:
    """The same agent in a journal like its own, but for `changes` of the journal's attributes; with it all others."""
    journal = copy.copy(agent.journal)
    vars(journal).update(changes, requires=frozenset(), lease_seconds=LEASE_SECONDS, _runtimes={})
    journal.agents = {name: copy.copy(other) for name, other in agent.journal.agents.items()}
    for other in journal.agents.values():
        other.journal = journal
    return journal.agents[agent.name]


def mortal(opener: Opener, url: str, journal: Journal, watch: Watch, clock: Clock) -> Callable[[], Any]:
    """Opens the store for `journal`, under `watch`."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[World]:
        async with opener(url, namespace=journal.namespace, clock=clock) as world:
            yield MortalWorld(world, watch)

    return opened


async def live(agent: Agent[Any, Any], given: Any, run: str, watch: Watch, seconds: float) -> Life:
    """Work on `given` until the turn ends here, as a process does that is started, or started again."""
    journal = agent.journal
    runtime = await journal.runtime()
    runtime.on_act = watch.on_act
    watch.bury = runtime.abandon
    try:
        life = Life(found=await read_all(runtime.world, run))
        try:
            await agent.run(given, run_id=run, timeout=seconds)
        except TurnError as error:
            life.failure = error
        life.log = await read_all(runtime.world, run)
    except Exception:
        await journal.aclose()
        raise
    await journal.aclose()
    return life


async def read_all(world: World, run: str) -> list[Record]:
    """The whole log of the run; empty if there is none yet."""
    records: list[Record] = []
    if await world.run(run) is not None:
        while page := await world.read(run, after=len(records)):
            records += page
    return records


def live_here(
    agent: Agent[Any, Any],
    given: Any,
    opener: Opener,
    url: str,
    watch: Watch,
    clock: LaterClock,
    *,
    seconds: float,
) -> Life:
    """A life in this process; returns when it has ended, in whichever way."""
    mortal_agent = copy_agent(agent, clock=clock)
    mortal_agent.journal.url = mortal(opener, url, mortal_agent.journal, watch, clock)
    life = _on_thread(lambda: live(mortal_agent, given, RUN, watch, seconds), watch)
    if life is None:
        clock.seconds += LEASE_SECONDS + 1
        return Life(found=[], is_killed=True)
    return life


def kill(loop: asyncio.AbstractEventLoop) -> None:
    """Let `loop`, which is running this, run nothing any more."""
    for handle in vars(loop)["_ready"]:
        # A task that has not begun yet, and that nobody else holds.
        _graves.append(handle._callback)  # noqa: SLF001 - nothing public shows it
        handle.cancel()
    loop.stop()


def _on_thread(main: Callable[[], Coroutine[Any, Any, Life]], watch: Watch) -> Life | None:
    """Run `main` in a loop of its own on a thread of its own. None: it was killed."""
    loop = asyncio.new_event_loop()
    executor = ThreadPoolExecutor()
    loop.set_default_executor(executor)
    watch.kill = lambda: kill(loop)
    task: asyncio.Task[Life] | None = None

    def run() -> None:
        nonlocal task
        asyncio.set_event_loop(loop)
        task = loop.create_task(main())
        task.add_done_callback(lambda _: loop.stop())
        loop.run_forever()
        if not watch.is_dead:
            watch.is_over = True
            loop.run_until_complete(loop.shutdown_asyncgens())

    context = copy_context()
    thread = threading.Thread(target=context.run, args=(run,), name="journal-life")
    thread.start()
    thread.join()
    assert task is not None
    if watch.is_dead:
        watch.bury()
        _graves.append(asyncio.all_tasks(loop))
        loop.set_exception_handler(lambda *_: None)
    _end_threads(loop, executor)
    loop.close()
    return None if watch.is_dead else task.result()


def _end_threads(loop: asyncio.AbstractEventLoop, executor: ThreadPoolExecutor) -> None:
    executor.shutdown(wait=True, cancel_futures=True)
    for thread in list(workers_of(loop)):
        thread.stop()
        thread.join(_THREAD_SECONDS)
        if thread.is_alive():
            raise RuntimeError(
                f"a sync function went on for {_THREAD_SECONDS:g} s after the kill: give crash_everywhere the agent "
                'by name ("module:agent"), so that it kills real processes'
            )
