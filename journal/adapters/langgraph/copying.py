"""A thread's checkpoints as the records that make them anew in another thread."""

from collections.abc import AsyncIterator

from journal.adapters.langgraph.threads import Thread
from journal.core.codec import Blob, pack
from journal.core.records import Body, Packed, ThreadCheckpoint, ThreadWrite, ThreadWrites
from journal.replay.thread import Place, ThreadFold, Version


async def copies(source: Thread, fold: ThreadFold) -> AsyncIterator[tuple[list[Body], list[Blob]]]:
    """The records of each checkpoint and its writes, oldest first, with the blobs that they refer to."""
    written: set[tuple[str, str, Version]] = set()
    for place in reversed(fold.newest_first()):
        yield await _copy(source, fold, place, written)


async def _copy(
    source: Thread, fold: ThreadFold, place: Place, written: set[tuple[str, str, Version]]
) -> tuple[list[Body], list[Blob]]:
    body, blobs = fold.checkpoints[place], []

    async def moved(packed: Packed) -> Packed:
        kind, data = await source.load(packed)
        value, blob = pack(data)
        if blob is not None:
            blobs.append(blob)
        return Packed(kind, value)

    channels: dict[str, Packed | None] = {}
    for channel, packed in fold.values(body).items():
        version = (body.namespace, channel, body.versions[channel])
        if version not in written:
            written.add(version)
            channels[channel] = await moved(packed)
    bodies: list[Body] = [
        ThreadCheckpoint(
            namespace=body.namespace,
            id=body.id,
            parent=body.parent,
            checkpoint=await moved(body.checkpoint),
            metadata=await moved(body.metadata),
            versions=body.versions,
            channels=channels,
        )
    ]
    for write in fold.writes(place):
        copied = ThreadWrite(write.index, write.channel, await moved(write.value))
        bodies.append(
            ThreadWrites(
                namespace=body.namespace,
                checkpoint=body.id,
                task=write.task,
                path=write.path,
                writes=(copied,),
            )
        )
    return bodies, blobs
