"""A process of `Journal.local`: works on a run until it is killed, or to its end."""

import asyncio
import sys

from journal import Journal, Turn

journal = Journal.local(sys.argv[1])


async def wait() -> None:
    if sys.argv[2] == "wait":
        print("inside", flush=True)
        await asyncio.sleep(600)


@journal.agent
async def work(turn: Turn, _: None) -> int:
    await turn.step(wait)
    return turn.attempt


if __name__ == "__main__":
    print("kept until the end")
    print(work.run_sync(None, run_id="r"))
