"""A holder's batch that goes alone, as nearly all of a run that works by itself do: as two prepared statements.

Every step of such a run waits for what is done here, so it is done with as little as can be. What is no such batch,
or is not taken, goes as a group of one (`group.py`).
"""

from psycopg import pq

from journal.core.ports import Committed, Held
from journal.worlds.postgres.binary import double, long, to_double, to_int
from journal.worlds.postgres.offer import Offer
from journal.worlds.postgres.places import Places
from journal.worlds.postgres.wire import Step

_STATEMENTS = {1: b"append_one", 2: b"append_two"}
"""What puts so many records of one batch in, where nobody else shares the commit."""
_YES, _NO = b"\x01", b"\x00"


def lone_steps(offer: Offer, places: Places, at: float | None) -> list[Step] | None:
    """The statements of one transaction; the last one answers. None: it does not go this way."""
    batch = offer.batch
    statement = _STATEMENTS.get(len(batch.records))
    if statement is None or not offer.may_go_quick(places):
        return None
    author = batch.author
    assert isinstance(author, Held), "only a holder's batch goes the quick way"
    claim = author.claim
    parameters: list[bytes | None] = [
        long(places.rids[batch.run]),
        double(at),
        long(claim.epoch),
        batch.id,
        claim.token,
        author.prev_batch,
        _NO if batch.queue is None else _YES,
    ]
    for record in batch.records:
        turn, key, key_id = record.turn, record.key, record.key_id
        parameters += (
            record.type.encode(),
            None if turn is None else turn.encode(),
            None if key is None else key.encode(),
            record.body,
            long(record.checksum),
            None if key_id is None else key_id.encode(),
        )
    return [(b"lock_run", [long(offer.lock)]), (statement, parameters)]


def lone_answer(result: "pq.abc.PGresult") -> Committed | None:
    """Where it landed. None: it was not taken, and has to go the long way."""
    count = result.ntuples
    if not count:
        return None
    seqs = [to_int(result.get_value(row, 0) or b"") for row in range(count)]
    return Committed(min(seqs), max(seqs), to_double(result.get_value(0, 1) or b""))
