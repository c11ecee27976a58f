"""A process that copies, moves or archives each run that it is told of on stdin, and says what came of it."""

import asyncio
import sys

from journal.core.clock import SystemClock
from journal.core.errors import JournalError
from journal.engine.moving import Mover
from journal.worlds import open_world


async def main(source: str, target: str, mode: str) -> None:
    async with open_world(source) as here, open_world(target) as there:
        older_seconds = 0.0 if mode == "archive" else None
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            run = line.strip()
            mover = Mover(
                here, there, clock=SystemClock(), freeze=mode != "copy", older_seconds=older_seconds
            )
            try:
                found = (await mover.carry(run)).result
                if mode == "archive":
                    await mover.sweep([run])
                print(found, flush=True)
            except JournalError as error:
                print(f"{type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
