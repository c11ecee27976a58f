"""The Redis world keeps every promise of the ports."""

from collections.abc import AsyncIterator

import pytest

from journal.worlds.contract import ContractHarness, WorldContract
from tests.contract.harnesses import redis_harness


@pytest.mark.anyio
class TestRedis(WorldContract):
    @pytest.fixture
    async def harness(self, redis_server: str) -> AsyncIterator[ContractHarness]:
        async with redis_harness(redis_server) as harness:
            yield harness
