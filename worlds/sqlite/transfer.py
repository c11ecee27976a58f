"""Runs on their way from and to a file (`ports.Transfer`): one read transaction there, the writer's here."""

import sqlite3
from collections.abc import Sequence
from zlib import crc32

from journal.core.codec import Blob
from journal.core.errors import RunGone, RunNotBuilding, RunNotFound, UsageError
from journal.core.ports import KeyInfo, RunImage, TurnInfo
from journal.core.records import Record
from journal.worlds.sqlite.door import Door
from journal.worlds.sqlite.entry import Known
from journal.worlds.sqlite.statements import SQL
from journal.worlds.transfer import (
    LAPSED,
    check_complete,
    kept,
    kept_image,
    new_records,
    settled,
    status_of_image,
)

Lease = tuple[float, str, int | None, int | None]
"""Until when, on the clock of which boot, and whose."""


def read_image(
    connection: sqlite3.Connection, namespace: str, run: str, *, now: float, url: str
) -> tuple[RunImage, Lease | None]:
    """The run at one moment, and the lease of whoever has claimed it. Raises `RunNotFound`, `RunGone`."""
    connection.execute("begin")
    try:
        return _read_image(connection, namespace, run, now, url)
    finally:
        connection.execute("rollback")


def _read_image(
    connection: sqlite3.Connection, namespace: str, run: str, now: float, url: str
) -> tuple[RunImage, Lease | None]:
    execute = connection.execute
    row = execute(SQL["image"], (namespace, run)).fetchone()
    if row is None or (row[1] is not None and row[1] <= now):
        raise RunNotFound(run_id=run, world=url)
    rid, gone_until, moved_to, agent, created, min_reader, closed, epoch, status = row[:9]
    priority, due_at, takeovers, is_building, is_claimed, *lease, head = row[9:]
    if gone_until is not None:
        raise RunGone(run_id=run, to=moved_to)
    image = RunImage(
        run=run,
        agent=agent,
        created=created,
        min_reader=min_reader,
        closed=closed,
        epoch=epoch,
        head=head or 0,
        turns=tuple(sorted((TurnInfo(*turn) for turn in execute(SQL["turns_of"], (rid,))), key=_submitted)),
        keys=tuple(KeyInfo(*key) for key in execute(SQL["keys_of"], (rid,))),
        blobs=tuple(blob for (blob,) in execute(SQL["blobs_of"], (rid,))),
        status=status_of_image(status),
        priority=priority,
        due_at=due_at,
        takeovers=takeovers,
        moved_to=moved_to,
        building=bool(is_building),
    )
    return image, (lease[0], lease[1], lease[2], lease[3]) if is_claimed else None


class Transfers:
    """The members of transactions that build up a run. A refusal is an answer, and writes nothing."""

    def __init__(self, door: Door, url: str) -> None:
        self._door = door
        self._url = url

    def build(self, asked: tuple[RunImage, Sequence[Record], Sequence[Blob]]) -> int | UsageError:
        """See `Transfer.build`."""
        image, records, blobs = asked
        door, run = self._door, image.run
        known = door.look(run)
        if known is not None and known.gone_until is not None:
            comes_back = known.moved_to is not None and known.is_emptied
            if not (comes_back or door.is_free(known)):
                return RunGone(run_id=run, to=known.moved_to)
            door.free(run, known)
            known = None
        if known is not None and not known.is_building and not self._is_untouched(known, image, records):
            return RunNotBuilding(run_id=run, world=self._url)
        head = known.head if known else 0
        try:
            new = new_records(run, head, records)
        except UsageError as refused:
            return refused
        rid = known.rid if known else door.add_run(run, image.agent, image.created, image.min_reader)
        self._write(rid, known.segment if known else 0, image, new, blobs)
        door.forget_run(run)
        return head + len(new)

    def _is_untouched(self, known: Known, image: RunImage, records: Sequence[Record]) -> bool:
        """Whether the run is a settled copy that goes on with these."""
        self._door.flush()  # what this group has appended to it
        for record in records:
            if record.seq == known.head:
                asked = (record.seq, known.rid, image.epoch, record.batch, record.time, record.body)
                return self._door.connection.execute(SQL["is_untouched"], asked).fetchone() is not None
        return False

    def _write(
        self, rid: int, segment: int, image: RunImage, new: Sequence[Record], blobs: Sequence[Blob]
    ) -> None:
        connection = self._door.connection
        execute, many = connection.execute, connection.executemany
        entry = (image.status, image.priority, image.epoch, image.takeovers, kept(image), rid)
        execute(SQL["build_run"], (image.agent, image.created, image.min_reader, len(image.turns), *entry))
        self._door.copy_records(rid, segment, new)
        many(SQL["add_blob"], [(rid, blob.id, crc32(blob.data), blob.data) for blob in blobs])
        execute(SQL["forget_turns"], (rid,))
        many(SQL["build_turn"], [(rid, t.turn, t.submitted, t.status, t.finished) for t in image.turns])
        execute(SQL["forget_keys"], (rid,))
        many(SQL["add_key"], [(rid, k.key, k.digest, k.first, k.last, k.time) for k in image.keys])

    def settle(self, asked: tuple[str, bool]) -> UsageError | None:
        """See `Transfer.settle`."""
        run, is_live = asked
        door = self._door
        known = door.look(run)
        if known is not None and known.gone_until is not None and not door.is_free(known):
            return RunGone(run_id=run, to=known.moved_to)
        if known is None or known.gone_until is not None:
            return RunNotFound(run_id=run, world=self._url)
        if not known.is_building:
            return RunNotBuilding(run_id=run, world=self._url)
        execute = door.connection.execute
        image = kept_image(execute(SQL["get_building"], (known.rid,)).fetchone()[0])
        try:
            check_complete(run, known.head, image.head)
        except UsageError as refused:
            return refused
        status, due_at = settled(image, is_live=is_live)
        token = LAPSED if status == "running" else None
        asked_of = {
            "status": status,
            "due_at": due_at,
            "closed": image.closed,
            "token": token,
            "rid": known.rid,
        }
        execute(SQL["settle_run"], asked_of)
        door.forget_run(run)
        door.changes.has_work |= due_at is not None or token is not None
        return None


def _submitted(turn: TurnInfo) -> int:
    return turn.submitted
