"""Reading: replies to what the ports speak of, each record checked against what was written.

Commands of one read go out together and are run one after the other, in the order that makes what they show add up.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from heapq import merge
from typing import Any, cast
from zlib import crc32

import msgspec

from journal.core.codec import verify
from journal.core.errors import CorruptRecord, RunGone, RunNotFound
from journal.core.ports import Delta, Item, RunInfo, RunQuery, TurnInfo
from journal.core.records import Record, TurnStatus
from journal.worlds.redis.calls import ignored
from journal.worlds.redis.door import CHUNK_BYTES
from journal.worlds.redis.keys import Keys, escaped, sortable
from journal.worlds.redis.wire import Wire

CHUNK = 128
"""Items read in one go."""

_Meta = tuple[str, str | None, str | None, int, str | None]
_read_meta = msgspec.msgpack.Decoder(_Meta).decode
_read_open = msgspec.msgpack.Decoder(list[tuple[int, str]]).decode
_INFO = (
    "tip",
    "gone",
    "agent",
    "status",
    "created",
    "open",
    "turns",
    "due",
    "pos",
    "moved",
    "building",
)


class Page(msgspec.Struct, frozen=True):
    """What a follower takes at a time."""

    items: list[Item]
    has_all: bool
    """Whether that is all there was."""
    is_over: bool
    """Whether nothing can come after it."""
    moved_to: str | None = None


class Reader:
    """Reads of one namespace. `now` asks the store's clock."""

    def __init__(
        self, wire: Wire, keys: Keys, now: Callable[[], Awaitable[float]], *, namespace: str, url: str
    ) -> None:
        self._wire = wire
        self._keys = keys
        self._now = now
        self._namespace = namespace
        self._url = url

    async def records(self, run: str, after: int, limit: int) -> list[Record]:
        """Up to `limit` records behind `after`. Raises `CorruptRecord`, `RunNotFound`, `RunGone`."""
        keys = self._keys.of_run(run)
        state = ignored(self._wire.call(("HMGET", keys.hash, "gone", "moved", "pos")))
        rows: list[Any] = []
        if limit > 0:
            rows = await self._wire.call(("XRANGE", keys.stream, f"({after}-0", "+", "COUNT", limit))
        await self._check(run, await state)
        return _records(run, after, rows)

    async def page(self, run: str, offset: tuple[int, int]) -> Page:
        """Items behind `offset`, in its order. Raises `CorruptRecord`, `RunGone`."""
        keys = self._keys.of_run(run)
        seq, sub = offset
        # Closed first: nothing comes behind what is read then. Records before deltas: what was published below a
        # record that was read is there by then.
        (gone, moved, closed), found, rows = await self._wire.together(
            ("HMGET", keys.hash, "gone", "moved", "closed"),
            ("XRANGE", keys.stream, f"({seq}-0", "+", "COUNT", CHUNK),
            ("XRANGE", keys.deltas, f"({seq}-{sub}", "+", "COUNT", CHUNK),
        )
        await self.check_gone(run, gone, moved)
        records = _records(run, seq, found)
        reached = records[-1].seq if records else seq
        deltas: list[Item] = [delta for row in rows if (delta := _delta(run, row)).seq <= reached]
        has_all = len(records) < CHUNK and len(deltas) == len(rows) < CHUNK
        is_over = has_all and closed is not None
        items: list[Item] = list(merge(cast(list[Item], records), deltas, key=_place))
        if len(rows) == CHUNK and deltas:
            # More deltas may lie behind the last one, before the records that follow it.
            last = _place(deltas[-1])
            items = [item for item in items if _place(item) <= last]
        return Page(items, has_all, is_over, moved.decode() if moved else None)

    async def info(self, run: str) -> RunInfo | None:
        """The run as listings show it, or None. Raises `RunGone`."""
        row = await self._wire.call(("HMGET", self._keys.of_run(run).hash, *_INFO))
        await self.check_gone(run, row[1], row[-2])
        return self._info(run, row)

    def _info(self, run: str, row: list[Any]) -> RunInfo | None:
        tip, _, agent, status, created, opened, turns, due, pos, moved, building = row
        if tip is None:
            return None
        with _damage_named(run, 0):
            unfinished = _read_open(opened) if opened else []
            return RunInfo(
                run=run,
                agent=agent.decode(),
                namespace=self._namespace,
                status=status.decode(),
                closed=tip[22] >= 2 and building is None,
                head=int.from_bytes(tip[:6], "big"),
                created=float(created),
                turn=unfinished[0][1] if unfinished else None,
                turns=int(turns or 0),
                epoch=int.from_bytes(tip[6:12], "big"),
                takeovers=int.from_bytes(tip[18:22], "big"),
                due_at=float(due) if due else None,
                position=int(pos, 16) * self._keys.partitions + self._keys.partition(run),
                moved_to=moved.decode() if moved else None,
                building=building is not None,
            )

    async def turn(self, run: str, turn: str) -> TurnInfo | None:
        """One turn, or None. Raises `RunGone`."""
        hash_ = self._keys.of_run(run).hash
        gone, moved, found = await self._wire.call(("HMGET", hash_, "gone", "moved", f"t:{turn}"))
        await self.check_gone(run, gone, moved)
        if found is None:
            return None
        with _damage_named(run, 0):
            return read_turn(turn, found)

    async def runs(self, query: RunQuery) -> list[RunInfo]:
        """A page of runs, newest first."""
        found: list[RunInfo] = []
        before, has_more = query.before, True
        while has_more and len(found) < query.limit:
            places, has_more = await self._places(query, before)
            rows = [
                ignored(self._wire.call(("HMGET", self._keys.of_run(run).hash, *_INFO))) for _, run in places
            ]
            for (position, run), row in zip(places, rows, strict=True):
                before = position
                info = self._info(run, await row)
                # As listed, it may have been another a moment ago.
                is_wanted = info is not None and query.status in (None, info.status)
                if info is not None and is_wanted and query.agent in (None, info.agent):
                    found.append(info)
        return found[: query.limit]

    async def _places(self, query: RunQuery, before: int | None) -> tuple[list[tuple[int, str]], bool]:
        """Positions and ids of some runs before a position, newest first, and whether there may be more.

        A few are asked of each partition. Where one may have more, those of others behind its last have to wait.
        """
        kind = b"*"
        if query.status is not None:
            kind = b"s" + query.status.encode() + b"\0"
        elif query.agent is not None:
            kind = b"a" + escaped(query.agent) + b"\0"
        partitions = self._keys.partitions
        count = 2 * -(-query.limit // partitions) + 2
        asked = []
        for partition, index in enumerate(self._keys.indexes):
            top = b"(" + kind + b"g"
            if before is not None:
                micros, its = divmod(before, partitions)
                top = b"(" + kind + sortable(micros + (partition < its))
            command = ("ZRANGE", index, top, b"[" + kind, "BYLEX", "REV", "LIMIT", 0, count)
            asked.append(ignored(self._wire.call(command)))
        places: list[tuple[int, str]] = []
        bound = -1
        for partition, members in enumerate([await reply for reply in asked]):
            for member in members:
                pos, rest = member[len(kind) : len(kind) + 14], member[len(kind) + 14 :]
                name = rest.partition(b"\0")[2] if query.status is not None else rest
                places.append((int(pos, 16) * partitions + partition, name.decode()))
            if len(members) == count:
                bound = max(bound, places[-1][0])
        places.sort(reverse=True)
        sure = [place for place in places if place[0] >= bound][: query.limit]
        return sure, bound >= 0 or len(sure) < len(places)

    async def blob(self, run: str, blob: str) -> bytes:
        """The blob's bytes. Raises `CorruptRecord` (seq 0) if it is missing or damaged."""
        keys = self._keys.of_run(run)
        state = ignored(self._wire.call(("HMGET", keys.hash, "gone", "moved", "pos")))
        weight = await self._wire.call(("HGET", keys.blobs, f"=:{blob}"))
        await self._check(run, await state)
        if weight is None:
            raise CorruptRecord(run_id=run, seq=0, reason=f"its blob {blob} is missing")
        size, _, expected = weight.partition(b" ")
        data = bytearray()
        while len(data) < int(size):
            piece = await self._wire.call(("HGET", keys.blobs, f"{len(data) // CHUNK_BYTES}:{blob}"))
            if not piece:
                break
            data += piece
        if len(data) != int(size) or crc32(data) != int(expected):
            raise CorruptRecord(run_id=run, seq=0, reason=f"the checksum of its blob {blob} does not match")
        return bytes(data)

    async def check_gone(self, run: str, gone: Any, moved: Any) -> None:
        """Raise `RunGone` if those fields of its hash say so."""
        if gone is not None and float(gone) > await self._now():
            raise RunGone(run_id=run, to=moved.decode() if moved else None)

    async def _check(self, run: str, state: Any) -> None:
        gone, moved, pos = state
        await self.check_gone(run, gone, moved)
        if pos is None:
            raise RunNotFound(run_id=run, world=self._url)


def read_turn(turn: str, kept: bytes) -> TurnInfo:
    """A turn, from its field of the hash."""
    submitted, *ended = kept.decode().split(" ")
    status, finished = ended or (None, None)
    return TurnInfo(
        turn, int(submitted), cast(TurnStatus | None, status), int(finished) if finished else None
    )


def _records(run: str, after: int, rows: Any) -> list[Record]:
    """Dense and undamaged, else `CorruptRecord`."""
    found: list[Record] = []
    for expected, (place, fields) in enumerate(rows, after + 1):
        if int(place.partition(b"-")[0]) != expected:
            raise CorruptRecord(run_id=run, seq=expected, reason="it is missing")
        with _damage_named(run, expected):
            record = _record(run, expected, fields[1], fields[3])
        verify(record)
        found.append(record)
    return found


def _record(run: str, seq: int, meta: bytes, body: bytes) -> Record:
    place = 1 + meta[0]
    time, epoch, written = meta[place:].split(b" ", 2)
    kind, turn, key, checksum, key_id = _read_meta(written)
    batch = meta[1:place]
    return Record(run, seq, float(time), kind, turn, key, int(epoch), batch, body, checksum, key_id)


def _delta(run: str, row: Any) -> Delta:
    seq, _, sub = row[0].partition(b"-")
    with _damage_named(run, int(seq)):
        _, meta, _, data = row[1]
        time, number, call = meta.split(b" ", 2)
        return Delta(
            call=call.decode(), number=int(number), data=data, seq=int(seq), sub=int(sub), time=float(time)
        )


@contextmanager
def _damage_named(run: str, seq: int) -> Iterator[None]:
    """What is not as we write it is a `CorruptRecord`, of seq 0 where it is about the run as a whole."""
    try:
        yield
    except (msgspec.MsgspecError, ValueError, IndexError, RecursionError) as error:
        raise CorruptRecord(run_id=run, seq=seq, reason=f"it does not decode: {error}") from None


def _place(item: Item) -> tuple[int, int]:
    return item.seq, item.sub if isinstance(item, Delta) else 0
