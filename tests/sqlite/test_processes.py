"""Several processes on one file: fair to each other, correct, and soon over the death of one."""

import os
import re
import signal
import time
from collections import Counter
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from journal.core.ids import new_batch_id
from journal.core.ports import Batch, Delta, Held, StaleClaim, offset_of
from journal.worlds.contract.harness import Holder as Writer
from journal.worlds.contract.harness import (
    begin,
    claim_all,
    close,
    follow_all,
    hold,
    place,
    seqs,
    watching,
)
from journal.worlds.sqlite import open_sqlite
from journal.worlds.sqlite.locks import Holder
from tests.sqlite.conftest import Process, Start, line, tell

pytestmark = pytest.mark.anyio


async def rest(process: Process) -> list[str]:
    """What it prints until its end."""
    with anyio.fail_after(60):
        out, _ = await to_thread.run_sync(process.communicate, abandon_on_cancel=True)
    assert process.returncode == 0
    return out.split("\n")[:-1]


async def test_processes_get_even_shares(path: Path, url: str, start: Start) -> None:
    async with open_sqlite(url):
        loads = [start("load", path, f"p{number}", 1, 3) for number in range(3)]
        for load in loads:
            assert await line(load) == "ready"
        for load in loads:
            tell(load)
        lines = [await rest(load) for load in loads]
    done = [text[-1].split() for text in lines]
    counts = [int(count) for _, count, _ in done]
    assert min(counts) * 3 > max(counts), f"shares are uneven: {done}"
    async with open_sqlite(url) as world:
        for number, count in enumerate(counts):
            assert await seqs(world, f"p{number}-0") == list(range(1, 2 * count + 3))


async def test_what_was_acknowledged_outlives_kill_9(path: Path, url: str, start: Start) -> None:
    answered: Counter[str] = Counter()
    for life in range(3):
        loads = [start("load", path, f"life{life}-{number}", 8, 60) for number in range(2)]
        for load in loads:
            assert await line(load) == "ready"
        for load in loads:
            tell(load)
        for load in loads:
            for _ in range(200):
                run, seq = (await line(load)).split()
                answered[run] = int(seq)
        for load in loads:
            load.send_signal(signal.SIGKILL)
        for load in loads:
            for text in (await to_thread.run_sync(load.communicate))[0].split("\n"):
                if re.fullmatch(
                    r"life\d-\d-\d \d+", text
                ):  # what was read before may have ended within a line
                    answered[text.split()[0]] = max(answered[text.split()[0]], int(text.split()[1]))
    async with open_sqlite(url) as world:
        assert len(answered) == 48
        for run, last in answered.items():
            found = await world.read(run, limit=100_000)
            assert [record.seq for record in found] == list(range(1, len(found) + 1))
            # The last line may be cut in the middle of its number, which makes it smaller.
            assert len(found) >= last
            assert len(found) % 2 == 0, "a batch of two is there whole or not at all"
        assert len(await claim_all(world, limit=100)) == 48, "all of the dead are taken over at once"


async def test_a_dead_holder_is_taken_over_though_its_child_lives(path: Path, url: str, start: Start) -> None:
    async with open_sqlite(url) as world:
        parent = start("fork", path)
        child = int(await line(parent))
        assert await claim_all(world) == [], "its holder lives"
        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                group.start_soon(world.wait_for_work, 60)
                await anyio.wait_all_tasks_blocked()
                parent.kill()
                await to_thread.run_sync(parent.wait)
        os.kill(child, 0)  # it is there
        (claimed,) = await claim_all(world)
        assert claimed.taken_over
        assert claimed.takeovers == 1
        assert claimed.claim.epoch == 2
        await Writer(world, claimed).record()
        parent.communicate()


async def test_the_claim_of_a_closed_world_is_free_at_once(url: str) -> None:
    async with open_sqlite(url) as first, open_sqlite(url) as second:
        await begin(first, "run")
        async with open_sqlite(url) as third:
            holder = await hold(third, "run")
            assert await claim_all(second) == []
        (claimed,) = await claim_all(second)
        assert claimed.taken_over
        stale = await first.append(
            Batch("run", new_batch_id(), Held(holder.claim, None), (holder.outcome(),))
        )
        assert stale == StaleClaim(1, 2)


async def test_a_copy_of_the_lock_file_says_nothing_of_holders(path: Path, url: str) -> None:
    """Someone removed the lock file: those who opened the old one are not taken for dead."""
    async with open_sqlite(url) as first:
        await begin(first, "run")
        await hold(first, "run")
        Path(f"{path}-holders").unlink()
        async with open_sqlite(url) as second:
            assert await claim_all(second) == []


async def test_another_process_is_followed(path: Path, url: str, start: Start) -> None:
    other = start("append", path, "run")
    assert await line(other) == "ready"
    async with open_sqlite(url) as world, watching(world, "run") as watcher:
        await watcher.until_count(2)
        lags = []
        for count in range(3, 13):
            tell(other)
            written = float(await line(other))
            await watcher.until_count(count)
            lags.append(time.time() - written)
        assert sorted(lags)[len(lags) // 2] < 0.5, lags
        assert watcher.places() == [(seq, 0) for seq in range(1, 13)]


async def test_deltas_of_a_process_that_lost_the_run_are_refused(path: Path, url: str, start: Start) -> None:
    """FAULTS 51: stopped past its lease, taken over, continued; offsets are unique and rising."""
    zombie = start("publish", path, "run")
    assert await line(zombie) == "ready"
    tell(zombie)
    assert await line(zombie) == "True"
    zombie.send_signal(signal.SIGSTOP)
    async with open_sqlite(url) as world:
        with anyio.fail_after(20):
            while not (claimed := await claim_all(world, run="run")):
                await anyio.sleep(0.05)
        holder = Writer(world, claimed[0])
        mine = [Delta(call="c", number=1, data=b"mine")] * 2
        assert await world.publish(holder.claim, mine)
        zombie.send_signal(signal.SIGCONT)
        tell(zombie)
        assert await line(zombie) == "False"
        assert await world.publish(holder.claim, mine)
        await holder.start()
        assert await world.publish(holder.claim, mine)
        tell(zombie)
        assert await line(zombie) == "False"
        await holder.finish()
        await world.append(close("run"))
        items = await follow_all(world, "run")
    seen = [(place(item), item.data) for item in items if isinstance(item, Delta)]
    assert [data for _, data in seen] == [b"theirs"] * 2 + [b"mine"] * 6
    assert [at for at, _ in seen] == [*((2, n) for n in range(1, 7)), (3, 1), (3, 2)]
    offsets = [offset_of(item) for item in items]
    assert offsets == sorted(set(offsets))


async def test_a_waiting_worker_hears_of_work_from_another_process(
    path: Path, url: str, start: Start
) -> None:
    async with open_sqlite(url) as world:
        assert await claim_all(world) == []
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(world.wait_for_work, 60)
                start("append", path, "run")


async def test_a_byte_is_held_as_long_as_its_world(tmp_path: Path) -> None:
    first, second = Holder(tmp_path / "x"), Holder(tmp_path / "x")
    try:
        asked = (second.byte, second.file)
        assert not first.is_dead(*asked), "of this process, where the kernel would say nothing"
        second.close()
        assert first.is_dead(*asked)
    finally:
        first.close()
        second.close()
