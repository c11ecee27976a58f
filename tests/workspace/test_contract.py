"""The contract suite of workspaces on ours, and on some that are broken on purpose."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from journal import DirectoryWorkspace, VirtualWorkspace
from journal.engine.directories import AttemptDirectory
from journal.testing.workspaces import AgentHarness, agent_harness
from journal.tools.lifecycle import Lifecycle
from journal.tools.working_tree import WorkingTree
from journal.tools.workspace import Quotas
from journal.tools.workspace_contract import WorkspaceContract, cases, check_workspace

pytestmark = pytest.mark.anyio
BYTES, FILES, FILE_BYTES = 60_000, 12, 40_000


@pytest.fixture
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AgentHarness]:
    async with request.cls.opened(tmp_path) as harness:
        yield harness


class TestVirtual(WorkspaceContract):
    @staticmethod
    def opened(path: Path) -> AbstractAsyncContextManager[AgentHarness]:
        return agent_harness(
            lambda: VirtualWorkspace(max_bytes=BYTES, max_files=FILES, max_file_bytes=FILE_BYTES),
            f"sqlite:{path / 'j.db'}",
        )


class TestDirectory(WorkspaceContract):
    @staticmethod
    def opened(path: Path) -> AbstractAsyncContextManager[AgentHarness]:
        return agent_harness(
            lambda: DirectoryWorkspace(
                path / "root", max_bytes=BYTES, max_files=FILES, max_file_bytes=FILE_BYTES
            ),
            f"sqlite:{path / 'j.db'}",
        )


def _nothing(*_: Any, **__: Any) -> None:
    """In place of what ought to be done."""


BROKEN: dict[str, tuple[object, str, Any, set[str]]] = {
    "what failed stays in the directory": (
        AttemptDirectory, "spoil", _nothing, {"test_a_block_that_raises_changed_nothing"},
    ),
    "nobody waits for the directory": (
        AttemptDirectory, "acquire", None, {"test_one_call_at_a_time_has_the_directory"},
    ),
    "no quotas": (
        Quotas, "check", _nothing,
        {
            "test_one_file_at_its_limit", "test_all_files_at_their_limit", "test_as_many_files_as_are_allowed",
            "test_quotas_hold_when_changes_come_together",
        },
    ),
    "keys are forgotten": (
        Lifecycle, "keyed", lambda self, run, place, key, asked, request, act, kind: act(),
        {"test_the_same_key_gives_the_same_answer_after_a_restart"},
    ),
    "aborted ones go on": (
        Lifecycle, "check", _nothing,
        {"test_what_is_aborted_goes_on_no_more", "test_one_at_work_is_not_cleaned_up_at_once"},
    ),
    "the directory is left as it is": (
        WorkingTree, "bring", None, {"test_what_programs_changed_counts", "test_it_goes_on_from_the_last_snapshot"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_workspace_fails(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by the cases that are about it."""
    where, what, instead, expected = BROKEN[name]
    if what == "acquire":

        async def free(self: AttemptDirectory) -> None:
            if not self._lock.locked():
                await self._lock.acquire()

        def release(self: AttemptDirectory) -> None:
            if self._lock.locked():
                self._lock.release()

        monkeypatch.setattr(AttemptDirectory, "acquire", free)
        monkeypatch.setattr(AttemptDirectory, "release", release)
    elif what == "bring":
        inner = WorkingTree.bring

        def bring(self: WorkingTree, wanted: Any) -> None:
            if self._there is None:
                inner(self, type(wanted)())

        monkeypatch.setattr(WorkingTree, "bring", bring)
    else:
        monkeypatch.setattr(where, what, instead)
    numbers = count()

    def opened() -> AbstractAsyncContextManager[AgentHarness]:
        return TestDirectory.opened(tmp_path / str(next(numbers)))

    found: set[str] = set()
    for case in expected:
        (result,) = await check_workspace(opened, only=case)
        if result.status == "failed":
            found.add(case)
    assert found == expected


def test_each_case_quotes_its_promise() -> None:
    assert len(cases()) > 25
    assert all(case.promise for case in cases())
