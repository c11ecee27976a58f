"""The harness of a workspace that is given to an agent, for `journal.tools.workspace_contract`.

Each call of the suite is a turn of one run, on the store of `url`; an interruption closes the journal within the call.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from journal.core.errors import JournalError
from journal.engine.agent import Agent
from journal.engine.journal import Journal
from journal.engine.turn import Turn
from journal.tools.directory import DirectoryWorkspace
from journal.tools.io import CallFiles, io
from journal.tools.tool import tool
from journal.tools.workspace import Paths, Quotas, VirtualWorkspace
from journal.tools.workspace_contract import ByHand, Done
from journal.tools.workspace_contract.harness import Act

Workspace = VirtualWorkspace | DirectoryWorkspace


class AgentHarness:
    """A run whose calls do what the suite says."""

    def __init__(self, make: Callable[[], Workspace], url: str, run: str = "contract") -> None:
        self.run = run
        self._make = make
        self._url = url
        self._acts: list[Act] = []
        self._others: list[AgentHarness] = []
        workspace = make()
        self.capabilities = frozenset(["workspace.persistent"] if workspace.durable else [])
        self.limits: Quotas
        if isinstance(workspace, DirectoryWorkspace):
            self.capabilities |= {"workspace.directory", "workspace.lifecycle"}
            self.limits = workspace.quotas
        else:
            self.limits = workspace
        self._journal, self._agent = self._open()

    def _open(self) -> tuple[Journal, Agent[list[int], list[Any]]]:
        journal = Journal(self._url)

        @tool(replay="safe")
        async def act(number: int) -> Any:
            return await self._acts[number](io.files)

        @journal.agent(name="contract", workspace=self._make())
        async def contract(turn: Turn, numbers: list[int]) -> list[Any]:
            results = await asyncio.gather(*(turn.tool(act, number) for number in numbers))
            return [
                [each.status == "ok", each.value if each.status == "ok" else None, list(each.rejected)]
                for each in results
            ]

        return journal, contract

    @property
    def files(self) -> "AgentFiles":
        """The application's side."""
        return AgentFiles(self._journal, self.run)

    async def call(self, act: Act) -> Done:
        """Let a call do that, and end."""
        return (await self.together(act))[0]

    async def together(self, *acts: Act) -> list[Done]:
        """Let several calls of one turn do that at once."""
        numbers = [*range(len(self._acts), len(self._acts) + len(acts))]
        self._acts += acts
        found = await self._agent.run(numbers, run_id=self.run, key=f"turn-{numbers[0]}")
        return [Done(is_ok, value, tuple(rejected)) for is_ok, value, rejected in found]

    async def interrupt(self, act: Act) -> None:
        """Let a call do that; then its journal is closed, and the turn is carried on by another."""
        inside = asyncio.Event()

        async def hang(files: CallFiles) -> None:
            if inside.is_set():
                return  # the next holder makes the call again
            await act(files)
            inside.set()
            await asyncio.Event().wait()

        running = asyncio.ensure_future(self.call(hang))
        await inside.wait()
        await self.reopen()
        await asyncio.wait({running})
        if not running.cancelled():
            error = running.exception()
            assert error is None or isinstance(error, JournalError)

    async def reopen(self) -> None:
        """Close the journal, and open another."""
        await self._journal.aclose()
        self._journal, self._agent = self._open()

    async def fork(self) -> "AgentHarness":
        """A fork from a call that does nothing."""

        async def nothing(files: CallFiles) -> None:
            del files

        await self.call(nothing)
        other = AgentHarness(self._make, self._url, f"{self.run}-fork")
        other._acts = [nothing] * len(self._acts)
        self._others.append(other)
        handle = await other._journal.fork(self.run, at=len(self._acts), new_id=other.run)
        await handle.settle(30, serve=True)
        return other

    def by_hand(self) -> ByHand:
        """One more object over the same root."""
        workspace = self._make()
        assert isinstance(workspace, DirectoryWorkspace)
        return workspace

    async def aclose(self) -> None:
        """Close all journals."""
        for other in self._others:
            await other.aclose()
        await self._journal.aclose()


class AgentFiles:
    """`journal.files` of one run."""

    def __init__(self, journal: Journal, run: str) -> None:
        self._files = journal.files
        self._run = run

    async def read(self, path: str) -> bytes:
        """The file's bytes."""
        return await self._files.read(self._run, path)

    async def glob(self, pattern: str = "/**") -> Paths:
        """The paths that match."""
        return await self._files.glob(self._run, pattern)

    async def write(self, path: str, data: bytes | str, *, is_executable: bool | None = None) -> None:
        """Let `data` be the whole file."""
        await self._files.write(self._run, path, data, is_executable=is_executable)

    async def delete(self, path: str) -> None:
        """Let the file go."""
        await self._files.delete(self._run, path)


@asynccontextmanager
async def agent_harness(make: Callable[[], Workspace], url: str) -> AsyncIterator[AgentHarness]:
    """A harness over a fresh run in the store of `url`; `make` makes the workspace anew, over the same root."""
    harness = AgentHarness(make, url)
    try:
        yield harness
    finally:
        await harness.aclose()
