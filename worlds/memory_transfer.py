"""Runs on their way from and to the memory world (`ports.Transfer`)."""

from collections.abc import Sequence
from math import inf

from msgspec.structs import replace

from journal.core.codec import Blob
from journal.core.errors import RunGone, RunNotBuilding
from journal.core.ports import Committed, KeyInfo, RunImage
from journal.core.records import Record
from journal.worlds.memory_bells import Key
from journal.worlds.memory_store import Run, Store
from journal.worlds.queue import Entry
from journal.worlds.transfer import LAPSED, check_complete, new_records, settled, status_of_image


def image_of(run: Run, *, boot: float) -> RunImage:
    """The run as it is; under the store's lock."""
    entry = run.entry
    is_held = entry.token is not None and run.lease_until > boot
    return RunImage(
        run=run.run,
        agent=run.agent,
        created=run.created,
        min_reader=run.min_reader,
        closed=run.closed_at if run.is_closed else None,
        epoch=entry.epoch,
        head=run.head,
        turns=tuple(sorted(run.turns.values(), key=lambda turn: turn.submitted)),
        keys=tuple(
            KeyInfo(key, digest, answer.first, answer.last, answer.time)
            for key, (digest, answer) in sorted(run.keys.items())
        ),
        blobs=tuple(sorted(run.blobs)),
        status=status_of_image(entry.status),
        priority=entry.priority,
        due_at=None if run.is_closed else entry.due_at,
        takeovers=entry.takeovers,
        held=is_held,
        abandoned=entry.token is not None and not is_held,
        moved_to=run.moved_to,
        building=run.building is not None,
    )


def build(
    store: Store,
    key: Key,
    image: RunImage,
    records: Sequence[Record],
    blobs: Sequence[Blob],
    *,
    url: str,
    now: float,
) -> int:
    """See `Transfer.build`."""
    with store.lock:
        grave = store.grave(key, now)
        if grave is not None and grave.to is None:
            raise RunGone(run_id=image.run)
        run = store.runs.get(key)
        if run is not None and run.building is None and not _is_untouched(run, image, records):
            raise RunNotBuilding(run_id=image.run, world=url)
        new = new_records(image.run, run.head if run else 0, records)
        if run is None:
            run = store.add(key, image.agent, min_reader=image.min_reader, created=image.created)
        run.building = image
        run.agent, run.min_reader, run.created = image.agent, image.min_reader, image.created
        run.records += [replace(record, body=bytes(record.body)) for record in new]
        for record in new:
            known = run.batches.get(record.batch)
            first = known.first if known else record.seq
            run.batches[record.batch] = Committed(first, record.seq, record.time)
        run.blobs.update((blob.id, bytes(blob.data)) for blob in blobs)
        run.turns = {turn.turn: turn for turn in image.turns}
        run.unfinished = {turn.turn: turn for turn in image.turns if turn.finished is None}
        run.keys = {k.key: (k.digest, Committed(k.first, k.last, k.time)) for k in image.keys}
        run.entry = Entry(
            agent=image.agent,
            priority=image.priority,
            epoch=image.epoch,
            takeovers=image.takeovers,
            min_reader=image.min_reader,
            status=image.status,
        )
        head = run.head
    store.bells.ring(key)
    return head


def _is_untouched(run: Run, image: RunImage, records: Sequence[Record]) -> bool:
    """Whether the run is a settled copy that goes on with these; under the store's lock."""
    entry = run.entry
    return (
        not run.is_closed
        and entry.token is None
        and entry.due_at is None
        and entry.epoch <= image.epoch
        and (entry.status == "blocked" or not run.unfinished)
        and run.records[-1] in records
    )


def settle(store: Store, key: Key, run: Run, *, is_live: bool, url: str) -> None:
    """See `Transfer.settle`; under the store's lock."""
    image = run.building
    if image is None:
        raise RunNotBuilding(run_id=run.run, world=url)
    check_complete(run.run, run.head, image.head)
    status, due_at = settled(image, is_live=is_live)
    run.entry = replace(
        run.entry, status=status, due_at=due_at, token=LAPSED if status == "running" else None
    )
    run.lease_until = -inf
    run.building = None
    if image.closed is not None:
        run.is_closed, run.closed_at = True, image.closed
    store.changed(key, run)
