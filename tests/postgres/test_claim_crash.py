"""A claim does not wait for the server's disk: a crash of the server may undo it, and harms nobody by it."""

from pathlib import Path

import pytest

from journal.core.ports import StaleClaim
from journal.testing import servers
from journal.worlds.contract.harness import begin, hold, info_of, seqs
from journal.worlds.postgres import open_postgres

pytestmark = pytest.mark.anyio

LAZY = ["wal_writer_delay=10s", "bgwriter_delay=10s"]
"""So that what does not wait for the disk is not there by chance."""


async def test_a_claim_that_a_crash_undid_is_refused_and_may_be_had_again(postgres_programs: Path) -> None:
    with servers.start_postgres(binaries=postgres_programs, settings=LAZY) as server:
        async with open_postgres(servers.postgres_url(server)) as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            server.restart()
            assert (await info_of(world, "r")).epoch == 0, "the claim is gone"
            answer = await holder.offer(holder.batch(holder.started()))
            assert answer == StaleClaim(holder.claim.epoch, 0)
            await (await hold(world, "r")).start()
            assert await seqs(world, "r") == [1, 2, 3]


async def test_a_claim_under_which_something_was_appended_outlives_the_crash(postgres_programs: Path) -> None:
    with servers.start_postgres(binaries=postgres_programs, settings=LAZY) as server:
        async with open_postgres(servers.postgres_url(server)) as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            await holder.start()
            server.restart()
            assert (await info_of(world, "r")).epoch == holder.claim.epoch
            await holder.record()
            assert await seqs(world, "r") == [1, 2, 3, 4]
