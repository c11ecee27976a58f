"""The live stream: publishing deltas and following a run. Quotes are from `core/ports.py`."""

from collections.abc import Sequence
from contextlib import AsyncExitStack

import anyio
import anyio.lowlevel
from msgspec.structs import replace

from journal.core.errors import RunGone
from journal.core.ids import new_token
from journal.core.ports import START, Claim, Delta, Item, SweepPolicy, World, offset_of
from journal.core.records import Record
from journal.worlds.contract.harness import (
    PATIENCE_SECONDS,
    ContractCases,
    ContractHarness,
    Holder,
    begin,
    close,
    committed,
    follow_all,
    hold,
    place,
    raw,
    refusal,
    signal,
    watching,
)


def deltas(*pieces: bytes, call: str = "model#1") -> list[Delta]:
    """Pieces of a call's output."""
    return [Delta(call=call, number=1, data=piece) for piece in pieces]


async def a_run_with_deltas(world: World, run: str = "r") -> list[tuple[int, int]]:
    """A closed run; returns the places of its items, as the promise has them."""
    await begin(world, run)  # records 1 and 2
    holder = await hold(world, run)
    await holder.start()  # 3
    assert await world.publish(holder.claim, deltas(b"1", b"2"))
    assert await world.publish(holder.claim, deltas(b"3"))
    await holder.record()  # 4
    assert await world.publish(holder.claim, deltas(b"4"))
    await holder.finish()  # 5
    committed(await world.append(close(run)))  # 6
    return [(1, 0), (2, 0), (3, 0), (3, 1), (3, 2), (3, 3), (4, 0), (4, 1), (5, 0), (6, 0)]


def places(items: Sequence[Item]) -> list[tuple[int, int]]:
    return [place(item) for item in items]


