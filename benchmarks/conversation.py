"""A conversation that grows: what its log takes, against the conversation itself."""

from typing import Any

from journal import Journal, Turn
from journal.core import values

CALLS = 500


async def _ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"role": "assistant", "content": f"answer {len(messages)}: " + f"because{len(messages)} " * 40}


async def log_ratio(url: str) -> tuple[int, float]:
    """(bytes of all records of a run of `CALLS` model calls, those per byte of its final transcript)."""
    journal = Journal(url)

    @journal.agent
    async def talk(turn: Turn, calls: int) -> int:
        messages: list[dict[str, Any]] = [{"role": "system", "content": "You are a clerk. " * 20}]
        for number in range(calls):
            messages.append({"role": "user", "content": f"question {number}: " + f"why{number} " * 40})
            messages.append(await turn.model(_ask, messages))
        return len(values.encode(messages))

    async with journal:
        transcript = await talk.run(CALLS, run_id="conversation")
        size = seq = 0
        while page := await journal.read("conversation", after=seq):
            size += sum(record.size for record in page)
            seq = page[-1].seq
    return size, size / transcript
