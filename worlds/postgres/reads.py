"""Reading: rows to what the ports speak of, each record checked against what was written."""

from heapq import merge
from typing import Any, cast
from zlib import crc32

from journal.core.clock import Clock
from journal.core.codec import verify
from journal.core.errors import CorruptRecord, RunGone, RunNotFound
from journal.core.ports import Delta, Item, RunInfo, RunQuery, TurnInfo
from journal.core.records import Record
from journal.worlds.postgres.binary import double, long
from journal.worlds.postgres.listening import Listener
from journal.worlds.postgres.pool import Pool, Row

CHUNK = 64
"""Records read in one statement: each may be of megabytes."""


class Place:
    """Where a run is kept, as of one look."""

    __slots__ = ("is_closed", "moved_to", "rid")

    def __init__(self, rid: int, is_closed: bool, moved_to: str | None) -> None:
        self.rid = rid
        self.is_closed = is_closed
        self.moved_to = moved_to


class Page:
    """What a follower takes at a time."""

    __slots__ = ("has_all", "is_over", "items", "moved_to")

    def __init__(
        self, items: list[Item], *, has_all: bool, is_over: bool, moved_to: str | None = None
    ) -> None:
        self.items = items
        self.moved_to = moved_to
        self.has_all = has_all
        """Whether that is all there was."""
        self.is_over = is_over
        """Whether nothing can come after it."""


