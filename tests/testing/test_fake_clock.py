"""Time that jumps: in order, to the next timer, and not over work that is going on elsewhere."""

import asyncio
import time

from journal import CallTimeout, Journal, Retry, Turn, step
from journal.testing import FakeClock


def test_sleeps_take_no_time_and_end_in_their_order() -> None:
    clock, woken = FakeClock(), list[tuple[str, float]]()

    async def sleep(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        woken.append((name, clock.boottime() - start))

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for name, seconds in (("day", 86400.0), ("minute", 60.0), ("hour", 3600.0)):
                group.create_task(sleep(name, seconds))

    start, wall, really = clock.boottime(), clock.time(), time.monotonic()
    clock.run(main())
    assert woken == [("minute", 60.0), ("hour", 3600.0), ("day", 86400.0)]
    assert clock.time() - wall == 86400.0
    assert time.monotonic() - really < 30


def test_retries_wait_as_long_as_they_say_and_a_timeout_comes_when_it_is_due() -> None:
    clock, at = FakeClock(), list[float]()
    journal = Journal("memory:")

    @step(retry=Retry(tries=3, min_delay=100.0, max_delay=200.0, jitter=False))
    async def shaky() -> str:
        at.append(clock.boottime() - 1000.0)
        if len(at) < 3:
            raise ConnectionError
        return "done"

    @step(timeout=3600.0)
    async def slow() -> None:
        await asyncio.sleep(3601.0)

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        said = await turn.step(shaky)
        try:
            await turn.step(slow)
        except CallTimeout as error:
            return f"{said}, then no answer for {error.seconds:g} s"
        return "no timeout"

    async def main() -> str:
        async with journal:
            return await work.run(None, run_id="r")

    assert clock.run(main()) == "done, then no answer for 3600 s"
    # 100 s, then doubled.
    assert [round(moment) for moment in at] == [0, 100, 300]
    assert clock.boottime() - 1000.0 >= 3900.0


def test_time_stands_still_while_a_sync_function_runs() -> None:
    clock, journal = FakeClock(), Journal("memory:")

    @step(timeout=10.0)
    def slow() -> str:
        time.sleep(0.2)
        return "done"

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        return await turn.step(slow)

    async def main() -> str:
        async with journal:
            return await work.run(None, run_id="r")

    assert clock.run(main()) == "done"
    assert clock.boottime() < 1010.0


def test_a_delayed_turn_is_due_when_its_time_has_come() -> None:
    clock = FakeClock()
    journal = Journal("memory:", clock=clock, lease_seconds=1e6)

    @journal.agent
    async def work(turn: Turn, _: None) -> float:
        return clock.boottime() - 1000.0

    async def main() -> float:
        async with journal:
            handle = await work.submit(None, delay=3600.0)
            async with journal.worker().running():
                return await handle.result()

    really = time.monotonic()
    assert 3600.0 <= clock.run(main()) < 3602.0
    assert time.monotonic() - really < 40, "each look of the idle worker was waited for"
