"""Any sequence of offers, claims and clock steps: memory, SQLite and the model answer alike."""

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import example, given, note, settings
from hypothesis import strategies as st

from journal.core.clock import ManualClock
from journal.worlds import open_world
from journal.worlds.sqlite import door
from tests.contract.driver import Driver

AGENTS, TURNS = ("a", "b"), ("t0", "t1", "t2", "t3")
run = st.sampled_from(["r0", "r0", "r1", "r2"])
head = st.sampled_from([None, None, None, None, 0, 0, -1, 1])
index = st.sampled_from([0, 0, 0, 0, 0, 1, 1, 2, 3, 8])
"""Counted back from the newest: holders that hold are worth more than zombies, and both are wanted."""
digest = st.sampled_from([b"one", b"one", b"one", b"one", b"two"])
delay = st.sampled_from([None, None, None, 0.0, 5.0, 400.0])

SUBMIT = st.tuples(
    st.just("submit"), run, st.sampled_from(TURNS), digest, st.integers(-1, 1), delay, head,
    st.sampled_from(AGENTS), st.sampled_from([1, 1, 1, 2]),
)  # fmt: skip
SIGNAL = st.tuples(st.just("signal"), run, st.integers(0, 5), digest, head)
CLAIM = st.tuples(
    st.just("claim"), st.integers(1, 3), st.sampled_from([None, None, None, None, {"a"}, {"b"}, set()]),
    st.sampled_from([1, 2, 2, 2]), st.sampled_from([None, None, None, "r0", "r1"]), st.sampled_from([20.0, 1000.0]),
)  # fmt: skip
HOLD = st.tuples(
    st.just("hold"), index,
    st.sampled_from(
        ["outcome", "progress", "drain", "park", "succeeded", "failed", "cancelled", "block", "release"]
    ),
    st.integers(0, 2), delay, head, st.sampled_from(["last", "last", "last", "none", "first", "unknown"]),
)  # fmt: skip
OTHERS = (
    st.tuples(st.just("again"), index),
    st.tuples(st.just("retry"), run, st.integers(0, 20)),
    st.tuples(st.just("close"), run),
    st.tuples(st.just("move"), run, st.sampled_from([0, 0, 0, -1, 1])),
    st.tuples(st.just("advance"), st.sampled_from([1.0, 6.0, 21.0, 450.0])),
    st.tuples(st.just("advance"), st.sampled_from([21.0, 2500.0])),
    st.tuples(st.just("step"), st.sampled_from([-3600.5, 3600.5])),
    st.tuples(st.just("renew"), st.lists(index, max_size=3), st.sampled_from([20.0, 1000.0])),
    st.tuples(st.just("publish"), index, st.integers(1, 3)),
    st.tuples(st.just("sweep")),
)
OPERATIONS = st.one_of(*[SUBMIT] * 3, *[SIGNAL] * 3, *[CLAIM] * 6, *[HOLD] * 10, *OTHERS)
OPENING: list[tuple[object, ...]] = [
    ("submit", "r0", "t0", b"one", 0, None, None, "a", 1),
    ("submit", "r1", "t0", b"one", 1, None, None, "b", 2),
    ("claim", 1, None, 2, "r1", 1000.0),
    ("claim", 1, None, 2, "r0", 20.0),
    ("submit", "r2", "t0", b"one", 0, None, None, "a", 1),
]
"""Two runs that are held and one that is ready: from there on, something happens."""


async def _drive(operations: list[tuple[object, ...]]) -> None:
    clock = ManualClock()
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(door, "SEGMENT_RECORDS", 5):
        async with AsyncExitStack() as stack:
            urls = ("memory:", f"sqlite:{Path(folder) / 'journal.db'}")
            worlds = [await stack.enter_async_context(open_world(url, clock=clock)) for url in urls]
            driver = Driver(worlds, clock)
            for operation in (*OPENING, *operations):
                note(str(operation))
                await driver.do(operation)
            await driver.check_all()


FOUND: list[list[tuple[object, ...]]] = [
    # An id that a sweep gave back stays free, though the clock is stepped back before its tombstone's end.
    [
        ("close", "r0"), ("advance", 2500.0), ("sweep",), ("signal", "r0", 0, b"one", None), ("advance", 2500.0),
        ("step", -3600.5), ("signal", "r0", 0, b"one", None), ("submit", "r0", "t1", b"one", 0, None, None, "a", 1),
    ],
    # A turn submitted while the run is held without a turn: what the listing says.
    [
        ("signal", "r0", 0, b"one", None), ("hold", 0, "failed", 0, None, None, "last"),
        ("claim", 2, None, 1, None, 1000.0), ("submit", "r0", "t1", b"one", 1, None, None, "b", 1),
    ],
]  # fmt: skip
"""What broke once."""


@example(FOUND[0])
@example(FOUND[1])
@given(st.lists(OPERATIONS, min_size=10, max_size=50))
def test_worlds_and_model_agree(operations: list[tuple[object, ...]]) -> None:
    asyncio.run(_drive(operations))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(max_examples=2000)
@given(st.lists(OPERATIONS, min_size=20, max_size=120))
def test_worlds_and_model_agree_for_long(operations: list[tuple[object, ...]]) -> None:
    asyncio.run(_drive(operations))
