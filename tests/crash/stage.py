"""Running the process under test, and reading what it did from outside."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from journal import Journal
from journal.core.codec import open_record
from journal.core.ports import World
from journal.core.records import CallOutcome, Record, TurnFinished
from journal.worlds import open_world
from tests.forks import ROOT, Fork, nursery

Process: TypeAlias = "subprocess.Popen[bytes] | Fork"


class Stage:
    """One store, one file of effects, and processes that come and go."""

    def __init__(self, folder: Path, url: str | None = None, *, lease: float = 30.0) -> None:
        """`url`: a fresh store that is not on this host's disk, where only a lease tells of the dead."""
        self.url = url or f"sqlite:{folder / 'journal.db'}"
        self.knows_the_dead = url is None
        """Whether the next worker takes over at once."""
        self.lease = lease
        world = {"sqlite": "sqlite.world", "postgresql": "postgres"}.get(self.url.partition(":")[0], "redis")
        self._warm = f"journal.worlds.{world}"
        self.effects_file = folder / "effects"
        self.effects_file.touch()

    def start(
        self,
        *args: str,
        at: str = "",
        slots: int = 1,
        lease: float | None = None,
        freeze: str = "",
        freeze_seconds: float = 1.0,
        clock: float = 0.0,
        root: Path = ROOT,
        prefix: Sequence[str] = (),
        **settings: object,
    ) -> Process:
        """Start a process; the caller waits for it.

        `root`: the tree whose code it runs; `prefix`: what its command stands behind; `settings`: `CRASH_…`.
        """
        env = {
            **os.environ,
            "CRASH_WORLD": self.url,
            "CRASH_EFFECTS": str(self.effects_file),
            "CRASH_AT": at,
            "CRASH_SLOTS": str(slots),
            "CRASH_LEASE": str(lease or self.lease),
            "CRASH_FREEZE": freeze,
            "CRASH_FREEZE_SECONDS": str(freeze_seconds),
            "CRASH_CLOCK": str(clock),
            "PYTHONPATH": str(root),
            **{f"CRASH_{name.upper()}": str(value) for name, value in settings.items()},
        }
        if root == ROOT and not prefix:
            return nursery(self._warm).start("tests.crash.app", args, env)
        command = [*prefix, sys.executable, "-m", "tests.crash.app", *args]
        return subprocess.Popen(command, env=env, cwd=root)

    def run(
        self, *args: str, at: str = "", slots: int = 1, clock: float = 0.0, seconds: float = 120.0
    ) -> int:
        """Start a process and wait for its end; its exit code (-9: killed)."""
        process = self.start(*args, at=at, slots=slots, clock=clock)
        try:
            return process.wait(seconds)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()

    def finish(self, *, slots: int = 1) -> int:
        """Run a worker that does what is left, of the dead too; its exit code."""
        return self.run("work" if self.knows_the_dead else "finish", slots=slots)

    def effects(self) -> Counter[str]:
        """How often each effect took place, counted outside of the processes."""
        return Counter(self.effects_file.read_text().split("\n")[:-1])

    async def log(self, run: str, world: World | None = None) -> list[Record]:
        """The whole log of a run; seqs are checked to be dense. `world`: the store, where it is open already."""
        if world is None:
            async with open_world(self.url) as opened:
                return await self.log(run, opened)
        records: list[Record] = []
        while page := await world.read(run, after=len(records)):
            records += page
        assert [r.seq for r in records] == list(range(1, len(records) + 1))
        return records

    async def outcomes(self, run: str, world: World | None = None) -> dict[str, str]:
        """Status of each call's outcome, by key; a second outcome of one call is an error."""
        found: dict[str, str] = {}
        for record in await self.log(run, world):
            body = open_record(record)
            if isinstance(body, CallOutcome):
                assert record.key is not None
                assert record.key not in found, "two outcomes of one call"
                found[record.key] = body.status
        return found

    async def finished(self, run: str, world: World | None = None) -> TurnFinished:
        """How the run's only turn ended; a second end is an error."""
        ends = [b for r in await self.log(run, world) if isinstance(b := open_record(r), TurnFinished)]
        assert len(ends) == 1
        return ends[0]

    async def status(self, run: str) -> str:
        """The run's status in listings."""
        async with Journal(self.url) as journal:
            return (await journal.get(run)).status
