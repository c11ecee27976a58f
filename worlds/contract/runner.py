"""Running the cases without pytest: `journal world check`, or a script of a world's author."""

import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal
from unittest import SkipTest

import anyio
import msgspec

from journal.worlds.contract.harness import ContractHarness

CASE_SECONDS = 120.0
"""A case that takes longer has failed: it waits for something that the world never did."""

HarnessFactory = Callable[[], AbstractAsyncContextManager[ContractHarness]]
"""Gives a harness over a fresh, empty store, and cleans it up."""


class Case(msgspec.Struct, frozen=True):
    """One promise, and how it is checked."""

    name: str
    promise: str
    """In the words of the ports."""
    run: Callable[[Any], Awaitable[None]]
    """Given a harness of the suite's kind."""


class CaseResult(msgspec.Struct, frozen=True):
    """How a case ended."""

    name: str
    promise: str
    status: Literal["passed", "failed", "skipped"]
    detail: str = ""
    """Why it was skipped; or what broke, and the line that says so."""


def cases_of(suite: type[object]) -> list[Case]:
    """The cases of a class, by name."""
    instance = suite()
    return [
        Case(name, " ".join((getattr(suite, name).__doc__ or "").split()), getattr(instance, name))
        for name in sorted(dir(suite))
        if name.startswith("test_")
    ]


async def run_cases(
    cases: Sequence[Case], open_harness: Callable[[], AbstractAsyncContextManager[Any]]
) -> list[CaseResult]:
    """Run them one after the other; a failure never stops the rest."""
    if not __debug__:
        raise RuntimeError("the cases are made of assertions: run them without -O")
    return [await _run(case, open_harness) for case in cases]


async def _run(case: Case, open_harness: Callable[[], AbstractAsyncContextManager[Any]]) -> CaseResult:
    try:
        with anyio.fail_after(CASE_SECONDS):
            async with open_harness() as harness:
                await case.run(harness)
    except SkipTest as skipped:
        return CaseResult(case.name, case.promise, "skipped", str(skipped))
    except Exception as error:  # noqa: BLE001 - whatever a world under test may raise is a finding
        return CaseResult(case.name, case.promise, "failed", _describe(error))
    return CaseResult(case.name, case.promise, "passed")


def _describe(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)
    where = next((f for f in reversed(frames) if "contract" in f.filename), frames[-1] if frames else None)
    line = f" at {where.name}: {where.line}" if where else ""
    return f"{type(error).__name__}: {error}{line}"
