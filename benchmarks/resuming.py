"""What it takes to go on with a long run of many turns, whose documents and files come to what all of them did."""

import time

from journal import Journal, Turn, TurnFailed, VirtualWorkspace, define_doc, io

STEPS = 50
"""A turn."""
FILES = 200
_Notes = define_doc("notes", 1, dict[str, int])


class _Again(RuntimeError):
    """Ends the last turn's first attempt."""


async def _act(number: int) -> int:
    if number % 10 == 0:
        await io.files.write(f"/d{number % FILES}/f.txt", f"{number}\n" * 10)
        io.docs.update(_Notes, lambda notes: {**notes, f"{number % FILES}": number})
    return number


async def resumed(url: str, records: int) -> float:
    """Seconds from a retry of the last turn of so many records to its first call that is not recorded."""
    journal = Journal(url)
    first_live = 0.0

    @journal.agent(docs=[_Notes], workspace=VirtualWorkspace())
    async def work(turn: Turn, number: int) -> None:
        nonlocal first_live
        for step in range(STEPS):
            await turn.step(_act, number * STEPS + step)
        if number < 0 and turn.attempt == 1:
            raise _Again
        first_live = time.perf_counter()

    async with journal:
        for number in range(records // (2 * STEPS + 3)):
            await work.run(number, run_id="r", key=f"t{number}")
        try:
            await work.run(-1, run_id="r", key="last")
        except TurnFailed:
            pass
        handle = await journal.retry("r", turn_id="last")
        begun = time.perf_counter()
        await handle.settle(600, serve=True)
    return first_live - begun
