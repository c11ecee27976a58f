"""Where things lie: the names of keys, and what the members of a partition's index say.

All keys of a run, and the index of its partition, share a hash tag, and so a slot of a cluster:
`{prefix:namespace:p17}` and a letter: `h:run` hash, `r:run` records, `b:run` blobs, `d:run` deltas, `x` index.
The roster of workers is a hash of its own, `{prefix:namespace:roster}`.
The members of the index are described where they are made, in `lua/index.lua`.
"""

import re
from functools import lru_cache
from hashlib import blake2b
from zlib import crc32

_ESCAPE = re.compile(b"\1([\1\2])")
_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Keys:
    """The names of one namespace."""

    def __init__(self, prefix: str, namespace: str, partitions: int) -> None:
        name = namespace
        if not _PLAIN.fullmatch(namespace):
            name = "~" + blake2b(namespace.encode(errors="surrogatepass"), digest_size=16).hexdigest()
        self.prefix = prefix
        self.partitions = partitions
        space = f"{prefix}:{name}"
        self.roster = f"{{{space}:roster}}".encode()
        self._tags = [f"{{{space}:p{n}}}".encode() for n in range(partitions)]
        self.indexes = [tag + b"x" for tag in self._tags]
        """Their names are also the channels that say that an entry may have become claimable."""
        # A run that is worked on is asked for again and again.
        self.of_run = lru_cache(maxsize=10_000)(self._of_run)

    def partition(self, run: str) -> int:
        """Which partition the run lies in, for ever."""
        return crc32(run.encode()) % self.partitions

    def _of_run(self, run: str) -> "RunKeys":
        partition = self.partition(run)
        return RunKeys(self._tags[partition], run.encode(), self.indexes[partition])


class RunKeys:
    """The keys of one run. The name of its stream is also the channel that rings when it goes on."""

    __slots__ = ("blobs", "deltas", "hash", "index", "name", "stream")

    def __init__(self, tag: bytes, name: bytes, index: bytes) -> None:
        self.name = name
        self.hash = tag + b"h:" + name
        self.stream = tag + b"r:" + name
        self.blobs = tag + b"b:" + name
        self.deltas = tag + b"d:" + name
        self.index = index


def meta_key(prefix: str) -> bytes:
    """The hash that says how the store lies under this prefix."""
    return f"{prefix}:meta".encode()


def escaped(agent: str) -> bytes:
    """The agent's name as index members have it: without NUL, which ends it there."""
    return agent.encode().replace(b"\1", b"\1\2").replace(b"\0", b"\1\1")


def unescaped(agent: bytes) -> str:
    """The agent's name, from an index member."""
    return _ESCAPE.sub(lambda found: b"\0" if found[1] == b"\1" else b"\1", agent).decode()


def sortable(number: int) -> bytes:
    """14 hexadecimal digits, as in index members."""
    return b"%014x" % min(max(number, 0), 2**53 - 1)


def run_of_rank(rank: bytes) -> str:
    """The run that a claimable entry is about."""
    return rank[40:].decode()
