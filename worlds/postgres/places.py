"""Where the runs of a namespace are: the keys of their locks, and their rids once they were told."""

from hashlib import blake2b

_KNOWN_RUNS = 10_000


class Places:
    """Belongs to one world."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._prefix = f"{namespace}\x01".encode()
        self._locks: dict[str, int] = {}
        self.rids: dict[str, int] = {}

    def lock(self, run: str) -> int:
        """The same number in every process: claims find it in the run's entry."""
        key = self._locks.get(run)
        if key is None:
            if len(self._locks) > _KNOWN_RUNS:
                self._locks.clear()
                self.rids.clear()
            digest = blake2b(self._prefix + run.encode(), digest_size=8).digest()
            key = self._locks[run] = int.from_bytes(digest, "big", signed=True)
        return key

    def learn(self, run: str, rid: int) -> None:
        """A claim or an answer told where the run is. It may have moved since: a claim's token tells."""
        self.rids[run] = rid
