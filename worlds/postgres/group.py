"""Batches to parameters and answers: how a group is put to the server, and what it says of each.

The quick way (`append_records`) is for a holder's batch that brings records and changes nothing else, alone of its run
in the group; the server takes it if one look suffices, else it goes the long way (`append_batches`) with the others.
What goes alone has a way of its own (`lone.py`).
"""

from collections import Counter
from collections.abc import Callable

from psycopg import pq

from journal.core.ports import (
    Answer,
    Building,
    Closed,
    Committed,
    Duplicate,
    Gone,
    HeadMoved,
    Held,
    KeyConflict,
    LogRegressed,
    NoRun,
    StaleClaim,
)
from journal.worlds.postgres.binary import double, long_array, to_double, to_int, to_longs
from journal.worlds.postgres.offer import Offer
from journal.worlds.postgres.parameters import long_parameters, quick_parameters
from journal.worlds.postgres.places import Places
from journal.worlds.postgres.wire import Step

_BARE: dict[int, Callable[[], Answer]] = {7: NoRun, 8: Closed}


class Group:
    """A group of offers as one statement."""

    __slots__ = ("_long", "_quick", "steps")

    def __init__(self, offers: list[Offer], places: Places, at: float | None) -> None:
        self._quick: list[Offer] = []
        self._long: list[Offer] = []
        self.steps: list[Step]
        count = Counter(offer.lock for offer in offers)
        for offer in offers:
            is_quick = count[offer.lock] == 1 and offer.may_go_quick(places)
            (self._quick if is_quick else self._long).append(offer)
        parameters = [double(at), long_array(sorted(count)), *quick_parameters(self._quick, places)]
        if self._long:
            parameters += long_parameters(self._long, places.namespace)
        self.steps = [(b"append_batches" if self._long else b"append_records", parameters)]

    def answers(self, result: "pq.abc.PGresult", places: Places) -> list[tuple[Offer, Answer | None]]:
        """What became of each; None: the quick way did not take it, so it has to go the long way."""
        if not self._long:
            heads, now = to_longs(_cell(result, 0, 0)), to_double(_cell(result, 0, 1))
            return [
                (offer, _landed(offer, head, now)) for offer, head in zip(self._quick, heads, strict=True)
            ]
        found: list[tuple[Offer, Answer | None]] = []
        for nth, offer in enumerate(self._quick):
            head = to_int(_cell(result, nth, 2)) - 1 if to_int(_cell(result, nth, 0)) else 0
            found.append((offer, _landed(offer, head, to_double(_cell(result, nth, 4)))))
        for nth, offer in enumerate(self._long, len(self._quick)):
            found.append((offer, _answer(result, nth, offer, places)))
        return found


def _landed(offer: Offer, head: int, now: float) -> Committed | None:
    return Committed(head + 1, head + len(offer.batch.records), now) if head else None


def _cell(result: "pq.abc.PGresult", row: int, column: int) -> bytes:
    value = result.get_value(row, column)
    assert value is not None, "the functions answer these columns always"
    return value


def _answer(result: "pq.abc.PGresult", row: int, offer: Offer, places: Places) -> Answer:
    code = to_int(_cell(result, row, 0))
    author = offer.batch.author
    if code in (1, 2, 3):
        first, last = to_int(_cell(result, row, 2)), to_int(_cell(result, row, 3))
        landed = Committed(first, last, to_double(_cell(result, row, 4)))
        places.learn(offer.batch.run, to_int(_cell(result, row, 1)))
        if code == 1:
            offer.has_work = result.get_value(row, 7) == b"\x01"
            return landed
        return Duplicate(landed, result.get_value(row, 5) == b"\x01") if code == 2 else KeyConflict(landed)
    if code == 4:
        assert isinstance(author, Held), "only a holder has a claim"
        return StaleClaim(author.claim.epoch, to_int(_cell(result, row, 6)))
    if code == 5:
        return LogRegressed(to_int(_cell(result, row, 3)))
    if code == 6:
        return HeadMoved(to_int(_cell(result, row, 3)))
    if code == 9:
        told = result.get_value(row, 8)
        return Building() if told == b"" else Gone(None if told is None else told.decode())
    return _BARE[code]()
