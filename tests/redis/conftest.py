"""A server of its own for the tests that kill it, starve it or configure it otherwise."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from journal.testing import servers
from journal.testing.servers import Server


@pytest.fixture
def server() -> Iterator[Server]:
    """A Valkey for one test."""
    with servers.start_valkey() as server:
        yield server


@pytest.fixture
def url(redis_server: str) -> str:
    """A store of its own on the server that all tests share."""
    return f"{redis_server}?prefix=test-{uuid4().hex[:12]}"
