"""The Redis world on a cluster keeps every promise of the ports."""

from collections.abc import AsyncIterator

import pytest

from journal.worlds.contract import ContractHarness, WorldContract
from tests.contract.harnesses import redis_harness


@pytest.mark.anyio
class TestCluster(WorldContract):
    @pytest.fixture
    async def harness(self, cluster_server: str) -> AsyncIterator[ContractHarness]:
        async with redis_harness(cluster_server) as harness:
            yield harness
