"""Files: what a step takes that changes one of 10,000, against a step that changes none; and the fold of changes."""

from statistics import median
from time import perf_counter, process_time

import msgspec

from journal import Journal, Turn, VirtualWorkspace, io
from journal.core import values
from journal.core.codec import seal
from journal.core.records import CallOutcome, DocumentEdit, FileChange, Record
from journal.replay.documents import Documents
from journal.replay.workspace import Workspace

FILES = 10_000
FOLDED = 10_000
"""Records of which each edits a document or changes one of half as many files, in turns."""
FOLDS = 10
_STEPS = 20


class Measured(msgspec.Struct):
    """Seconds a step with a change, and in how many steps without one that is; elapsed, and of the processor."""

    elapsed: float
    elapsed_ratio: float
    cpu: float
    cpu_ratio: float


async def _fill() -> None:
    for number in range(FILES):
        await io.files.write(f"/d{number // 100}/f{number}.txt", f"file {number}\n" * 10)


async def _change(number: int) -> int:
    await io.files.write("/d5/f512.txt", f"changed {number}")
    return number


async def _leave(number: int) -> int:
    return number


async def measure(url: str, rounds: int) -> tuple[Measured, float]:
    """What a step takes, and the seconds until a turn on the tree had begun."""
    journal = Journal(url)

    @journal.agent(workspace=VirtualWorkspace(max_files=FILES))
    async def work(turn: Turn, _: None) -> tuple[Measured | None, float]:
        # Clocks between calls: wrong in a handler that may be replayed, and this one never is.
        if turn.id == "fill":
            await turn.step(_fill)
            return None, 0.0
        begun = perf_counter()
        elapsed: list[list[float]] = []
        cpu: list[list[float]] = []
        for _round in range(rounds):
            elapsed.append([])
            cpu.append([])
            for fn in (_leave, _change, _leave):
                started, spent = perf_counter(), process_time()
                for number in range(_STEPS):
                    await turn.step(fn, number)
                elapsed[-1].append((perf_counter() - started) / _STEPS)
                cpu[-1].append((process_time() - spent) / _STEPS)
        return Measured(*_with_change(elapsed), *_in_total(cpu)), begun

    async with journal:
        await work.run(None, run_id="files", key="fill")
        asked = perf_counter()
        found, begun = await work.run(None, run_id="files", key="steps")
    assert found is not None
    return found, begun - asked


def _with_change(rounds: list[list[float]]) -> tuple[float, float]:
    changes = [change for _, change, _ in rounds]
    return median(changes), median(change * 2 / (before + after) for before, change, after in rounds)


def _in_total(rounds: list[list[float]]) -> tuple[float, float]:
    """Windows are too short for the processor's time, which others disturb; their sum is steady."""
    change = sum(change for _, change, _ in rounds)
    return change / len(rounds), change * 2 / sum(before + after for before, _, after in rounds)


def fold_rate() -> float:
    """Records a second of the processor's time, of a log in which every record is to be folded: at its quickest."""
    records = [_record(number) for number in range(FOLDED)]
    times = []
    for _ in range(FOLDS):
        documents, workspace = Documents(), Workspace()
        begun = process_time()
        for record in records:
            documents.add(record)
            workspace.add(record)
        times.append(process_time() - begun)
        assert (len(documents.versions["todo"]), workspace.tree.count) == (FOLDED // 2, FOLDED // 4)
    return FOLDED / min(times)


def _record(number: int) -> Record:
    content = f"content {number}".encode()
    if number % 2:
        place = number // 2 % (FOLDED // 4)
        change = FileChange(path=f"/d{place % 100}/f{place}.txt", content=content)
        outcome = CallOutcome(status="ok", value=b'"ok"', files=(change,), v=2)
    else:
        edit = DocumentEdit(doc="todo", version=1, base=b"b" * 16, value=values.encode([number] * 10))
        outcome = CallOutcome(status="ok", value=b'"ok"', edits=(edit,), v=2)
    sealed = seal("r", outcome, turn="t", key=f"write#{number}")
    return Record(
        "r",
        number + 1,
        1.0,
        sealed.type,
        sealed.turn,
        sealed.key,
        1,
        b"b" * 16,
        sealed.body,
        sealed.checksum,
    )
