"""Names of runs, turns and batches: what is allowed, what is suggested instead, where new ones come from.

Batch ids are 128 bits: ten random bytes a source, then a counter. They are unique without asking anyone,
and the ids of one holder sort next to each other, so an index over them stays local.
"""

import os
import re
from hashlib import blake2b

from journal.core.errors import InvalidId

MAX_ID_LENGTH = 200
_ID = re.compile(r"[A-Za-z0-9._:@|+=~/-]{1,200}")
_REFUSED = re.compile(r"[^A-Za-z0-9._:@|+=~/-]+")


def check_id(value: object, what: str = "run id") -> str:
    """Return `value` if it is a usable id, else raise `InvalidId` with a suggestion.

    An id is 1 to 200 of letters, digits and ``._:@|+=~/-``; not ``.`` or ``..``; it does not begin with
    ``-`` (it would read as an option) or ``/``.
    """
    if not isinstance(value, str):
        raise InvalidId(what=what, value=repr(value), reason="it is not text", suggestion=None)
    if reason := _why_refused(value):
        raise InvalidId(what=what, value=value, reason=reason, suggestion=_suggest(value))
    return value


def _why_refused(value: str) -> str | None:
    if not value:
        return "it is empty"
    if len(value) > MAX_ID_LENGTH:
        return f"it has {len(value)} characters, {MAX_ID_LENGTH} are allowed"
    if value in (".", ".."):
        return "it names a directory"
    if value[0] in "-/":
        return f"it begins with {value[0]!r}"
    if not _ID.fullmatch(value):
        refused = sorted(set("".join(_REFUSED.findall(value))))
        return "it holds " + ", ".join(repr(c) for c in refused[:5])
    return None


def _suggest(value: str) -> str | None:
    plain = _REFUSED.sub("-", value.strip()).lstrip("-/").rstrip("-")
    if len(plain) > MAX_ID_LENGTH:
        tail = blake2b(value.encode(errors="surrogatepass"), digest_size=8).hexdigest()
        plain = f"{plain[: MAX_ID_LENGTH - len(tail) - 1]}-{tail}"
    return plain if plain and _why_refused(plain) is None else None


def new_run_id() -> str:
    """A fresh run id: 20 letters and digits, about 100 random bits."""
    number = int.from_bytes(os.urandom(13), "big")
    letters = "0123456789abcdefghjkmnpqrstvwxyz"
    return "".join(letters[(number >> shift) & 31] for shift in range(0, 100, 5))


def new_token() -> bytes:
    """The random half of a claim, 16 bytes: unlike epochs, it never repeats after a restore."""
    return os.urandom(16)


def new_seed() -> int:
    """What a turn's chance follows from: 63 random bits, not 0."""
    return int.from_bytes(os.urandom(8), "big") >> 1 or 1


def new_batch_id() -> bytes:
    """One batch id, for an author that appends once (a submit, a signal, a cancel)."""
    return os.urandom(16)


class BatchIds:
    """The batch ids of one holder: unique, and rising in byte order."""

    def __init__(self) -> None:
        self._last = int.from_bytes(os.urandom(10), "big") << 48

    def next(self) -> bytes:
        """The next id, 16 bytes."""
        self._last += 1
        return self._last.to_bytes(16, "big")
