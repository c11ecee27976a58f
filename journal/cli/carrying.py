"""What `journal copy` and `journal archive` show of the runs that they carry over, and what becomes of errors."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from journal.cli import exits
from journal.cli.output import emit, hush, remark, say
from journal.cli.settings import Settings
from journal.core.errors import JournalError, WorldError
from journal.engine.moving import Mover, Moving
from journal.replay.timeline import Mark, printable

if TYPE_CHECKING:
    from rich.progress import Progress

_MARKS: dict[str, Mark] = {"copied": "good", "moved": "good", "present": "quiet", "skipped": "interrupted"}


class Tally:
    """Counts what became of runs, and says it: a line a run on stdout, how far it is on a terminal."""

    def __init__(self, settings: Settings) -> None:
        self.counts: Counter[str] = Counter()
        self._as_json = settings.as_json
        self._settings = settings
        self._progress: Progress | None = None
        self._records = 0

    @contextmanager
    def shown(self, total: int) -> Iterator[None]:
        """Show on a terminal how far it is."""
        if not sys.stderr.isatty():
            yield
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("runs · {task.fields[records]:,} records"))
        self._progress = Progress(
            *columns, console=Console(stderr=True), transient=True, redirect_stdout=False
        )
        self._progress.add_task("", total=total, records=0)
        with self._progress:
            yield
        self._progress = None

    def on_records(self, count: int) -> None:
        """So many records more."""
        self._records += count
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], records=self._records)

    def note(self, moving: Moving) -> None:
        """That became of a run."""
        self.counts[moving.result] += 1
        remarks = [moving.reason] if moving.reason else []
        if moving.held_back:
            remarks.append("held back there: it goes on where it is, or there once it is moved (--freeze)")
        text = f"{moving.result:8}{moving.run}  {moving.records:,} records"
        self._print(moving, f"{text}  ({'; '.join(remarks)})" if remarks else text, _MARKS[moving.result])

    def fail(self, run: str, error: JournalError) -> None:
        """A run that could not be carried over; the others go on."""
        self.counts["failed"] += 1
        shown = {"run": run, "result": "failed", **exits.described(error, self._settings)}
        self._print(shown, f"{'failed':8}{run}  {exits.message_of(error)}", "bad")

    def _print(self, value: Any, text: str, mark: Mark) -> None:
        progress = self._progress
        if progress is not None:
            progress.stop()
        try:
            if self._as_json:
                emit(value)
            else:
                say(printable(text), mark)
        except BrokenPipeError:
            hush()  # the work goes on: half a move is not what was asked for
        if progress is not None:
            progress.start()
            progress.advance(progress.task_ids[0])

    def summary(self) -> str:
        """As `3 moved, 1 skipped`."""
        return ", ".join(f"{count} {result}" for result, count in self.counts.items()) or "no runs"

    @property
    def exit_code(self) -> int:
        """0 if all that was asked for is done."""
        return exits.FAILED if self.counts["failed"] or self.counts["skipped"] else exits.OK


async def carry_all(mover: Mover, runs: Iterable[str], tally: Tally) -> list[str]:
    """Carry one after the other; which of them live in the target now. A store that fails ends it."""
    moved: list[str] = []
    for run in runs:
        try:
            moving = await mover.carry(run)
        except WorldError:
            remark(f"so far: {tally.summary()}; the same command again goes on from here")
            raise
        except JournalError as error:
            tally.fail(run, error)
        else:
            tally.note(moving)
            if moving.is_away:
                moved.append(run)
    return moved
