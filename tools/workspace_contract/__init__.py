"""The contract suite of workspaces: what is promised of files as cases, for any workspace, ours or a third party's.

With pytest, a workspace's test is a few lines: subclass `WorkspaceContract`, mark it `anyio`, and define a fixture
`harness` that yields a `WorkspaceHarness` over a fresh run (tests/workspace/test_contract.py shows it). Without pytest,
``await check_workspace(harness_factory)``. `journal.testing.workspaces` has the harness of a workspace that is given to
an agent. Each case quotes the promise that it checks; what a workspace does not offer it says by `capabilities`.
"""

from journal.tools.workspace_contract.directories import DirectoryCases
from journal.tools.workspace_contract.files import FileCases
from journal.tools.workspace_contract.harness import (
    ByHand,
    Done,
    RunFiles,
    WorkspaceHarness,
    WorkspaceHarnessFactory,
)
from journal.tools.workspace_contract.lifecycles import LifecycleCases
from journal.tools.workspace_contract.refusals import RefusalCases
from journal.worlds.contract.runner import Case, CaseResult, cases_of, run_cases

__all__ = [
    "ByHand",
    "CaseResult",
    "Done",
    "RunFiles",
    "WorkspaceContract",
    "WorkspaceHarness",
    "WorkspaceHarnessFactory",
    "cases",
    "check_workspace",
]


class WorkspaceContract(FileCases, RefusalCases, DirectoryCases, LifecycleCases):
    """All cases."""


def cases() -> list[Case]:
    """All cases, by name."""
    return cases_of(WorkspaceContract)


async def check_workspace(open_harness: WorkspaceHarnessFactory, *, only: str = "") -> list[CaseResult]:
    """Run all cases (those whose name holds `only`), each on a harness of its own."""
    return await run_cases([case for case in cases() if only in case.name], open_harness)
