"""Runs on their way from and to a server (`ports.Transfer`): a statement each, the writing ones under the run's lock.

What each writes stands in `functions/transfer.sql`. All of them may be asked twice.
"""

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from journal.core.codec import Blob
from journal.core.errors import RunGone, RunNotBuilding, RunNotFound
from journal.core.ports import KeyInfo, RunImage, TurnInfo
from journal.core.records import Record
from journal.worlds.postgres.places import Places
from journal.worlds.postgres.pool import Pool
from journal.worlds.postgres.reads import Reader
from journal.worlds.transfer import check_complete, kept, kept_image, new_records, settled, status_of_image

_NOT_BUILDING, _GONE, _GAP = 2, 3, 4


class Transfers:
    """Images, and runs that are built, of one namespace."""

    def __init__(self, pool: Pool, reader: Reader, places: Places, url: str) -> None:
        self._pool = pool
        self._reader = reader
        self._places = places
        self._url = url

    async def image(self, run: str) -> RunImage:
        """See `Transfer.image`."""
        row = await self._find("image", run)
        moved_to, agent, created, min_reader, closed, epoch, status, priority, due_at, takeovers = row[4:14]
        is_held, is_claimed, is_building, head, *columns = row[14:]
        turns, submitted, statuses, finished, keys, digests, firsts, lasts, times, blobs = columns
        return RunImage(
            run=run,
            agent=agent,
            created=created,
            min_reader=min_reader,
            closed=closed,
            epoch=epoch,
            head=head,
            turns=tuple(
                TurnInfo(turn.decode(), *rest)
                for turn, *rest in zip(turns, submitted, statuses, finished, strict=True)
            ),
            keys=tuple(
                KeyInfo(key.decode(), *rest)
                for key, *rest in zip(keys, digests, firsts, lasts, times, strict=True)
            ),
            blobs=tuple(blob.decode() for blob in blobs),
            status=status_of_image(status),
            priority=priority,
            due_at=due_at,
            takeovers=takeovers,
            held=is_held,
            abandoned=is_claimed and not is_held,
            moved_to=moved_to,
            building=is_building,
        )

    async def build(self, image: RunImage, records: Sequence[Record], blobs: Sequence[Blob]) -> int:
        """See `Transfer.build`."""
        run = image.run
        new_records(run, records[-1].seq if records else 0, records)  # dense in themselves
        asked = self._reader.asked(run, lock=self._places.lock(run), building=kept(image))
        for name in ("agent", "created", "min_reader", "status", "priority", "epoch", "takeovers"):
            asked[name] = getattr(image, name)
        asked |= _columns(image, records, blobs)
        ((answer, head, moved_to),) = await self._pool.fetch("build", asked)
        if answer == _NOT_BUILDING:
            raise RunNotBuilding(run_id=run, world=self._url)
        if answer == _GONE:
            raise RunGone(run_id=run, to=moved_to)
        if answer == _GAP:
            new_records(run, head, records)
        found: int = head
        return found

    async def settle(self, run: str, *, is_live: bool) -> bool:
        """See `Transfer.settle`; answers whether the run is due at some time."""
        while True:
            rid, *_, building, head = await self._find("get_building", run)
            if building is None:
                raise RunNotBuilding(run_id=run, world=self._url)
            image = kept_image(building)
            check_complete(run, head, image.head)
            status, due_at = settled(image, is_live=is_live)
            asked = {
                "lock": self._places.lock(run),
                "rid": rid,
                "building": building,
                "head": head,
                "status": status,
                "due_at": due_at,
                "closed": image.closed,
            }
            # Not asked again where the connection was lost: that it is settled is no news then, but a refusal.
            ((is_settled,),) = await self._pool.fetch("settle", asked, is_read=False)
            if is_settled:
                return due_at is not None or status == "running"

    async def _find(self, name: str, run: str) -> tuple[Any, ...]:
        rows = await self._pool.fetch(name, self._reader.asked(run))
        if not rows or self._reader.place(run, rows[0]) is None:
            raise RunNotFound(run_id=run, world=self._url)
        return rows[0]


def _columns(image: RunImage, records: Sequence[Record], blobs: Sequence[Blob]) -> dict[str, Any]:
    return {
        "t_turn": [turn.turn.encode() for turn in image.turns],
        "t_submitted": [turn.submitted for turn in image.turns],
        "t_status": [turn.status for turn in image.turns],
        "t_finished": [turn.finished for turn in image.turns],
        "k_key": [key.key.encode() for key in image.keys],
        "k_digest": [key.digest for key in image.keys],
        "k_first": [key.first for key in image.keys],
        "k_last": [key.last for key in image.keys],
        "k_time": [key.time for key in image.keys],
        "r_seq": [record.seq for record in records],
        "r_time": [record.time for record in records],
        "r_type": [record.type for record in records],
        "r_turn": [_encoded(record.turn) for record in records],
        "r_key": [_encoded(record.key) for record in records],
        "r_epoch": [record.epoch for record in records],
        "r_batch": [record.batch for record in records],
        "r_body": [record.body for record in records],
        "r_checksum": [record.checksum for record in records],
        "r_key_id": [_encoded(record.key_id) for record in records],
        "l_id": [blob.id.encode() for blob in blobs],
        "l_checksum": [crc32(blob.data) for blob in blobs],
        "l_data": [blob.data for blob in blobs],
    }


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
