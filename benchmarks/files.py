"""A workspace of 10,000 files: what a step takes that changes one, against a step that changes none."""

from statistics import median
from time import perf_counter

from journal import Journal, Turn, VirtualWorkspace, io

FILES = 10_000
_STEPS = 20


async def _fill() -> None:
    for number in range(FILES):
        await io.files.write(f"/d{number // 100}/f{number}.txt", f"file {number}\n" * 10)


async def _change(number: int) -> int:
    await io.files.write("/d5/f512.txt", f"changed {number}")
    return number


async def _leave(number: int) -> int:
    return number


async def measure(url: str, rounds: int) -> tuple[float, float, float]:
    """(seconds of a step with a change, those per step without one, seconds until a turn on the tree had begun)."""
    journal = Journal(url)

    @journal.agent(workspace=VirtualWorkspace(max_files=FILES))
    async def work(turn: Turn, _: None) -> tuple[float, float, float]:
        # Clocks between calls: wrong in a handler that may be replayed, and this one never is.
        if turn.id == "fill":
            await turn.step(_fill)
        begun = perf_counter()
        with_change, ratios = [], []
        for _round in range(rounds if turn.id == "steps" else 0):
            times = []
            for fn in (_leave, _change, _leave):
                started = perf_counter()
                for number in range(_STEPS):
                    await turn.step(fn, number)
                times.append((perf_counter() - started) / _STEPS)
            with_change.append(times[1])
            ratios.append(times[1] * 2 / (times[0] + times[2]))
        return (median(with_change), median(ratios), begun) if ratios else (0.0, 0.0, begun)

    async with journal:
        await work.run(None, run_id="files", key="fill")
        asked = perf_counter()
        found, ratio, begun = await work.run(None, run_id="files", key="steps")
    return found, ratio, begun - asked
