"""The other process: appends to its runs until it is killed, and prints what was acknowledged.

`python -m tests.postgres.actor URL RUN …`
"""

import asyncio
import sys

from journal.core.ids import BatchIds
from journal.core.ports import Batch, Committed, Held
from journal.worlds.contract.harness import begin, hold, raw
from journal.worlds.postgres import open_postgres


async def main(url: str, runs: list[str]) -> None:
    async with open_postgres(url) as world:

        async def work(run: str) -> None:
            await begin(world, run)
            holder = await hold(world, run, lease_seconds=1.0)
            ids, prev = BatchIds(), None
            while True:
                batch = Batch(run, ids.next(), Held(holder.claim, prev), (raw(run, b"x" * 250),))
                answer = await world.append(batch)
                assert isinstance(answer, Committed), answer
                prev = batch.id
                print(run, answer.last, batch.id.hex(), flush=True)

        await asyncio.gather(*(work(run) for run in runs))


asyncio.run(main(sys.argv[1], sys.argv[2:]))
