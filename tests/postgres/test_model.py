"""Any sequence of offers and claims: Postgres, memory and the model answer alike.

The clock is not stepped here: leases are on the server's one clock.
"""

import asyncio
from contextlib import AsyncExitStack
from itertools import count

import pytest
from hypothesis import example, given, note, settings
from hypothesis import strategies as st

from journal.core.clock import ManualClock
from journal.worlds import open_world
from tests.contract.driver import Driver
from tests.contract.test_model import FOUND, OPENING, OPERATIONS

_names = count(1)


async def _drive(server: str, operations: list[tuple[object, ...]]) -> None:
    clock = ManualClock()
    namespace = f"model-{next(_names)}"
    urls = ("memory:", f"{server}?schema=journal_model&notify=off")
    async with AsyncExitStack() as stack:
        worlds = [
            await stack.enter_async_context(open_world(url, namespace=namespace, clock=clock)) for url in urls
        ]
        driver = Driver(worlds, clock)
        for operation in (*OPENING, *operations):
            if operation[0] != "step":
                note(str(operation))
                await driver.do(operation)
        await driver.check_all()


@example(FOUND[0])
@example(FOUND[1])
@settings(max_examples=30)
@given(operations=st.lists(OPERATIONS, min_size=10, max_size=50))
def test_postgres_and_model_agree(postgres_server: str, operations: list[tuple[object, ...]]) -> None:
    asyncio.run(_drive(postgres_server, operations))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(max_examples=1000)
@given(operations=st.lists(OPERATIONS, min_size=20, max_size=120))
def test_postgres_and_model_agree_for_long(
    postgres_server: str, operations: list[tuple[object, ...]]
) -> None:
    asyncio.run(_drive(postgres_server, operations))
