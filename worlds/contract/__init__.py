"""The contract suite: every promise of `core/ports.py` as a case, for any world, ours or a third party's.

With pytest, a world's test is a few lines: subclass `WorldContract`, mark it `anyio`, and define a fixture `harness`
that yields a `ContractHarness` over a fresh store (tests/contract/test_memory.py shows it). Without pytest,
`await check_world(harness_factory)`, or `check_url(url)` for a store that is in use. Each case quotes the promise
that it checks.
"""

from collections.abc import AsyncIterator

from journal.worlds.contract.building import BuildingCases
from journal.worlds.contract.check import namespaces_of
from journal.worlds.contract.claims import ClaimCases
from journal.worlds.contract.door import DoorCases
from journal.worlds.contract.harness import ContractHarness
from journal.worlds.contract.known import KnownCases
from journal.worlds.contract.moving import MovingCases
from journal.worlds.contract.queue import WakingCases
from journal.worlds.contract.refusals import RefusalCases
from journal.worlds.contract.roster import RosterCases
from journal.worlds.contract.runner import Case, CaseResult, HarnessFactory, cases_of, run_cases
from journal.worlds.contract.store import StoreCases
from journal.worlds.contract.stream import StreamCases
from journal.worlds.contract.turns import LeavingCases
from journal.worlds.opening import open_world

__all__ = [
    "Case",
    "CaseResult",
    "ContractHarness",
    "HarnessFactory",
    "WorldContract",
    "cases",
    "check_url",
    "check_world",
]


class WorldContract(
    DoorCases,
    KnownCases,
    RefusalCases,
    WakingCases,
    LeavingCases,
    ClaimCases,
    StreamCases,
    StoreCases,
    RosterCases,
    BuildingCases,
    MovingCases,
):
    """All cases."""


def cases() -> list[Case]:
    """All cases, by name."""
    return cases_of(WorldContract)


async def check_world(open_harness: HarnessFactory, *, only: str = "") -> list[CaseResult]:
    """Run all cases (those whose name holds `only`), each on a harness of its own."""
    return await run_cases([case for case in cases() if only in case.name], open_harness)


async def check_url(url: str, *, only: str = "") -> AsyncIterator[CaseResult]:
    """Run all cases (those whose name holds `only`) against the store of `url`, as they end; see `check.py`.

    Raises what the world raises at open.
    """
    async with open_world(url) as world:
        is_persistent = "log.persistent" in world.capabilities
    for case in cases():
        if only in case.name:
            for result in await run_cases([case], lambda: namespaces_of(url, is_persistent=is_persistent)):
                yield result
