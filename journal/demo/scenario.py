"""The whole demo: with the journal, without it, both killed at the same two points, and what each has cost."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import msgspec

from journal.core.ids import new_run_id
from journal.demo import durable, plain
from journal.demo.stage import Performance, Stage
from journal.replay.fold import RunFold
from journal.replay.state import RunState
from journal.worlds import open_world
from journal.worlds.opening import VARIABLE

# The model call to be killed in is the one after the refund. With the journal that is the third request: two before the
# refund, none repeated. Without it, the two are made again.
_WITH, _WITHOUT = 3, 5


class Demo(msgspec.Struct, frozen=True):
    """What was played."""

    run: RunState
    """The run with the journal, folded from its log."""
    durable: Performance
    plain: Performance
    seconds: float

    def summary(self) -> dict[str, object]:
        """The one object of `journal demo --json`."""
        finished = [c for c in self.run.calls if c.kind == "model" and c.outcome and c.outcome.status == "ok"]
        return {
            "status": self.run.status,
            "attempts": sum(len(turn.attempts) for turn in self.run.turns),
            "model_calls_paid": self.durable.model_calls_paid,
            "model_calls_finished": len(finished),
            "never_tool_runs": self.durable.refunds,
            "safe_tool_runs": self.durable.safe_tool_runs,
            "without_journal": {
                "attempts": self.plain.attempts,
                "model_calls_paid": self.plain.model_calls_paid,
                "never_tool_runs": self.plain.refunds,
                "safe_tool_runs": self.plain.safe_tool_runs,
            },
            "seconds": round(self.seconds, 1),
        }


def play(url: str | None = None, *, is_by_hand: bool = False) -> Demo:
    """Play both: in the store of `url`, as a run of its own that stays there; else in one that is gone afterwards.

    `is_by_hand`: without the Agents SDK, with the base package alone.
    """
    begun = monotonic()
    stage = Stage("journal.demo.rehearsal_by_hand") if is_by_hand else Stage()
    acts = (durable.act_by_hand, plain.act_by_hand) if is_by_hand else (durable.act, plain.act)
    run_id = f"order-42-{new_run_id()[:6]}"
    with TemporaryDirectory(prefix="journal-demo-") as directory:
        store = url or f"sqlite:{Path(directory) / 'journal.db'}"
        variables = {VARIABLE: store, durable.RUN_VARIABLE: run_id}
        with_journal = stage.perform(acts[0], model_hang_on=_WITH, environment=variables)
        run = asyncio.run(_read(store, run_id))
    without = stage.perform(acts[1], model_hang_on=_WITHOUT, environment={})
    return Demo(run, with_journal, without, monotonic() - begun)


async def _read(url: str, run_id: str) -> RunState:
    fold, after = RunFold(), 0
    async with open_world(url) as world:
        while page := await world.read(run_id, after=after):
            for record in page:
                fold.add(record)
            after = page[-1].seq
    return fold.state
