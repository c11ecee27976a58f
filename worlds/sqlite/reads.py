"""Reading: rows to what the ports speak of, each record checked against what was written.

Every function is one or two statements that are fetched whole: nothing stays open behind them, so a reader who
pauses stops neither writers nor the checkpoint.
"""

import sqlite3
from heapq import merge
from typing import Any, cast
from zlib import crc32

from journal.core.codec import verify
from journal.core.errors import CorruptRecord, RunGone, RunNotFound
from journal.core.ports import Delta, Item, RunInfo, RunQuery, TurnInfo
from journal.core.records import Record
from journal.worlds.sqlite.statements import SQL

CHUNK = 64
"""Records read in one go in the event loop."""

_READ_RECORDS = SQL["read_records"]


class Place:
    """Where a run is kept, as of one look."""

    __slots__ = ("is_building", "is_closed", "moved_to", "rid")

    def __init__(self, rid: int, is_closed: bool, moved_to: str | None, is_building: bool) -> None:
        self.rid = rid
        self.is_closed = is_closed
        self.moved_to = moved_to
        self.is_building = is_building


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
    """Reads of one namespace, through whatever connection it is handed."""

    def __init__(self, namespace: str, url: str) -> None:
        self._namespace = namespace
        self._url = url

    def look(self, connection: sqlite3.Connection, run: str, now: float) -> Place | None:
        """The run, or None. Raises `RunGone`."""
        row = connection.execute(SQL["find_run"], (self._namespace, run)).fetchone()
        if row is None:
            return None
        rid, closed_at, gone_until, moved_to, is_building = row
        if gone_until is None:
            is_closed = closed_at is not None and not is_building
            return Place(rid, is_closed, moved_to, bool(is_building))
        if gone_until > now:
            raise RunGone(run_id=run, to=moved_to)
        return None

    def find(self, connection: sqlite3.Connection, run: str, now: float) -> Place:
        """The run. Raises `RunGone`, `RunNotFound`."""
        place = self.look(connection, run, now)
        if place is None:
            raise RunNotFound(run_id=run, world=self._url)
        return place

    def records(
        self, connection: sqlite3.Connection, place: Place, run: str, after: int, limit: int
    ) -> list[Record]:
        """Up to `limit` records behind `after`, dense and undamaged. Raises `CorruptRecord`."""
        rows = connection.execute(_READ_RECORDS, (place.rid, after, limit)).fetchall()
        if len(rows) < limit:
            rows += self._rest(connection, place, run, after, limit, len(rows))
        found: list[Record] = []
        for expected, row in enumerate(rows, after + 1):
            seq, time, kind, turn, key, epoch, batch, body, checksum, key_id = row
            if seq != expected:
                raise CorruptRecord(run_id=run, seq=expected, reason="it is missing")
            record = Record(run, seq, time, kind, turn, key, epoch, batch, body, checksum, key_id)
            try:
                # `codec.verify`, written out: once for every record.
                sealed = crc32(body, crc32(f"{run}\0{kind}\0{turn}\0{key}\0{key_id}".encode()))
            except (TypeError, UnicodeEncodeError) as error:  # a damaged row may hold any type
                raise CorruptRecord(run_id=run, seq=seq, reason=f"it does not decode: {error}") from None
            if sealed != checksum:
                verify(record)
            found.append(record)
        return found

    def _rest(
        self, connection: sqlite3.Connection, place: Place, run: str, after: int, limit: int, count: int
    ) -> list[Any]:
        """What has come since those `count` rows were read; raises `CorruptRecord` if the index hides some."""
        ((head,),) = connection.execute(SQL["head"], (place.rid,)).fetchall()
        if head is None and place.is_building:
            return []  # its blobs came first
        head = 0 if head is None else head
        if not isinstance(head, int) or 0 < head <= after + count:
            return []  # whoever looks at the rows finds the one that is no number
        rows = connection.execute(_READ_RECORDS, (place.rid, after + count, limit - count)).fetchall()
        if not rows:
            raise CorruptRecord(run_id=run, seq=after + count + 1, reason="it is missing")
        return rows

    def page(self, connection: sqlite3.Connection, run: str, offset: tuple[int, int], now: float) -> Page:
        """Items behind `offset`, in its order."""
        place = self.look(connection, run, now)
        if place is None:
            return Page([], has_all=True, is_over=False)
        seq, sub = offset
        # Records first: a delta that is seen with them lies behind a record that was seen too.
        records = self.records(connection, place, run, seq, CHUNK)
        reached = records[-1].seq if records else seq
        rows = connection.execute(SQL["read_deltas"], (place.rid, seq, sub, reached, CHUNK)).fetchall()
        has_all = len(records) < CHUNK and len(rows) < CHUNK
        is_over = has_all and place.is_closed
        if not rows:
            return Page(list(records), has_all=has_all, is_over=is_over, moved_to=place.moved_to)
        deltas: list[Item] = [
            Delta(seq=at, sub=nth, time=time, call=call, number=number, data=data)
            for at, nth, time, call, number, data in rows
        ]
        items: list[Item] = list(merge(cast(list[Item], records), deltas, key=_place))
        if len(rows) == CHUNK:
            # More deltas may lie behind the last one, before the records that follow it.
            last = _place(deltas[-1])
            items = [item for item in items if _place(item) <= last]
        return Page(items, has_all=has_all, is_over=is_over, moved_to=place.moved_to)

    def info(self, connection: sqlite3.Connection, run: str, now: float) -> RunInfo | None:
        """The run as listings show it, or None. Raises `RunGone`."""
        row = connection.execute(SQL["get_info"], (self._namespace, run)).fetchone()
        if row is None:
            return None
        if row[11] is not None:
            if row[11] > now:
                raise RunGone(run_id=run, to=row[14])
            return None
        return _info(row)

    def list(self, connection: sqlite3.Connection, query: RunQuery) -> list[RunInfo]:
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
        return [_info(row) for row in connection.execute(SQL[name], asked).fetchall()]

    def turn(self, connection: sqlite3.Connection, place: Place, turn: str) -> TurnInfo | None:
        """One turn, or None."""
        row = connection.execute(SQL["get_turn"], (place.rid, turn)).fetchone()
        return None if row is None else TurnInfo(*row)

    def blob(self, connection: sqlite3.Connection, run: str, blob: str, now: float) -> bytes:
        """The blob's bytes. Raises `CorruptRecord` (seq 0) if it is missing or damaged."""
        place = self.find(connection, run, now)
        row = connection.execute(SQL["get_blob"], (place.rid, blob)).fetchone()
        if row is None:
            raise CorruptRecord(run_id=run, seq=0, reason=f"its blob {blob} is missing")
        data: bytes = row[0]
        if not isinstance(data, bytes) or crc32(data) != row[1]:
            raise CorruptRecord(run_id=run, seq=0, reason=f"the checksum of its blob {blob} does not match")
        return data


def _info(row: tuple[Any, ...]) -> RunInfo:
    run, agent, namespace, status, is_closed, created, turns, epoch, takeovers, due_at, rid = row[:11]
    head, turn, moved_to, is_building = row[12:]
    return RunInfo(
        run=run,
        agent=agent,
        namespace=namespace,
        status=status,
        closed=bool(is_closed),
        head=head or 0,
        created=created,
        turn=turn,
        turns=turns,
        epoch=epoch,
        takeovers=takeovers,
        due_at=due_at,
        position=rid,
        moved_to=moved_to,
        building=bool(is_building),
    )


def _place(item: Item) -> tuple[int, int]:
    return item.seq, item.sub if isinstance(item, Delta) else 0
