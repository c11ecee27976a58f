"""`JournalSaver`: the journal as LangGraph's checkpointer. Every change is a record, what it answers a fold of them.

``create_agent(..., checkpointer=JournalSaver(journal))`` works with and without turns, sync and async, from several
processes at once. Values are written by LangGraph's serializer, which does not pickle. Next: `threads.py`
(where they live), `journal/replay/thread.py` (the fold).
Long since the interface has every method twice, async and sync.
"""

import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Self

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from journal.adapters.langgraph.blocking import Portal
from journal.adapters.langgraph.copying import copies
from journal.adapters.langgraph.place import holder_here
from journal.adapters.langgraph.threads import Thread, Threads
from journal.core.codec import Blob, pack
from journal.core.errors import InvalidOptions
from journal.core.records import (
    Body,
    Packed,
    ThreadCheckpoint,
    ThreadDropped,
    ThreadHeld,
    ThreadHolder,
    ThreadWrite,
    ThreadWrites,
)
from journal.engine.journal import Journal
from journal.replay.thread import Place, ThreadFold

_NO_STEP = -2


class JournalSaver(BaseCheckpointSaver[str]):
    """A checkpointer over `journal`'s store. `serde`: as for every checkpointer.

    Used without ``async``, it works on a thread of its own, which `close` (or ``with``) ends.
    """

    def __init__(self, journal: Journal, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        self._journal = journal
        self._threads: dict[int, Threads] = {}
        self._portal = Portal()

    # Async -------------------------------------------------------------------------------------------

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread_id, namespace = _thread_of(config), _namespace_of(config)
        kept: dict[str, Any] = {**checkpoint}
        channels, versions = kept.pop("channel_values"), kept.pop("channel_versions")
        packing = _Packing(self.serde)
        body = ThreadCheckpoint(
            namespace=namespace,
            id=checkpoint["id"],
            parent=config["configurable"].get("checkpoint_id"),
            checkpoint=packing.pack(kept),
            metadata=packing.pack(get_checkpoint_metadata(config, metadata)),
            versions=dict(versions),
            channels={
                channel: packing.pack(channels[channel]) if channel in channels else None
                for channel in new_versions
                if channel in versions
            },
            holder=holder_here(thread_id),
        )
        await self._append(thread_id, [body], packing.blobs)
        return _config(thread_id, namespace, checkpoint["id"])

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        thread_id = _thread_of(config)
        packing = _Packing(self.serde)
        body = ThreadWrites(
            namespace=_namespace_of(config),
            checkpoint=config["configurable"]["checkpoint_id"],
            task=task_id,
            path=task_path,
            writes=tuple(
                ThreadWrite(WRITES_IDX_MAP.get(channel, place), channel, packing.pack(value))
                for place, (channel, value) in enumerate(writes)
            ),
            holder=holder_here(thread_id),
        )
        await self._append(thread_id, [body], packing.blobs)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        threads = await self._here()
        async with threads.open(_thread_of(config)) as thread:
            fold = await thread.refresh()
            namespace = _namespace_of(config)
            found = get_checkpoint_id(config) or fold.latest(namespace)
            if found is None or (namespace, found) not in fold.checkpoints:
                return None
            return await self._tuple(thread, fold, (namespace, found))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the interface's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        threads = await self._here()
        asked: Mapping[str, Any] = (config or {}).get("configurable", {})
        namespace, only = asked.get("checkpoint_ns"), get_checkpoint_id(config) if config else None
        until = get_checkpoint_id(before) if before else None
        thread_id = asked.get("thread_id")
        given = 0
        for name in await threads.all() if thread_id is None else [str(thread_id)]:
            async with threads.open(name) as thread:
                fold = await thread.refresh()
                for place in fold.newest_first():
                    if namespace is not None and place[0] != namespace:
                        continue
                    if (only and place[1] != only) or (until and place[1] >= until):
                        continue
                    if limit is not None and given >= limit:
                        return
                    if filter and not await self._has(thread, fold, place, filter):
                        continue
                    given += 1
                    yield await self._tuple(thread, fold, place)

    async def adelete_thread(self, thread_id: str) -> None:
        threads = await self._here()
        async with threads.open(thread_id) as thread:
            await self._drop_all(thread)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        if not run_ids:
            return
        threads = await self._here()
        gone = set(run_ids)
        for name in await threads.all():
            async with threads.open(name) as thread:
                fold = await thread.refresh()
                places = [
                    place
                    for place in fold.checkpoints
                    if (await self._metadata(thread, fold, place)).get("run_id") in gone
                ]
                await self._drop(thread, places)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        threads = await self._here()
        if source_thread_id == target_thread_id:
            return
        async with threads.open(source_thread_id) as source, threads.open(target_thread_id) as target:
            async for bodies, blobs in copies(source, await source.refresh()):
                await target.append(bodies, blobs)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        if strategy not in ("keep_latest", "delete"):
            raise InvalidOptions(f"strategy={strategy!r}: it is 'keep_latest' or 'delete'")
        threads = await self._here()
        for thread_id in thread_ids:
            async with threads.open(thread_id) as thread:
                if strategy == "delete":
                    await self._drop_all(thread)
                    continue
                fold = await thread.refresh()
                kept = await self._needed(thread, fold)
                await self._drop(thread, [place for place in fold.checkpoints if place not in kept])

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        threads = await self._here()
        async with threads.open(_thread_of(config)) as thread:
            fold = await thread.refresh()
            namespace = _namespace_of(config)
            start = get_checkpoint_id(config) or fold.latest(namespace)
            found: dict[str, DeltaChannelHistory] = {}
            for channel in dict.fromkeys(channels):
                path, seed = _path_to_value(fold, (namespace, start or ""), channel)
                writes = [
                    (write.task, channel, self.serde.loads_typed(await thread.load(write.value)))
                    for place in reversed(path)
                    for write in fold.writes(place)
                    if write.channel == channel
                ]
                found[channel] = {"writes": writes}
                if seed is not None:
                    found[channel]["seed"] = self.serde.loads_typed(await thread.load(seed))
            return found

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Versions rise, also over those that a fork of the thread counted up to meanwhile."""
        count = 0 if current is None else int(str(current).split(".")[0])
        return f"{count + 1:032}.{random.random():016}"  # noqa: S311 - no secret

    # Sync --------------------------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return self._portal.run(self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        self._portal.run(self.aput_writes(config, writes, task_id, task_path))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._portal.run(self.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the interface's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        async def page() -> Sequence[CheckpointTuple]:
            return [item async for item in self.alist(config, filter=filter, before=before, limit=limit)]

        yield from self._portal.run(page())

    def delete_thread(self, thread_id: str) -> None:
        self._portal.run(self.adelete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self._portal.run(self.adelete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._portal.run(self.acopy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self._portal.run(self.aprune(thread_ids, strategy=strategy))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return self._portal.run(self.aget_delta_channel_history(config=config, channels=channels))

    def close(self) -> None:
        """End the thread of the sync methods, and close the store as it had it open."""
        self._portal.close(self._journal.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # For turns ----------------------------------------------------------------------------------------

    async def take(self, thread_id: str, holder: ThreadHolder) -> tuple[bool, int]:
        """Let nobody else write to the thread in the name of `holder`'s run; (has it begun, the thread's step)."""
        threads = await self._here()
        async with threads.open(thread_id) as thread:
            await thread.append([ThreadHeld(holder=holder)])
            fold = thread.fold
            newest = fold.latest("")
            if newest is None:
                return fold.has_begun(holder), _NO_STEP
            metadata = await self._metadata(thread, fold, ("", newest))
            return fold.has_begun(holder), int(metadata.get("step", _NO_STEP))

    # Within ------------------------------------------------------------------------------------------

    async def _here(self) -> Threads:
        runtime = await self._journal.runtime()
        for place, threads in list(self._threads.items()):
            if threads.is_closing:
                del self._threads[place]
        found = self._threads.get(id(runtime))
        if found is None:
            found = self._threads[id(runtime)] = Threads(runtime)
        return found

    async def _append(self, thread_id: str, bodies: Sequence[Body], blobs: Sequence[Blob]) -> None:
        threads = await self._here()
        async with threads.open(thread_id) as thread:
            await thread.append(bodies, blobs)

    async def _drop_all(self, thread: Thread) -> None:
        if (await thread.refresh()).checkpoints:
            await thread.append([ThreadDropped()])

    async def _drop(self, thread: Thread, places: Sequence[Place]) -> None:
        if places:
            await thread.append([ThreadDropped(checkpoints=tuple(places))])

    async def _metadata(self, thread: Thread, fold: ThreadFold, place: Place) -> Any:
        return self.serde.loads_typed(await thread.load(fold.checkpoints[place].metadata))

    async def _has(self, thread: Thread, fold: ThreadFold, place: Place, wanted: Mapping[str, Any]) -> bool:
        metadata = await self._metadata(thread, fold, place)
        return all(metadata.get(name) == value for name, value in wanted.items())

    async def _tuple(self, thread: Thread, fold: ThreadFold, place: Place) -> CheckpointTuple:
        body = fold.checkpoints[place]
        writes = fold.writes(place)
        channels = fold.values(body)
        kept: Checkpoint = self.serde.loads_typed(await thread.load(body.checkpoint))
        return CheckpointTuple(
            _config(thread.id, *place),
            {
                **kept,
                "channel_versions": dict(body.versions),
                "channel_values": {
                    channel: self.serde.loads_typed(await thread.load(value))
                    for channel, value in channels.items()
                },
            },
            self.serde.loads_typed(await thread.load(body.metadata)),
            None if body.parent is None else _config(thread.id, body.namespace, body.parent),
            [(w.task, w.channel, self.serde.loads_typed(await thread.load(w.value))) for w in writes],
        )

    async def _needed(self, thread: Thread, fold: ThreadFold) -> set[Place]:
        """The newest checkpoint of each namespace, and those that its delta channels are rebuilt from."""
        kept: set[Place] = set()
        for namespace in {namespace for namespace, _ in fold.checkpoints}:
            newest = namespace, fold.latest(namespace) or ""
            kept.add(newest)
            metadata = await self._metadata(thread, fold, newest)
            for channel in metadata.get("counters_since_delta_snapshot") or ():
                if channel not in fold.values(fold.checkpoints[newest]):
                    kept.update(_path_to_value(fold, newest, channel)[0])
        return kept


class _Packing:
    """Values on their way into one batch, and the blobs that the large ones become."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self._serde = serde
        self.blobs: list[Blob] = []

    def pack(self, value: Any) -> Packed:
        kind, data = self._serde.dumps_typed(value)
        kept, blob = pack(bytes(data))
        if blob is not None:
            self.blobs.append(blob)
        return Packed(kind, kept)


def _path_to_value(fold: ThreadFold, start: Place, channel: str) -> tuple[list[Place], Packed | None]:
    """The ancestors of `start`, nearest first, up to one that holds a value of `channel`; and that value."""
    path: list[Place] = []
    body = fold.checkpoints.get(start)
    while body is not None and body.parent is not None:
        place = body.namespace, body.parent
        body = fold.checkpoints.get(place)
        if body is None:
            break
        path.append(place)
        if (value := fold.values(body).get(channel)) is not None:
            return path, value
    return path, None


def _thread_of(config: RunnableConfig) -> str:
    return str(config["configurable"]["thread_id"])


def _namespace_of(config: RunnableConfig) -> str:
    return str(config["configurable"].get("checkpoint_ns") or "")


def _config(thread_id: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": thread_id,
            "checkpoint_ns": namespace,
            "checkpoint_id": checkpoint_id,
        }
    }
