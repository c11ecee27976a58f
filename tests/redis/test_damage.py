"""Bytes in the store that are not ours: an error that names run and seq, and the other runs are spared."""

from typing import Any

import pytest
import redis

from journal.core.errors import CorruptRecord, WorldError
from journal.core.ports import World
from journal.worlds import open_world
from journal.worlds.contract.harness import (
    Holder,
    begin,
    claim_all,
    committed,
    follow_all,
    hold,
    refusal,
    seqs,
)
from journal.worlds.redis.address import parse_address
from journal.worlds.redis.keys import Keys

pytestmark = pytest.mark.anyio


class Intruder:
    """Somebody else with a connection, and the keys of run `hit`."""

    def __init__(self, server: str, url: str) -> None:
        self.client: Any = redis.Redis.from_url(server)
        self.keys = Keys(parse_address(url).prefix, "default", 64).of_run("hit")

    def rewrite(self, seq: int, fields: dict[Any, Any] | None) -> None:
        """Put other fields in the place of a record, or none: a stream cannot be changed, only made anew."""
        rows = self.client.xrange(self.keys.stream)
        self.client.delete(self.keys.stream)
        for place, old in rows:
            new = fields if place == b"%d-0" % seq else old
            if new is not None:
                self.client.xadd(self.keys.stream, new, id=place)


@pytest.fixture
def intruder(redis_server: str, url: str) -> Any:
    intruder = Intruder(redis_server, url)
    yield intruder
    intruder.client.close()


async def two_runs(world: World) -> Holder:
    for run in ("hit", "spared"):
        await begin(world, run)
        holder = await hold(world, run)
        for number in range(3):
            await holder.record(f"step#{number}")
    return holder


HOSTILE: dict[str, Any] = {
    "nothing": {"x": ""},
    "empty": {"m": "", "b": ""},
    "no batch": {"m": b"\xff", "b": "x"},
    "no time": {"m": b"\x01bxx 0 x", "b": "x"},
    "no MessagePack": {"m": b"\x01b1.5 0 \xc1", "b": "x"},
    "a map of four billion": {"m": b"\x01b1.5 0 \xdf\xff\xff\xff\xff", "b": "x"},
    "a hundred thousand levels": {"m": b"\x01b1.5 0 " + b"\x91" * 100_000, "b": "x"},
    "a pickle": {"m": b"\x80\x04.", "b": b"cos\nsystem\n(S'false'\ntR."},
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_an_entry_that_is_no_record(url: str, intruder: Intruder, name: str) -> None:
    """FAULTS 7 and 28."""
    async with open_world(url) as world:
        await two_runs(world)
        intruder.rewrite(4, HOSTILE[name])
        for attempt in (world.read("hit"), follow_all(world, "hit")):
            error = await refusal(CorruptRecord, attempt)
            assert (error.run_id, error.seq) == ("hit", 4)
        assert await seqs(world, "spared") == [1, 2, 3, 4, 5]


async def test_a_flipped_bit(url: str, intruder: Intruder) -> None:
    """FAULTS 7."""
    async with open_world(url) as world:
        await two_runs(world)
        ((_, fields),) = intruder.client.xrange(intruder.keys.stream, "4-0", "4-0")
        named: set[int | None] = set()
        for name in (b"b", b"m"):
            for place in range(len(fields[name])):
                flipped = bytearray(fields[name])
                flipped[place] ^= 1
                intruder.rewrite(4, {**fields, name: bytes(flipped)})
                try:
                    found = await world.read("hit")
                except CorruptRecord as error:
                    named.add(error.seq)
                else:
                    # Batch id, time and epoch are the store's own, and not under the writer's checksum.
                    assert name == b"m"
                    assert place <= fields[b"m"].index(b" ", fields[b"m"].index(b" ", 17) + 1)
                    assert [record.body for record in found][3] == fields[b"b"]
        assert named == {4}
        assert await seqs(world, "spared") == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("gone", [1, 4])
async def test_a_missing_record(url: str, intruder: Intruder, gone: int) -> None:
    """FAULTS 6 and 7: Redis has no triggers, so whoever may write may delete; it is found on reading."""
    async with open_world(url) as world:
        await two_runs(world)
        assert intruder.client.xdel(intruder.keys.stream, f"{gone}-0") == 1
        error = await refusal(CorruptRecord, world.read("hit"))
        assert (error.run_id, error.seq) == ("hit", gone)
        assert await seqs(world, "spared") == [1, 2, 3, 4, 5]


async def test_a_delta_that_is_none(url: str, intruder: Intruder) -> None:
    """FAULTS 28."""
    async with open_world(url) as world:
        await two_runs(world)
        intruder.client.xadd(intruder.keys.deltas, {"x": "y"}, id="4-1")
        error = await refusal(CorruptRecord, follow_all(world, "hit"))
        assert (error.run_id, error.seq) == ("hit", 4)


@pytest.mark.parametrize(
    "field", ["tip", "open", "created", "turns", "agent", "pos", "due", "lease", "reader", "priority"]
)
@pytest.mark.parametrize("value", [b"", b"\xff", b"\xdf\xff\xff\xff\xff"])
async def test_a_state_that_is_none(url: str, intruder: Intruder, field: str, value: bytes) -> None:
    """FAULTS 28: what decides about appends is refused, or goes on as if nothing were; nothing is half done."""
    async with open_world(url) as world:
        holder = await two_runs(world)
        intruder.client.hset(intruder.keys.hash, field, value)
        named: list[str] = []
        try:
            await world.run("hit")
        except CorruptRecord as error:
            named.append(error.run_id)
        assert set(named) <= {"hit"}
        before = intruder.client.xlen(intruder.keys.stream)
        try:
            await begin(world, "hit", "t2")
        except WorldError:
            assert intruder.client.xlen(intruder.keys.stream) == before
        committed(await holder.record("on#1"))


@pytest.mark.parametrize("value", [b"", b"\xff" * 40])
async def test_a_run_whose_state_is_none_does_not_stop_the_others(
    url: str, intruder: Intruder, value: bytes
) -> None:
    """FAULTS 7: it is due before them."""
    async with open_world(url) as world:
        await begin(world, "hit", priority=1)
        for number in range(200):
            await begin(world, f"r{number}")
        intruder.client.hset(intruder.keys.hash, "tip", value)
        claimed: list[str] = []
        for limit in (1, 60, 1, 60, 60, 60):
            claimed += [one.claim.run for one in await claim_all(world, limit=limit)]
        assert sorted(claimed) == sorted(f"r{n}" for n in range(200))
