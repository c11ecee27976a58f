"""A fresh store of each kind, by URL."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.contract.harnesses import postgres_harness, redis_harness, sqlite_harness

Stores = Callable[[str], Awaitable[str]]


@pytest.fixture
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    """`await stores("postgres")`: the URL of an empty store."""
    async with AsyncExitStack() as stack:

        async def fresh(kind: str) -> str:
            match kind:
                case "sqlite":
                    harness = sqlite_harness(tmp_path)
                case "postgres":
                    harness = postgres_harness(request.getfixturevalue("postgres_server"))
                case "pooled":
                    harness = postgres_harness(request.getfixturevalue("postgres_server"))
                    url = (await stack.enter_async_context(harness)).url
                    return f"{url}&pooler=transaction"
                case _:
                    harness = redis_harness(request.getfixturevalue(f"{kind}_server"))
            return (await stack.enter_async_context(harness)).url

        yield fresh
