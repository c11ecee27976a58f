"""The Postgres world keeps every promise of the ports."""

from collections.abc import AsyncIterator

import pytest

from journal.worlds.contract import ContractHarness, WorldContract
from tests.contract.harnesses import postgres_harness


@pytest.mark.anyio
class TestPostgres(WorldContract):
    @pytest.fixture
    async def harness(self, postgres_server: str) -> AsyncIterator[ContractHarness]:
        async with postgres_harness(postgres_server) as harness:
            yield harness
