"""The Redis world keeps every promise of the ports on Redis 7 too, where there is one."""

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis

from journal.testing import servers
from journal.worlds.contract import ContractHarness, WorldContract
from tests.contract.harnesses import redis_harness


def find_program() -> Path | str:
    """`$JOURNAL_TEST_REDIS_PROGRAM`, or the `redis-server` on the PATH if that is of version 7; else what is wrong."""
    if given := os.environ.get("JOURNAL_TEST_REDIS_PROGRAM"):
        return Path(given)
    found = shutil.which("redis-server")
    if found is None:
        return "there is no redis-server"
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return Path(found) if said.startswith("Redis server v=7.") else f"{found} is another one ({said})"


PROGRAM = find_program()
if isinstance(PROGRAM, str):
    pytest.skip(
        f"{PROGRAM}: install Redis 7 (apt install redis-server), or name it in $JOURNAL_TEST_REDIS_PROGRAM",
        allow_module_level=True,
    )


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """URL of one of our own, as long as this process lives."""
    assert isinstance(PROGRAM, Path)
    with servers.start_valkey(binary=PROGRAM) as server:
        yield servers.redis_url(server)


@pytest.mark.anyio
class TestRedis7(WorldContract):
    @pytest.fixture
    async def harness(self, server: str) -> AsyncIterator[ContractHarness]:
        async with redis_harness(server) as harness:
            yield harness


def test_it_is_no_valkey(server: str) -> None:
    with redis.Redis.from_url(server) as client:
        assert "valkey_version" not in client.info("server")
