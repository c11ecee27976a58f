"""The engine: safe steps of a handler, each returned only once it is durable."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter

from benchmarks.footprint import FEW, MANY, rss_bytes
from journal import Journal, Turn

REPLY = {"text": "x" * 188}
"""About 200 bytes of JSON."""


async def no_op() -> dict[str, str]:
    """What a step of these benchmarks does."""
    return REPLY


class Engine:
    """A journal whose agents work for a while, for one step, or for a number of them."""

    def __init__(self, url: str) -> None:
        self.journal = Journal(url)
        self._count = 0

        @self.journal.agent
        async def steps_for(turn: Turn, seconds: float) -> int:
            # A clock between calls: wrong in a handler that may be replayed, and this one never is.
            count, begun = 0, perf_counter()
            while perf_counter() - begun < seconds:
                await turn.step(no_op)
                count += 1
            return count

        @self.journal.agent
        async def one_step(turn: Turn, _: None) -> None:
            await turn.step(no_op)

        @self.journal.agent
        async def growth(turn: Turn, _: None) -> int:
            for _number in range(FEW):
                await turn.step(no_op)
            before = rss_bytes()
            for _number in range(MANY - FEW):
                await turn.step(no_op)
            return rss_bytes() - before

        self._steps_for, self._one_step, self._growth = steps_for, one_step, growth

    async def rate(self, seconds: float, runs: int) -> float:
        """Steps a second, of `runs` runs at once."""
        begun = perf_counter()
        counts = await asyncio.gather(*(self._steps_for.run(seconds) for _ in range(runs)))
        return sum(counts) / (perf_counter() - begun)

    async def turn_rate(self, seconds: float, runs: int) -> float:
        """New runs a second, each of one turn of one step; so many at once."""
        count, begun = 0, perf_counter()

        async def work() -> None:
            nonlocal count
            while perf_counter() - begun < seconds:
                await self._one_step.run(None)
                count += 1

        await asyncio.gather(*(work() for _ in range(runs)))
        return count / (perf_counter() - begun)

    async def growth_bytes(self) -> int:
        """Memory that one run takes on between its 10,000th and its 100,000th step."""
        return await self._growth.run(None)


@asynccontextmanager
async def engine(url: str) -> AsyncIterator[Engine]:
    """An engine on an open store."""
    opened = Engine(url)
    async with opened.journal:
        yield opened


async def _print_growth(url: str) -> None:
    async with engine(url) as opened:
        sys.stdout.write(f"{await opened.growth_bytes()} {rss_bytes()}\n")


if __name__ == "__main__":
    asyncio.run(_print_growth(sys.argv[1]))
