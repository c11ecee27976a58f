"""The functions that the server runs, put together from `lua/`.

A library is named by the digest of its text, and so are its functions: a newer package brings its own beside the old
one, and workers of both go on. An old library is harmless; `FUNCTION DELETE` removes it.
"""

from hashlib import blake2b
from importlib.resources import files

_PARTS = (
    "clock",
    "tip",
    "index",
    "entry",
    "append",
    "claim",
    "deltas",
    "sweep",
    "roster",
    "transfer",
    "register",
)
_FOLDER = files("journal.worlds.redis").joinpath("lua")


def _assemble() -> tuple[str, str, bytes]:
    body = "\n".join(_FOLDER.joinpath(f"{part}.lua").read_text(encoding="utf-8") for part in _PARTS)
    suffix = "_" + blake2b(body.encode(), digest_size=6).hexdigest()
    name = f"journal_v1{suffix}"
    text = f"#!lua name={name}\nlocal SUFFIX = '{suffix}'\n{body}"
    return name, suffix, text.encode()


NAME, _SUFFIX, TEXT = _assemble()


def function(name: str) -> bytes:
    """The name under which the server knows that function of ours."""
    return f"journal_{name}{_SUFFIX}".encode()
