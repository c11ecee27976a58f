"""Logs made by hand: records of a run without a world, a second apart."""

from journal.core import values
from journal.core.codec import seal
from journal.core.records import (
    Body,
    CallIntent,
    CallKind,
    CallOutcome,
    ErrorInfo,
    OutcomeStatus,
    Policy,
    Record,
    RunCreated,
    TurnBlocked,
    TurnFinished,
    TurnRetried,
    TurnStarted,
    TurnSubmitted,
)

EPOCH = 1_700_000_000.0
INPUT = values.encode("hello")


class Hand:
    """Writes one run, record by record; `records` is its log."""

    def __init__(self, run: str = "order-42", turn: str = "start") -> None:
        self.run, self.turn = run, turn
        self.records: list[Record] = []
        self.epoch = 0
        self.add(RunCreated(agent="support", nonce=b"n" * 16), turn=None)
        self.submit()

    def add(
        self, body: Body, *, key: str | None = None, turn: str | None = "", same_time: bool = False
    ) -> int:
        """Append `body`; its seq."""
        sealed = seal(self.run, body, turn=self.turn if turn == "" else turn, key=key)
        seq = len(self.records) + 1
        time = self.records[-1].time + (0 if same_time else 1) if self.records else EPOCH
        self.records.append(
            Record(self.run, seq, time, sealed.type, sealed.turn, sealed.key, self.epoch, b"b%d" % seq, sealed.body,
                   sealed.checksum)
        )  # fmt: skip
        return seq

    def submit(self, turn: str | None = None) -> int:
        self.turn = turn or self.turn
        return self.add(TurnSubmitted(input=INPUT, input_digest=values.digest(INPUT)))

    def start(self, attempt: int, *, taken_over: bool = False) -> int:
        self.epoch += 1
        return self.add(TurnStarted(worker=f"worker-{attempt}", attempt=attempt, taken_over=taken_over))

    def intend(
        self, key: str, kind: CallKind = "tool", policy: Policy = "safe", *, attempt: int = 1, number: int = 1
    ) -> int:
        name = key.rpartition("/")[2].partition("#")[0]
        intent = CallIntent(kind=kind, name=name, input=INPUT, input_digest=values.digest(INPUT), policy=policy,
                            attempt=attempt, number=number)  # fmt: skip
        return self.add(intent, key=key)

    def settle(self, key: str, status: OutcomeStatus = "ok", *, same_time: bool = False) -> int:
        value = values.encode({"done": key}) if status == "ok" else None
        error = ErrorInfo(type="ValueError", code="E1") if status == "error" else None
        return self.add(CallOutcome(status=status, value=value, error=error), key=key, same_time=same_time)

    def finish(self, failed_by: str | None = None) -> int:
        if failed_by is not None:
            error = ErrorInfo(type="ValueError")
            return self.add(TurnFinished(status="failed", error=error, cause=failed_by))
        return self.add(TurnFinished(status="succeeded", output=values.encode("bye")))

    def block(self, *, own: bool = True) -> int:
        if not own:
            self.epoch += 1
        return self.add(TurnBlocked(reason="divergence" if own else "crash_loop", detail="told here"))

    def retry(self, *superseded: int) -> int:
        epoch, self.epoch = self.epoch, 0
        seq = self.add(TurnRetried(superseded=superseded))
        self.epoch = epoch
        return seq


def refund() -> Hand:
    """The log of the demo: killed inside the refund, then inside a model call, then carried through."""
    hand = Hand()
    hand.start(1)
    hand.intend("gpt#1", "model")
    hand.settle("gpt#1")
    hand.intend("lookup#1")
    hand.settle("lookup#1", same_time=True)
    hand.intend("refund#1", policy="never")
    hand.start(2, taken_over=True)
    hand.settle("refund#1", "unknown")
    hand.intend("gpt#2", "model", attempt=2)
    hand.start(3, taken_over=True)
    hand.intend("gpt#2", "model", attempt=3, number=2)
    hand.settle("gpt#2")
    hand.finish()
    return hand
