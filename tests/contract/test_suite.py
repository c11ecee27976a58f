"""The contract suite judges: it finds what is broken, and nothing where nothing is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from journal.core.ports import RunQuery
from journal.worlds import open_world
from journal.worlds.contract import cases, check_world
from journal.worlds.contract.check import NamespaceHarness, namespaces_of
from journal.worlds.contract.harness import begin
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


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["by Ctrl-C", "by its time limit"])
async def test_a_suite_that_is_interrupted_while_it_clears_has_cleared(tmp_path: Path, how: str) -> None:
    url = f"sqlite:{tmp_path / 'journal.db'}"
    is_clearing = anyio.Event()
    harnesses: list[NamespaceHarness] = []
    scope = anyio.CancelScope()

    async def check() -> None:
        with scope:
            async with namespaces_of(url, is_persistent=True) as harness:
                async with harness.open() as world:
                    await begin(world, "r")
                harnesses.append(harness)
                clear = harness.clear

                async def slow() -> None:
                    is_clearing.set()
                    await anyio.sleep(0.01)
                    await clear()

                harness.clear = slow  # type: ignore[method-assign]

    checking = asyncio.create_task(check())
    await is_clearing.wait()
    if how == "by Ctrl-C":
        checking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await checking
    else:
        scope.cancel()
        await checking
    for name in harnesses[0].opened:
        async with open_world(url, namespace=name) as world:
            assert await world.runs(RunQuery()) == []