class Reader:
    """Reads of one namespace."""

    def __init__(
        self, pool: Pool, namespace: str, url: str, clock: Clock | None, listener: Listener | None
    ) -> None:
        self._pool = pool
        self._namespace = namespace
        self._url = url
        self._clock = clock
        self._listener = listener

    def asked(self, run: str, **more: Any) -> dict[str, Any]:
        at = None if self._clock is None else self._clock.time()
        return {"namespace": self._namespace, "run": run, "at": at, **more}

    def place(self, run: str, row: Row) -> Place | None:
        """The run, by the columns that begin such a row; None: it was swept. Raises `RunGone`."""
        rid, is_closed, is_swept, is_gone, moved_to = row[:5]
        if is_gone:
            raise RunGone(run_id=run, to=moved_to)
        return None if is_swept else Place(rid, is_closed, moved_to)

    async def look(self, run: str) -> Place | None:
        """The run, or None. Raises `RunGone`."""
        rows = await self._pool.fetch("find_run", self.asked(run))
        return self.place(run, rows[0]) if rows else None

    async def find(self, run: str) -> Place:
        """The run. Raises `RunGone`, `RunNotFound`."""
        place = await self.look(run)
        if place is None:
            raise RunNotFound(run_id=run, world=self._url)
        return place

    async def _records(self, run: str, after: int, limit: int) -> tuple[Place | None, list[Record]]:
        """The run and its records behind `after`, seen at one moment, dense and undamaged."""
        rows = await self._pool.fetch("read_records", self.asked(run, after=after, limit=limit))
        return self._decoded(run, after, rows)

    def _decoded(self, run: str, after: int, rows: list[Row]) -> tuple[Place | None, list[Record]]:
        if not rows:
            return None, []
        place = self.place(run, rows[0])
        if place is None or rows[0][5] is None:
            return place, []
        found: list[Record] = []
        for expected, row in enumerate(rows, after + 1):
            seq, time, kind, turn, key, epoch, batch, body, checksum, key_id = row[5:15]
            if seq != expected:
                raise CorruptRecord(run_id=run, seq=expected, reason="it is missing")
            try:
                record = Record(
                    run, seq, time, kind, _text(turn), _text(key), epoch, batch, body, checksum, _text(key_id)
                )
            except UnicodeDecodeError as error:
                raise CorruptRecord(run_id=run, seq=seq, reason=f"it does not decode: {error}") from None
            verify(record)
            found.append(record)
        return place, found

    async def records(self, run: str, after: int, limit: int) -> list[Record]:
        """See `Log.read`."""
        found: list[Record] = []
        while True:
            wanted = min(CHUNK, limit - len(found))
            place, piece = await self._records(run, after + len(found), max(wanted, 0))
            if place is None:
                raise RunNotFound(run_id=run, world=self._url)
            found += piece
            if len(piece) < CHUNK or len(found) >= limit:
                return found

    async def page(self, run: str, offset: tuple[int, int]) -> Page:
        """Items behind `offset`, in its order."""
        seq, sub = offset
        # Records first: a delta that is seen with them lies behind a record that was seen too.
        asked = self.asked(run, after=seq, sub=sub, limit=CHUNK)
        found = await self._read_where_heard(asked) if self._listener is not None else None
        if found is None:
            found = await self._pool.fetch("read_page", asked)
        place, records = self._decoded(run, seq, found)
        if place is None:
            return Page([], has_all=True, is_over=False)
        rows: list[Row] = []
        if found[0][15]:
            reached = records[-1].seq if records else seq
            more = {"rid": place.rid, "seq": seq, "sub": sub, "reached": reached, "limit": CHUNK}
            rows = await self._pool.fetch("read_deltas", more)
        has_all = len(records) < CHUNK and len(rows) < CHUNK
        is_over = has_all and place.is_closed
        if not rows:
            return Page(list(records), has_all=has_all, is_over=is_over, moved_to=place.moved_to)
        deltas: list[Item] = [
            Delta(seq=at, sub=nth, time=time, call=_call(run, at, call), number=number, data=data)
            for at, nth, time, call, number, data in rows
        ]
        items: list[Item] = list(merge(cast(list[Item], records), deltas, key=_offset))
        if len(rows) == CHUNK:
            # More deltas may lie behind the last one, before the records that follow it.
            last = _offset(deltas[-1])
            items = [item for item in items if _offset(item) <= last]
        return Page(items, has_all=has_all, is_over=is_over, moved_to=place.moved_to)

    async def _read_where_heard(self, asked: dict[str, Any]) -> list[Row] | None:
        assert self._listener is not None, "asked only if there is one"
        # In the order in which the statement names them.
        parameters = [
            double(asked["at"]),
            long(asked["after"]),
            long(asked["sub"]),
            long(asked["limit"]),
            asked["namespace"].encode(),
            asked["run"].encode(),
        ]
        return await self._listener.read(b"read_page", parameters)

    async def info(self, run: str) -> RunInfo | None:
        """The run as listings show it, or None. Raises `RunGone`."""
        rows = await self._pool.fetch("get_info", self.asked(run))
        if not rows or self.place(run, rows[0]) is None:
            return None
        return _info(rows[0][5:])

    async def list(self, query: RunQuery) -> list[RunInfo]:
        """A page of runs, newest first."""
        asked = {
            "namespace": self._namespace,
            "before": 2**63 - 1 if query.before is None else query.before,
            "limit": query.limit,
            "agent": query.agent,
            "status": query.status,
        }
        if query.status is not None:
            name = "list_runs_by_status"
        elif query.agent is not None:
            name = "list_runs_by_agent"
        else:
            name = "list_runs"
        return [_info(row) for row in await self._pool.fetch(name, asked)]

    async def turn(self, run: str, turn: str) -> TurnInfo | None:
        """One turn, or None. Raises `RunGone`."""
        rows = await self._pool.fetch("get_turn", self.asked(run, turn=turn.encode()))
        if not rows or self.place(run, rows[0]) is None or rows[0][5] is None:
            return None
        name, submitted, status, finished = rows[0][5:]
        return TurnInfo(name.decode(), submitted, status, finished)

    async def blob(self, run: str, blob: str) -> bytes:
        """The blob's bytes. Raises `CorruptRecord` (seq 0) if it is missing or damaged."""
        place = await self.find(run)
        rows = await self._pool.fetch("get_blob", {"rid": place.rid, "blob": blob.encode()})
        if not rows:
            raise CorruptRecord(run_id=run, seq=0, reason=f"its blob {blob} is missing")
        data: bytes = rows[0][0]
        if crc32(data) != rows[0][1]:
            raise CorruptRecord(run_id=run, seq=0, reason=f"the checksum of its blob {blob} does not match")
        return data


def _call(run: str, seq: int, name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise CorruptRecord(
            run_id=run, seq=seq, reason=f"output behind it does not decode: {error}"
        ) from None


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def _info(row: Row) -> RunInfo:
    run, agent, namespace, status, is_closed, created, turns, epoch, takeovers, due_at, rid = row[:11]
    head, turn, moved_to, is_building = row[11:]
    return RunInfo(
        run=run,
        agent=agent,
        namespace=namespace,
        status=status,
        closed=is_closed,
        head=head or 0,
        created=created,
        turn=_text(turn),
        turns=turns,
        epoch=epoch,
        takeovers=takeovers,
        due_at=due_at,
        position=rid,
        moved_to=moved_to,
        building=is_building,
    )


def _offset(item: Item) -> tuple[int, int]:
    return item.seq, item.sub if isinstance(item, Delta) else 0
