"""Sweeping: closed runs leave whole, one function call each, so that appends pass between them."""

from hashlib import blake2b
from typing import Any

import msgspec

from journal.core.ports import SweepPolicy
from journal.worlds.redis.keys import Keys, RunKeys, sortable
from journal.worlds.redis.library import function
from journal.worlds.redis.wire import Wire

_BURY, _FORGET, _DROP_DELTAS = function("bury"), function("forget"), function("drop_deltas")
_PAGE = 500
_LONG = 1e9
"""Seconds: by age, every run that was moved may be swept."""
_read_meta = msgspec.msgpack.Decoder().decode


class Sweep:
    """Sweeps of one namespace."""

    def __init__(self, wire: Wire, keys: Keys) -> None:
        self._wire = wire
        self._keys = keys

    async def run(self, policy: SweepPolicy, now: float, at: str) -> int:
        """Remove what the policy allows; how many runs went."""
        for index in self._keys.indexes:
            for member in await self._find(index, b"g", now):
                keys = self._keys.of_run(member[15:].decode())
                await self._wire.call((b"FCALL", _FORGET, 2, keys.hash, index, at, member))
        if policy.moved is not None:
            return await self._bury_moved(policy, now)
        count = 0
        before = now - policy.closed_older_than_seconds
        for index in self._keys.indexes:
            for member in await self._find(index, b"c", before, policy.limit - count):
                keys = self._keys.of_run(member[15:].decode())
                count += await self._bury(keys, before, now + policy.tombstone_seconds)
            if count >= policy.limit:
                break
        for index in self._keys.indexes:
            for member in await self._find(index, b"d", now - policy.deltas_older_than_seconds):
                keys = self._keys.of_run(member[43:].decode())
                await self._wire.call((b"FCALL", _DROP_DELTAS, 3, keys.hash, keys.deltas, index, member))
        return count

    async def _find(self, index: bytes, kind: bytes, until: float, limit: int = 1000) -> list[bytes]:
        """Members of a kind whose time is over."""
        top = b"(" + kind + sortable(int(until * 1_000_000) + 1)
        found: list[bytes] = await self._wire.call(
            ("ZRANGE", index, b"[" + kind, top, "BYLEX", "LIMIT", 0, max(limit, 0))
        )
        return found

    async def _bury_moved(self, policy: SweepPolicy, now: float) -> int:
        count = 0
        for run in policy.moved or ():
            if count == policy.limit:
                break
            keys = self._keys.of_run(run)
            moved, gone = await self._wire.call(("HMGET", keys.hash, "moved", "gone"))
            if moved is not None and gone is None:
                count += await self._bury(keys, now + _LONG, now + policy.tombstone_seconds, is_moved=True)
        return count

    async def _bury(self, keys: RunKeys, before: float, until: float, *, is_moved: bool = False) -> int:
        """The tombstone keeps what the log hashed to; a closed run gets no more records, so it may be read in pages."""
        log, place = blake2b(digest_size=16), "-"
        while True:
            rows: list[Any] = await self._wire.call(("XRANGE", keys.stream, place, "+", "COUNT", _PAGE))
            for _, fields in rows:
                meta = fields[1]
                written = _read_meta(meta[1 + meta[0] :].split(b" ", 2)[2])
                log.update(int(written[3]).to_bytes(8, "big"))
            if len(rows) < _PAGE:
                break
            place = f"({rows[-1][0].decode()}"
        names = (keys.hash, keys.stream, keys.blobs, keys.deltas, keys.index)
        buried: int = await self._wire.call(
            (b"FCALL", _BURY, 5, *names, keys.name, repr(before), repr(until), log.digest(), int(is_moved))
        )
        return buried
