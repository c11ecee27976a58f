"""What replay costs: a recorded call on resume, the first live call behind a long history, observations, the fold."""

import time
from collections.abc import Callable
from statistics import median

import msgspec

from benchmarks.engine import no_op
from benchmarks.footprint import loop_ms
from journal import Journal, Turn, TurnFailed
from journal.core.records import BODIES, Observed, Record
from journal.replay.fold import fold

OBSERVATIONS = 500
FOLDED = 500
"""Records that are folded: of steps, and the first of the run. Observations (of `now`) it passes over: they would
flatter it."""
FOLDS = 5
WINDOW = 50
"""What is timed at a time: of many such windows the median is told, as this thread is not alone on its processor."""


class Measured(msgspec.Struct):
    """What the second attempt found."""

    started: float = 0.0
    per_call: float = 0.0
    """Seconds."""
    first_live: float = 0.0
    """`perf_counter` when the first call that is not recorded was asked for."""
    observed: dict[str, float] = {}
    """Seconds each."""
    loop_ms: float = 0.0
    """What the fixed piece of Python took, before or after, whichever was quicker."""


class _Again(RuntimeError):
    """Ends the first attempt, when all is recorded."""


async def replayed(url: str, calls: int) -> tuple[Measured, list[Record]]:
    """A turn of so many recorded steps, resumed; and its log."""
    found = Measured()
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        kind = "live" if turn.attempt == 1 else "replayed"
        asked: dict[str, Callable[[], object]] = {
            "now": turn.now,
            "uuid": turn.uuid,
            "random": turn.random,
        }
        for name, ask in asked.items():
            times = []
            for _window in range(OBSERVATIONS // WINDOW):
                begun = time.perf_counter()
                for _number in range(WINDOW):
                    ask()
                times.append(time.perf_counter() - begun)
            found.observed[f"{name}_{kind}"] = median(times) / WINDOW
        times = []
        for _window in range(calls // WINDOW):
            begun = time.perf_counter()
            for _number in range(WINDOW):
                await turn.step(no_op)
            times.append(time.perf_counter() - begun)
        if turn.attempt == 1:
            raise _Again
        found.first_live = time.perf_counter()
        found.per_call = median(times) / WINDOW

    before = loop_ms()
    async with journal:
        try:
            await work.run(None, run_id="r")
        except TurnFailed:
            pass
        log = await journal.read("r", limit=OBSERVATIONS + FOLDED)
        records = [record for record in log if record.type != Observed.TYPE]
        handle = await journal.retry("r")
        found.started = time.perf_counter()
        await handle.settle(600, serve=True)
    found.loop_ms = min(before, loop_ms())
    return found, records


def fold_rates(records: list[Record]) -> tuple[float, float]:
    """(records a second of the fold, of msgspec alone: one typed decoder after the other over the same bodies).

    Each at its quickest, in turns: the first of all brings the records into the processor's cache for the others.
    """
    decoders = {name: msgspec.msgpack.Decoder(body).decode for name, body in BODIES.items()}
    folds, decodes = [], []
    for _ in range(FOLDS):
        begun = time.perf_counter()
        state = fold(records)
        between = time.perf_counter()
        for record in records:
            decoders[record.type](record.body)
        decodes.append(time.perf_counter() - between)
        folds.append(between - begun)
        assert state.head == records[-1].seq
    return len(records) / min(folds), len(records) / min(decodes)