class StreamCases(ContractCases):
    """`Stream`: everything behind an offset, exactly once, in order."""

    def needs_deltas(self, world: World) -> None:
        """Deltas are a capability of their own."""
        if "stream.deltas" not in world.capabilities:
            self.skip("this world does not claim stream.deltas")

    async def test_deltas_are_placed_behind_the_head(self, harness: ContractHarness) -> None:
        """Store deltas at (head, last sub + 1): sub counts from 1 above the head when it was published."""
        async with harness.open() as world:
            self.needs_deltas(world)
            expected = await a_run_with_deltas(world)
            items = await follow_all(world, "r")
            assert places(items) == expected
            found = [item for item in items if isinstance(item, Delta)]
            assert [d.data for d in found] == [b"1", b"2", b"3", b"4"]
            assert {(d.call, d.number) for d in found} == {("model#1", 1)}
            records = {item.seq: item for item in items if isinstance(item, Record)}
            assert all(delta.time >= records[3].time for delta in found)

    async def test_offsets_rise_and_sort_as_text(self, harness: ContractHarness) -> None:
        """The reader's place behind `item`: strictly rising, sortable as text."""
        async with harness.open() as world:
            await a_run_with_deltas(world)
            offsets = [offset_of(item) for item in await follow_all(world, "r")]
            assert offsets == sorted(set(offsets))

    async def test_from_every_offset_no_gap_and_no_double(self, harness: ContractHarness) -> None:
        """Everything behind `offset`, in order of offsets, without gap or double."""
        async with harness.open() as world:
            self.needs_deltas(world)
            expected = await a_run_with_deltas(world)
            for start in ("-1", START):
                assert places(await follow_all(world, "r", start)) == expected
            everything = await follow_all(world, "r")
            for count, item in enumerate(everything, 1):
                rest = places(await follow_all(world, "r", offset_of(item)))
                assert rest == expected[count:], f"from {offset_of(item)}"

    async def test_publishing_is_fenced(self, harness: ContractHarness) -> None:
        """False if the claim does not hold: deltas from a zombie, the zombie's refused."""
        async with harness.open() as world:
            self.needs_deltas(world)
            await begin(world, "r")
            zombie = await hold(world, "r", lease_seconds=30)
            assert await world.publish(zombie.claim, deltas(b"zombie, alive"))
            await harness.advance(31)
            holder = await hold(world, "r")
            assert not await world.publish(zombie.claim, deltas(b"zombie"))
            assert not await world.publish(replace(holder.claim, token=new_token()), deltas(b"wrong token"))
            assert not await world.publish(replace(holder.claim, epoch=1), deltas(b"wrong epoch"))
            assert not await world.publish(Claim("absent", 1, new_token()), deltas(b"absent"))
            assert await world.publish(holder.claim, deltas(b"new"))
            await holder.finish()
            assert not await world.publish(holder.claim, deltas(b"late"))
            committed(await world.append(close("r")))
            assert not await world.publish(holder.claim, deltas(b"later"))
            items = await follow_all(world, "r")
            assert [i.data for i in items if isinstance(i, Delta)] == [b"zombie, alive", b"new"]
            assert places(items) == [(1, 0), (2, 0), (2, 1), (2, 2), (3, 0), (4, 0)]

    async def test_offsets_of_deltas_from_two_processes_are_unique(self, harness: ContractHarness) -> None:
        """Deltas from the new attempt, from two processes: offsets unique and rising."""
        async with AsyncExitStack() as stack:
            worlds = [await stack.enter_async_context(harness.open()) for _ in range(2)]
            self.needs_deltas(worlds[0])
            await begin(worlds[0], "r")
            holder = await hold(worlds[0], "r")

            async def publish(world: World) -> None:
                for n in range(10):
                    assert await world.publish(holder.claim, deltas(b"%d" % n, b"%d" % n))

            async with anyio.create_task_group() as group:
                for world in worlds:
                    group.start_soon(publish, world)
            await holder.finish()
            committed(await worlds[0].append(close("r")))
            found = places(await follow_all(worlds[1], "r"))
            assert found == [(1, 0), (2, 0), *((2, n) for n in range(1, 41)), (3, 0), (4, 0)]

    async def test_history_then_live(self, harness: ContractHarness) -> None:
        """History, then live. It does not end by itself while the run is open; it ends after `run.closed`."""
        async with harness.open() as world:
            await begin(world, "r")
            async with watching(world, "r") as watcher:
                await watcher.until_count(2)
                holder = await hold(world, "r")
                await holder.start()
                await watcher.until_count(3)
                await holder.finish()
                await watcher.until_count(4)
                assert not watcher.has_ended, "the run is open"
                committed(await world.append(close("r")))
                await watcher.until_end()
                assert (watcher.error, watcher.places()) == (None, [(n, 0) for n in range(1, 6)])
                assert isinstance(watcher.items[-1], Record)
                assert watcher.items[-1].type == "run.closed"

    async def test_live_deltas(self, harness: ContractHarness) -> None:
        """History, then live, records and deltas in order of offsets."""
        async with harness.open() as world:
            self.needs_deltas(world)
            await begin(world, "r")
            holder = await hold(world, "r")
            async with watching(world, "r") as watcher:
                await watcher.until_count(2)
                assert await world.publish(holder.claim, deltas(b"1"))
                await watcher.until_count(3)
                assert await world.publish(holder.claim, deltas(b"2"))
                await holder.record()
                await watcher.until_count(5)
                assert watcher.places() == [(1, 0), (2, 0), (2, 1), (2, 2), (3, 0)]

    async def test_appends_of_another_world_are_seen(self, harness: ContractHarness) -> None:
        """Sees appends of other processes."""
        async with harness.open() as world, harness.open() as other:
            await begin(other, "r")
            async with watching(world, "r") as watcher:
                await watcher.until_count(2)
                for n in range(3, 8):
                    committed(await other.append(signal("r", f"s{n}")))
                    await watcher.until_count(n)
                committed(await other.append(close("r")))
                await watcher.until_end()
                assert watcher.places() == [(n, 0) for n in range(1, 9)]

    async def test_a_watcher_connects_while_records_are_written(self, harness: ContractHarness) -> None:
        """A watcher connects while records are written, drops, reconnects: nothing missed, nothing doubled."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            seen: list[tuple[int, int]] = []

            async def reconnect() -> None:
                offset, is_over = START, False
                while not is_over:
                    async with watching(world, "r", offset) as watcher:
                        while not watcher.items and not watcher.has_ended:
                            await anyio.lowlevel.checkpoint()
                        seen.extend(watcher.places())
                        offset = offset_of(watcher.items[-1]) if watcher.items else offset
                        is_over = bool(watcher.items) and watcher.items[-1].seq == 54

            with anyio.fail_after(PATIENCE_SECONDS * 2):
                async with anyio.create_task_group() as group:
                    group.start_soon(reconnect)
                    for n in range(50):
                        await holder.record(f"step#{n}")
                        await anyio.lowlevel.checkpoint()
                    await holder.finish()
                    committed(await world.append(close("r")))
            assert seen == [(n, 0) for n in range(1, 55)]

    async def test_many_watchers_of_one_run(self, harness: ContractHarness) -> None:
        """Records come exactly once, to each who follows."""
        async with harness.open() as world, AsyncExitStack() as stack:
            watchers = [await stack.enter_async_context(watching(world, "r")) for _ in range(25)]
            await begin(world, "r")
            for n in range(5):
                committed(await world.append(signal("r", f"s{n}")))
            committed(await world.append(close("r")))
            for watcher in watchers:
                await watcher.until_end()
                assert watcher.places() == [(n, 0) for n in range(1, 9)]

    async def test_a_long_history_is_read_through(self, harness: ContractHarness) -> None:
        """Everything behind `offset`, in order of offsets."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            for _ in range(6):
                records = [holder.outcome(f"step#{n}") for n in range(200)]
                committed(await holder.offer(holder.batch(*records)))
            await holder.finish()
            committed(await world.append(close("r")))
            assert places(await follow_all(world, "r")) == [(n, 0) for n in range(1, 1205)]

    async def test_following_waits_for_a_run_that_is_not_there(self, harness: ContractHarness) -> None:
        """It waits for a run that does not exist yet."""
        async with harness.open() as world, watching(world, "r") as watcher:
            await begin(world, "other")
            await begin(world, "r")
            await watcher.until_count(2)
            assert watcher.places() == [(1, 0), (2, 0)]

    async def test_following_from_the_end_of_a_closed_run(self, harness: ContractHarness) -> None:
        """It ends after `run.closed`."""
        async with harness.open() as world:
            await begin(world, "r")
            last = committed(await world.append(close("r"))).last
            assert await follow_all(world, "r", f"{last:016d}_{0:016d}") == []

    async def test_following_a_swept_run(self, harness: ContractHarness) -> None:
        """Raises `RunGone` for a swept one."""
        async with harness.open() as world:
            await begin(world, "r")
            committed(await world.append(close("r")))
            await harness.advance(10)
            assert await world.sweep(SweepPolicy(closed_older_than_seconds=5)) == 1
            assert (await refusal(RunGone, follow_all(world, "r"))).run_id == "r"

    async def test_an_offset_that_is_none_is_refused(self, harness: ContractHarness) -> None:
        """Raises ValueError if it is no offset."""
        async with harness.open() as world:
            await a_run_with_deltas(world)
            for offset in ("", "1", "0_0", "now", "000000000000000a_0000000000000000"):
                await refusal(ValueError, follow_all(world, "r", offset))

    async def test_leaving_changes_nothing(self, harness: ContractHarness) -> None:
        """Leaving it changes nothing for the run."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            before = await world.run("r")
            async with watching(world, "r") as watcher:
                await watcher.until_count(1)
            assert await world.run("r") == before
            await holder.record()

    async def test_deltas_of_an_ended_turn_leave_as_a_whole(self, harness: ContractHarness) -> None:
        """Kept until the turn has ended plus an hour."""
        async with harness.open() as world:
            self.needs_deltas(world)
            policy = SweepPolicy(closed_older_than_seconds=1e9, deltas_older_than_seconds=3600)
            await begin(world, "r")
            first = await hold(world, "r", lease_seconds=1e6)
            assert await world.publish(first.claim, deltas(b"first"))
            await harness.advance(4000)
            await world.sweep(policy)
            assert await self._deltas_so_far(world, 3) == [b"first"], "its turn has not ended"
            await begin(world, "r", "t2")
            await first.finish()
            second = await hold(world, "r", lease_seconds=1e6)
            assert await world.publish(second.claim, deltas(b"second"))
            await second.start()
            await harness.advance(3500)
            await world.sweep(policy)
            assert await self._deltas_so_far(world, 7) == [b"first", b"second"], "not an hour ago"
            await harness.advance(200)
            assert await world.sweep(policy) == 0
            assert await self._deltas_so_far(world, 6) == [b"second"]
            assert [r.seq for r in await world.read("r")] == [1, 2, 3, 4, 5], "records stay"

    async def _deltas_so_far(self, world: World, count: int) -> list[bytes]:
        async with watching(world, "r") as watcher:
            await watcher.until_count(count)
            return [item.data for item in watcher.items if isinstance(item, Delta)]

    async def test_followers_read_what_holders_write_at_once(self, harness: ContractHarness) -> None:
        """Records exactly once, deltas at most once, in order of offsets, while both are being written."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            async with watching(world, "r") as watcher:
                await self._write_and_publish(world, holder)
                committed(await world.append(close("r")))
                await watcher.until_end()
                found = watcher.places()
                assert found == sorted(set(found))
                assert [seq for seq, sub in found if sub == 0] == list(range(1, 24))

    async def _write_and_publish(self, world: World, holder: Holder) -> None:
        for n in range(20):
            await world.publish(holder.claim, deltas(b"a", b"b"))
            committed(await holder.offer(holder.batch(raw("r", b"%d" % n))))
