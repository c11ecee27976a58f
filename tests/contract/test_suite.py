"""The contract suite judges: it finds what is broken, and nothing where nothing is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from journal.worlds.contract import cases, check_world
from tests.contract.broken import BROKEN, Bent, BrokenHarness
from tests.contract.harnesses import memory_harness


@pytest.mark.anyio
@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
async def test_a_broken_world_is_named(kind: type[Bent]) -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[BrokenHarness]:
        yield BrokenHarness(kind)

    (result,) = await check_world(broken, only=BROKEN[kind])
    assert result.status == "failed", f"{BROKEN[kind]} does not notice: {kind.__doc__}"
    assert result.promise
    assert result.detail


@pytest.mark.anyio
async def test_a_sound_world_passes_without_pytest() -> None:
    results = await check_world(memory_harness)
    assert [r for r in results if r.status == "failed"] == []
    assert [r.name for r in results if r.status == "skipped"] == [
        "test_what_is_acknowledged_outlives_the_world",
        "test_what_is_being_built_outlives_the_world",
    ]
    assert len(results) == len(cases()) > 100


def test_every_case_quotes_its_promise() -> None:
    assert [case.name for case in cases() if not case.promise] == []
