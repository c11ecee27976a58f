"""Runs on their way from and to a server (`ports.Transfer`): a hash read in one go, and two functions.

What they write, and how a run that is being built differs from others, stands in `lua/transfer.lua`.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import anyio
import msgspec
from msgspec.structs import replace

from journal.core.codec import Blob
from journal.core.errors import RunGone, RunNotBuilding, RunNotFound, WorldUnavailable
from journal.core.ports import KeyInfo, RunImage, RunStatus, TurnInfo, Unknown
from journal.core.records import Record
from journal.worlds.redis.calls import Cut
from journal.worlds.redis.connection import Part
from journal.worlds.redis.door import meta, pieces
from journal.worlds.redis.keys import Keys
from journal.worlds.redis.library import function
from journal.worlds.redis.reads import Reader, read_turn
from journal.worlds.redis.wire import Wire
from journal.worlds.transfer import check_complete, kept, kept_image, new_records, settled, status_of_image

_BUILD, _SETTLE = function("build"), function("settle")
_pack = msgspec.msgpack.Encoder().encode
_NOT_BUILDING, _GONE, _GAP = 1, 2, 3
ANSWER_SECONDS = 60.0
AGAIN_SECONDS = 0.1
"""Until when, and how soon, an unanswered piece is offered again."""


class Transfers:
    """Images, and runs that are built, of one namespace."""

    def __init__(
        self, wire: Wire, keys: Keys, reader: Reader, now: Callable[[], Awaitable[float]], *, url: str
    ) -> None:
        self._wire = wire
        self._keys = keys
        self._reader = reader
        self._now = now
        self._url = url

    async def image(self, run: str) -> RunImage:
        """See `Transfer.image`. Blobs are listed a moment later: there may be more of them, never fewer."""
        keys = self._keys.of_run(run)
        flat: list[bytes] = await self._wire.call(("HGETALL", keys.hash))
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        await self._reader.check_gone(run, fields.get(b"gone"), fields.get(b"moved"))
        if b"tip" not in fields:
            raise RunNotFound(run_id=run, world=self._url)
        names: list[bytes] = await self._wire.call(("HKEYS", keys.blobs))
        blobs = sorted(name[2:].decode() for name in names if name.startswith(b"=:"))
        is_claimed = fields[b"tip"][23] > 0
        is_held = is_claimed and float(fields[b"lease"]) > await self._now()
        return replace(_image(run, fields, tuple(blobs)), held=is_held, abandoned=is_claimed and not is_held)

    async def build(self, image: RunImage, records: Sequence[Record], blobs: Sequence[Blob], at: str) -> int:
        """See `Transfer.build`."""
        run = image.run
        new_records(run, records[-1].seq if records else 0, records)  # dense in themselves
        keys = self._keys.of_run(run)
        names: list[Part] = [keys.hash, keys.stream, keys.index]
        if blobs:
            names.append(keys.blobs)
        parts = (b"FCALL", _BUILD, len(names), *names, at, *_arguments(image, records, blobs))
        (code, *told), _ = await self._ask(parts)
        if code == _NOT_BUILDING:
            raise RunNotBuilding(run_id=run, world=self._url)
        if code == _GONE:
            raise RunGone(run_id=run, to=told[0].decode() or None)
        if code == _GAP:
            new_records(run, told[0], records)
        head: int = told[0]
        return head

    async def settle(self, run: str, *, is_live: bool, at: str) -> None:
        """See `Transfer.settle`."""
        keys = self._keys.of_run(run)
        was_unsure = False
        while True:
            gone, moved, tip, building = await self._wire.call(
                ("HMGET", keys.hash, "gone", "moved", "tip", "building")
            )
            await self._reader.check_gone(run, gone, moved)
            if tip is None:
                raise RunNotFound(run_id=run, world=self._url)
            if building is None and was_unsure:
                return  # it had landed
            if building is None:
                raise RunNotBuilding(run_id=run, world=self._url)
            image, head = kept_image(building), int.from_bytes(tip[:6], "big")
            check_complete(run, head, image.head)
            status, due_at = settled(image, is_live=is_live)
            names = (b"FCALL", _SETTLE, 2, keys.hash, keys.index, at, keys.name)
            is_settled, was_unsure = await self._ask(
                (*names, building, head, status, _time(due_at), _time(image.closed), keys.stream)
            )
            if is_settled:
                return

    async def _ask(self, parts: tuple[Part, ...]) -> tuple[Any, bool]:
        """The answer, and whether it had to be asked for again.

        Offered like a batch, so that it is answered once as many replicas have it as are to.
        """
        until = time.monotonic() + ANSWER_SECONDS
        was_unsure = False
        while isinstance(reply := await self._wire.call(parts, cut=Cut.UNKNOWN), Unknown):
            if time.monotonic() > until:
                raise WorldUnavailable(f"no answer for {ANSWER_SECONDS:g} s: {reply.reason}", world=self._url)
            was_unsure = True
            await anyio.sleep(AGAIN_SECONDS)
        return reply, was_unsure


def _arguments(image: RunImage, records: Sequence[Record], blobs: Sequence[Blob]) -> list[Part]:
    unfinished = [(turn.submitted, turn.turn) for turn in image.turns if turn.finished is None]
    parts: list[Part] = [image.run, image.agent, image.min_reader, _time(image.created), image.status]
    parts += (image.priority, image.epoch, image.takeovers, kept(image))
    parts += (_pack(unfinished) if unfinished else b"", records[0].seq if records else 0, len(records))
    for record in records:
        stamp = bytes([len(record.batch)]) + record.batch + f"{record.time!r} {record.epoch} ".encode()
        parts += (stamp + meta(record), record.body)
    parts.append(len(image.turns))
    for turn in image.turns:
        ended = "" if turn.finished is None else f" {turn.status} {turn.finished}"
        parts += (turn.turn, f"{turn.submitted}{ended}")
    parts.append(len(image.keys))
    for key in image.keys:
        parts += (key.key, f"{key.first} {key.last} {key.time!r} ".encode() + key.digest)
    of_blobs = [piece for blob in blobs for piece in pieces(blob)]
    parts.append(len(of_blobs))
    for piece in of_blobs:
        parts += piece
    return parts


def _image(run: str, fields: dict[bytes, bytes], blobs: tuple[str, ...]) -> RunImage:
    tip = fields[b"tip"]
    turns: list[TurnInfo] = []
    keys: list[KeyInfo] = []
    for name, value in fields.items():
        if name.startswith(b"t:"):
            turns.append(read_turn(name[2:].decode(), value))
        elif name.startswith(b"k:"):
            first, last, time, digest = value.split(b" ", 3)
            keys.append(KeyInfo(name[2:].decode(), digest, int(first), int(last), float(time)))
    return RunImage(
        run=run,
        agent=fields[b"agent"].decode(),
        created=float(fields[b"created"]),
        min_reader=int(fields[b"reader"]),
        closed=_number(fields.get(b"closed")),
        epoch=int.from_bytes(tip[6:12], "big"),
        head=int.from_bytes(tip[:6], "big"),
        turns=tuple(sorted(turns, key=lambda turn: turn.submitted)),
        keys=tuple(sorted(keys, key=lambda key: key.key)),
        blobs=blobs,
        status=status_of_image(cast(RunStatus, fields[b"status"].decode())),
        priority=int(fields.get(b"priority") or 0),
        due_at=_number(fields.get(b"due")),
        takeovers=int.from_bytes(tip[18:22], "big"),
        moved_to=_text(fields.get(b"moved")),
        building=b"building" in fields,
    )


def _number(field: Any) -> float | None:
    return None if field is None else float(field)


def _text(field: bytes | None) -> str | None:
    return None if field is None else field.decode()


def _time(seconds: float | None) -> str:
    return "" if seconds is None else repr(float(seconds))
