"""The targets, in one place. `--check` fails a run that misses one.

One step costs one durable commit, so 1.0 x raw is the bound for one run after another; fifty runs share their commits,
so they must beat one-row commits. Memory and import time are promises to whoever embeds us.

On SQLite 0.55 holds where a raw commit takes 200 µs and more (0.55 to 0.62): the statement of a step takes a third
longer than the raw one (two rows, an index, the claim), and about 90 µs are computed besides. For fifty runs one event
loop is the bound, with 45 µs a step, or 85 where somebody else is on the processor. Case `paced` is the raw store with
a caller that computes as long.

`files` is bounded by the time that elapses. `files_cpu`, the processor's part, is only told: whoever made the plain
step quicker would miss a bound on it.

`resume` is one turn of 100,000 records: its handler starts from the top and is served 50,000 calls, at 7 to 10 µs each,
before the first live one, and each record is read and decoded before that. No snapshot can spare it; in `resume_turns`,
where the records are those of earlier turns, one does.

`recovery` compares what a recorded step takes when the process was lost: DBOS reads its store for each, we read the
turn once. `fold` is against one typed decoder after the other over the same bodies, which it keeps: 0.32 to 0.35 where
the state stays in the processor's cache, 0.2 to 0.3 in a run of 20,000 records. What decoding drops again the state
keeps, 400 bytes a record, and the cache misses of that then cost more than the loop.
"""

from typing import Literal

import msgspec

QUICK_LOOP_MS = 4.1
"""What the fixed piece of Python (`footprint.loop_ms`) takes on the machine that the targets were set on, left alone.

Others on its processor make that 7 to 8, for minutes; what is nothing but computing then takes as much longer, and is
judged as it would be at this pace. On a quicker machine it is judged as it is."""


class Target(msgspec.Struct, frozen=True):
    """A bound on one field of a result."""

    of: Literal["ratio", "value", "paced"]
    """Paced: the value as it would be at the pace of `QUICK_LOOP_MS`."""
    at_least: float | None = None
    at_most: float | None = None

    def is_met(self, *, value: float, ratio: float | None, loop_ms: float = 0.0) -> bool:
        """Whether a result keeps within the bound; a missing ratio does not."""
        found = ratio if self.of == "ratio" else value
        if self.of == "paced" and loop_ms > QUICK_LOOP_MS:
            found = value * QUICK_LOOP_MS / loop_ms
        if found is None:
            return False
        above = self.at_least is None or found >= self.at_least
        return above and (self.at_most is None or found <= self.at_most)

    def __str__(self) -> str:
        bound = f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"
        return {"ratio": f"{bound} x", "value": bound, "paced": f"{bound} at {QUICK_LOOP_MS:g}"}[self.of]


TARGETS: dict[tuple[str, str, str], Target] = {
    # (case, world, versus; "" for whatever it is compared with)
    ("sequential", "sqlite", "raw"): Target("ratio", at_least=0.55),
    ("concurrent", "sqlite", "raw"): Target("ratio", at_least=2.5),
    ("sequential", "postgres", "raw"): Target("ratio", at_least=0.7),
    ("concurrent", "postgres", "raw"): Target("ratio", at_least=4.0),
    ("sequential", "redis", "raw"): Target("ratio", at_least=0.7),
    ("concurrent", "redis", "raw"): Target("ratio", at_least=4.0),
    ("sequential", "sqlite", "dbos"): Target("ratio", at_least=5.0),
    ("sequential", "sqlite", "langgraph"): Target("ratio", at_least=4.0),
    ("concurrent", "sqlite", "dbos"): Target("ratio", at_least=25.0),
    ("concurrent", "sqlite", "dbos-wal"): Target("ratio", at_least=10.0),
    ("recovery", "sqlite", "dbos"): Target("ratio", at_least=40.0),
    ("sequential", "postgres", "dbos"): Target("ratio", at_least=6.0),
    ("sequential", "postgres", "absurd"): Target("ratio", at_least=2.0),
    ("sequential", "postgres", "langgraph"): Target("ratio", at_least=5.0),
    ("concurrent", "postgres", "dbos"): Target("ratio", at_least=35.0),
    ("concurrent", "postgres", "absurd"): Target("ratio", at_least=10.0),
    ("wake", "sqlite", ""): Target("value", at_most=30.0),  # ms p50, across processes
    ("wake", "postgres", ""): Target("value", at_most=5.0),
    ("wake", "redis", ""): Target("value", at_most=5.0),
    ("follow", "postgres", ""): Target("value", at_most=3.0),
    ("follow", "redis", ""): Target("value", at_most=3.0),
    ("length", "sqlite", ""): Target("ratio", at_least=0.8),
    ("length", "postgres", ""): Target("ratio", at_least=0.8),
    ("length", "redis", ""): Target("ratio", at_least=0.8),
    **{
        (case, world, ""): Target("ratio", at_least=0.8)
        for case in ("runs", "runs_concurrent", "runs_turns")
        for world in ("sqlite", "postgres", "redis")
    },
    ("snapshot", "postgres", ""): Target("ratio", at_least=0.8),
    ("replay", "sqlite", ""): Target("paced", at_most=10.0),  # µs a call
    ("now_live", "sqlite", ""): Target("paced", at_most=5.0),  # µs
    ("now_replayed", "sqlite", ""): Target("paced", at_most=5.0),
    ("uuid_live", "sqlite", ""): Target("paced", at_most=5.0),
    ("uuid_replayed", "sqlite", ""): Target("paced", at_most=5.0),
    ("random_live", "sqlite", ""): Target("paced", at_most=5.0),
    ("random_replayed", "sqlite", ""): Target("paced", at_most=5.0),
    ("fold", "sqlite", ""): Target("ratio", at_least=0.25),
    ("resume", "sqlite", ""): Target("paced", at_most=1.5),  # s, of 100,000 records
    ("resume_turns", "sqlite", ""): Target("value", at_most=150.0),  # ms, of 100,000 records in many turns
    ("memory", "sqlite", ""): Target("value", at_most=16.0),  # MiB between 10,000 and 100,000 steps
    ("conversation", "sqlite", ""): Target("ratio", at_most=1.5),
    ("files", "sqlite", ""): Target("ratio", at_most=1.5),
    ("files_fold", "sqlite", ""): Target("value", at_least=100_000),  # records/s, documents and trees
    ("files_start", "sqlite", ""): Target("value", at_most=500.0),  # ms
    ("restore", "-", "cp -r"): Target("ratio", at_most=2.0),
    ("import", "-", ""): Target("value", at_most=100.0),  # ms over bare Python
}
