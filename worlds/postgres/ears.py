"""Ears: how writers know that nobody follows, so that they need not tell anybody.

The runs of a namespace are spread over a few ears. Whoever follows a run holds the run's ear: an advisory lock of the
session that listens, shared, so it goes with that session, however it ends. Whoever writes tries the lock: if it is
free nobody hears, and that is taken to be so for `SILENCE_SECONDS`. A follower therefore looks by itself until it has
held the ear for so long and looked once more: from then on every writer knows, and what was written before was seen.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import blake2b

from psycopg import pq

from journal.worlds.postgres.address import Address
from journal.worlds.postgres.binary import long_array
from journal.worlds.postgres.wire import Wire

COUNT = 16
"""Ears of a namespace: a writer is silent although others are followed, and locks are few however many are."""
SILENCE_SECONDS = 0.1


def ear_of(lock: int) -> int:
    """Which ear hears of the run with that lock."""
    return lock % COUNT


def first_key(address: Address, namespace: str) -> bytes:
    """The first of the two keys of a namespace's ears (`integer`); the second is the ear."""
    return blake2b(f"ears\x01{address.schema}\x01{namespace}".encode(), digest_size=4).digest()


class Ears:
    """Those that one world holds, for its followers."""

    def __init__(self, key: bytes, clock: Callable[[], float]) -> None:
        self._key = key
        self._clock = clock
        self._wanted: Counter[int] = Counter()
        self._held_since: dict[int, float] = {}
        self._wire: Wire | None = None

    def attach(self, wire: Wire) -> None:
        """Hold them on this session, which listens and has `hold_ears` and `drop_ears` prepared."""
        self._wire = wire
        self.update()

    def detach(self) -> None:
        """The session is over, and nothing is held any more."""
        self._wire = None
        self._held_since.clear()

    def want(self, lock: int) -> None:
        """A run is followed."""
        self._wanted[ear_of(lock)] += 1
        self.update()

    def unwant(self, lock: int) -> None:
        """It is not any more."""
        ear = ear_of(lock)
        self._wanted[ear] -= 1
        if not self._wanted[ear]:
            del self._wanted[ear]
        self.update()

    def known_since(self, lock: int) -> float | None:
        """Since when every writer knows that the run is followed: a time of the clock, perhaps in the future."""
        since = self._held_since.get(ear_of(lock))
        return None if since is None else since + SILENCE_SECONDS

    def update(self) -> None:
        """Hold what is wanted and no more, unless the session is taken: whoever took it calls this afterwards."""
        wire = self._wire
        if wire is None or not wire.is_open or wire.is_busy:
            return
        missing = [ear for ear in self._wanted if ear not in self._held_since]
        spare = [ear for ear in self._held_since if ear not in self._wanted]
        if missing:
            wire.execute([(b"hold_ears", [self._key, long_array(missing)])], self._settled(missing))
        elif spare:
            for ear in spare:
                del self._held_since[ear]
            wire.execute([(b"drop_ears", [self._key, long_array(spare)])], self._settled(()))

    def _settled(self, taken: Iterable[int]) -> Callable[["pq.abc.PGresult | None", Exception | None], None]:
        def on_done(_: "pq.abc.PGresult | None", error: Exception | None) -> None:
            if error is not None:
                return  # too many locks, or the connection is lost: until it works out, followers look
            self._held_since.update(dict.fromkeys(taken, self._clock()))
            self.update()

        return on_done


class Silence:
    """What a writer knows of the ears of others."""

    def __init__(self) -> None:
        self._until: dict[int, float] = {}

    def heard(self, locks: Iterable[int], now: float) -> list[int]:
        """Those of the runs that somebody may hear of."""
        until = self._until
        return [lock for lock in locks if until.get(lock % COUNT, 0.0) <= now]

    def questions(self, locks: Iterable[int]) -> set[int]:
        """The ears to ask about for these runs: theirs, and those that were free, so that all are known for as long.

        Else each ear of many runs is asked about at a time of its own.
        """
        return {ear_of(lock) for lock in locks}.union(self._until)

    def learn(self, free: Iterable[int], asked_at: float) -> None:
        """These ears were free when that was asked, and of all that were asked about no others."""
        self._until = dict.fromkeys(free, asked_at + SILENCE_SECONDS)
