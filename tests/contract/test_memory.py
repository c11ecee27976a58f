"""The memory world keeps every promise of the ports."""

from collections.abc import AsyncIterator

import pytest

from journal.worlds.contract import ContractHarness, WorldContract
from tests.contract.harnesses import memory_harness


@pytest.mark.anyio
class TestMemory(WorldContract):
    @pytest.fixture
    async def harness(self) -> AsyncIterator[ContractHarness]:
        async with memory_harness() as harness:
            yield harness
