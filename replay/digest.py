"""What tells whether two stores, or a store and a file, hold the same run. Pure: whoever has it read feeds it."""

from hashlib import blake2b

import msgspec

from journal.core.records import Record

_pack = msgspec.msgpack.Encoder().encode


class RunDigest:
    """Of every field of the run's records, in order, and then of its blobs, by id.

    Files keep it for ever: a field that records get later may count only where it is not its default.
    """

    def __init__(self) -> None:
        self._found = blake2b(digest_size=32)

    def add_record(self, record: Record) -> None:
        """The next record."""
        of = record
        said = (of.run, of.seq, of.time, of.type, of.turn, of.key, of.epoch, of.batch, of.body, of.checksum)
        self._found.update(_pack((*said, of.key_id)))

    def add_blob(self, blob: str, data: bytes) -> None:
        """The next blob."""
        self._found.update(f"{blob} {len(data)} ".encode())
        self._found.update(data)

    def digest(self) -> bytes:
        """32 bytes."""
        return self._found.digest()
