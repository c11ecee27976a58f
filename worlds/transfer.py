"""What building up a copy of a run may and may not do, as pure functions; every world asks them (`ports.Transfer`)."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from journal.core.errors import InvalidValue
from journal.core.ports import RunImage, RunStatus
from journal.core.records import Record

kept_image = msgspec.msgpack.Decoder(RunImage).decode
"""The image that `kept` wrote."""
LAPSED = b"\0"
"""The token of a holder that held the run in another store: no claim that is given out has it."""
_encode = msgspec.msgpack.Encoder().encode


def kept(image: RunImage) -> bytes:
    """What a store keeps of the image until the run is settled: all that has no place of its own before."""
    unfinished = tuple(turn for turn in image.turns if turn.finished is None)
    return _encode(replace(image, turns=unfinished, keys=(), blobs=()))


def new_records(run: str, head: int, records: Sequence[Record]) -> list[Record]:
    """Those behind `head`. Raises `InvalidValue` for records of another run, and for a gap."""
    expected = records[0].seq if records else 0
    for record in records:
        if record.run != run or record.seq != expected:
            raise InvalidValue(
                what=f"records of run {run!r}",
                path=f"seq {record.seq}",
                reason=f"expected seq {expected} of that run: records are copied densely and in order",
            )
        expected += 1
    if records and records[0].seq > head + 1:
        raise InvalidValue(
            what=f"records of run {run!r}",
            path=f"seq {records[0].seq}",
            reason=f"they must go on at seq {head + 1}, where the copy ends",
        )
    return [record for record in records if record.seq > head]


def check_complete(run: str, head: int, promised: int) -> None:
    """Raise `InvalidValue` unless the copy has come to the head that its image names."""
    if head != promised:
        raise InvalidValue(
            what=f"copy of run {run!r}",
            path="",
            reason=f"it ends at seq {head} and its image at {promised}: nothing may be settled before it is whole",
        )


def settled(image: RunImage, *, is_live: bool) -> tuple[RunStatus, float | None]:
    """Status and due time of the queue entry once the building ends. `running`: by a holder that is no more.

    The store then says `LAPSED` where the holder's token stands, with a lease that is over.
    """
    if is_live:
        return ("running" if image.abandoned else image.status), image.due_at
    is_held_back = image.is_unfinished and image.closed is None
    return ("blocked" if is_held_back else image.status), None


def status_of_image(status: RunStatus) -> RunStatus:
    """As a copy has it, which nobody holds."""
    return "pending" if status == "running" else status
