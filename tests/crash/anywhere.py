"""Lives that end at any moment: where, in which stores, and how many of them Hypothesis makes."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from journal.testing.mortal import Watch
from journal.testing.points import Point
from journal.worlds.memory import forget, open_memory
from journal.worlds.opening import Opener
from journal.worlds.sqlite import open_sqlite

_names = count(1)


class Anywhere(Watch):
    """Dies some passes of the loop after it has come past so many points."""

    def __init__(self, points: int, passes: int) -> None:
        super().__init__()
        self._left = points
        self._passes = passes

    def reach(self, points: list[Point]) -> bool:
        super().reach(points)
        for _ in points:
            self._left -= 1
            if self._left == 0:
                self._count_down(self._passes)
        return False

    def _count_down(self, passes: int) -> None:
        if passes:
            asyncio.get_running_loop().call_soon(self._count_down, passes - 1)
        else:
            asyncio.get_running_loop().call_soon(self.die)


kills = st.lists(st.tuples(st.integers(1, 20), st.integers(0, 12)), min_size=1, max_size=3)

at_work = kills | st.lists(
    st.tuples(st.integers(1, 20), st.sampled_from([3, 30, 300, 3000]))
    | st.tuples(st.just(0), st.integers(1, 400)),
    min_size=1,
    max_size=3,
)
"""Of those who have threads at work on files, too: many passes later, or (0) just before such an operation on files."""


@contextmanager
def memory() -> Iterator[tuple[Opener, str]]:
    name = f"property-{next(_names)}"
    yield open_memory, f"memory:{name}"
    forget(name)


@contextmanager
def sqlite() -> Iterator[tuple[Opener, str]]:
    """Its worlds are let go as the interpreter would: those of a dead life are never closed."""
    worlds: list[Any] = []

    @asynccontextmanager
    async def opened(url: str, **options: Any) -> AsyncIterator[Any]:
        async with open_sqlite(url, **options) as world:
            worlds.append(world)
            yield world

    with TemporaryDirectory() as folder, ExitStack() as stack:
        stack.callback(lambda: [world._finalizer() for world in worlds])
        yield opened, f"sqlite:{Path(folder) / 'journal.db'}"


def normal(share: int, *, is_search: bool = False) -> settings:
    """So many examples: the same ones each time, or in a search others."""
    return settings(
        max_examples=share,
        derandomize=not is_search,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def share(examples: int, *, is_search: bool = False) -> settings:
    """So many examples on one store, which all of them share."""
    health = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
    return settings(normal(examples, is_search=is_search), suppress_health_check=health)
