"""LangGraph's own judge of checkpointers finds nothing to complain of, on any store."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate

from journal import Journal
from journal.adapters.langgraph import JournalSaver

pytestmark = pytest.mark.anyio
CAPABILITIES = {
    "put",
    "put_writes",
    "get_tuple",
    "list",
    "delete_thread",
    "delete_for_runs",
    "copy_thread",
    "prune",
}


async def check(url: str) -> None:
    async def fresh() -> AsyncGenerator[BaseCheckpointSaver[Any], None]:
        async with Journal(url) as journal:
            yield JournalSaver(journal)

    report = await validate(checkpointer_test(name=url)(fresh))
    failures = {name: result.failures for name, result in report.results.items() if result.failures}
    assert not failures
    assert {name for name, result in report.results.items() if result.passed} == CAPABILITIES
    assert sum(result.tests_passed for result in report.results.values()) >= 81


async def test_in_memory() -> None:
    await check("memory:")


async def test_on_sqlite(tmp_path: Path) -> None:
    await check(f"sqlite:{tmp_path / 'j.db'}")


async def test_on_postgres(postgres_server: str) -> None:
    await check(postgres_server)


async def test_on_valkey(redis_server: str) -> None:
    await check(redis_server)
