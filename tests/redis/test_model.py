"""Any sequence of offers and claims: this world and the model answer alike. Its clock cannot be stepped."""

import asyncio
from uuid import uuid4

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from journal.core.clock import ManualClock
from journal.worlds import open_world
from journal.worlds.redis import drop_prefix
from tests.contract.driver import Driver
from tests.contract.test_model import OPENING, OPERATIONS

STEPLESS = OPERATIONS.filter(lambda operation: operation[0] != "step")


async def _drive(server: str, operations: list[tuple[object, ...]]) -> None:
    clock = ManualClock()
    url = f"{server}?prefix=test-{uuid4().hex[:12]}&partitions=4"
    try:
        async with open_world(url, clock=clock) as world:
            driver = Driver([world], clock)
            for operation in (*OPENING, *operations):
                note(str(operation))
                await driver.do(operation)
            await driver.check_all()
    finally:
        await drop_prefix(url)


@settings(max_examples=40)
@given(operations=st.lists(STEPLESS, min_size=10, max_size=50))
def test_world_and_model_agree(redis_server: str, operations: list[tuple[object, ...]]) -> None:
    asyncio.run(_drive(redis_server, operations))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(max_examples=1000)
@given(operations=st.lists(STEPLESS, min_size=20, max_size=120))
def test_world_and_model_agree_for_long(redis_server: str, operations: list[tuple[object, ...]]) -> None:
    asyncio.run(_drive(redis_server, operations))
