"""What the server refuses with, and what that is to us: one place for every error reply."""

from typing import Any

import hiredis

from journal.core.errors import (
    WorldBusy,
    WorldCorrupt,
    WorldError,
    WorldFull,
    WorldReadOnly,
    WorldUnavailable,
)

ReplyError = hiredis.ReplyError
PASSING = ("LOADING", "MASTERDOWN", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "NOREPLICAS")
"""Nothing was done, and soon it may be: offered again until the bound."""


def is_passing(error: ReplyError) -> bool:
    """Whether the same command may be taken in a moment."""
    return str(error).startswith(PASSING)


def is_missing_function(error: ReplyError) -> bool:
    """Whether the server has lost our library: it was emptied, or is another one."""
    return str(error).startswith("ERR Function not found")


def is_damage(error: ReplyError) -> bool:
    """Whether a function of ours met what it cannot read."""
    return "user_function:" in str(error)


def is_replica(error: ReplyError) -> bool:
    """Whether this server takes no writes, since another does."""
    return str(error).startswith("READONLY")


def world_error(error: ReplyError, world: str) -> WorldError:
    """The error for what the server said."""
    text = str(error)
    word = text.partition(" ")[0]
    kind: type[WorldError] = WorldUnavailable
    if word == "OOM":
        return WorldFull(
            "its memory limit is reached, and nothing of this was stored: raise maxmemory, or sweep closed runs",
            world=world,
        )
    if word == "MISCONF":
        kind = WorldFull if "space" in text.lower() else WorldReadOnly
        return kind(f"it cannot write to its disk and takes nothing: {text}", world=world)
    if word == "READONLY":
        return WorldReadOnly("this is a replica: give the URL of the primary", world=world)
    if word == "NOAUTH" or "unauthenticated" in text:
        return WorldUnavailable(
            f"it asks for a password: write redis://:PASSWORD@host:port, or USER:PASSWORD ({text})",
            world=world,
        )
    if "without any password configured" in text:
        return WorldUnavailable(f"it has no password and was given one: leave it out ({text})", world=world)
    if "DB index is out of range" in text:
        return WorldUnavailable(
            f"it has no database of that number: check the end of the URL ({text})", world=world
        )
    if word == "WRONGPASS":
        return WorldUnavailable(f"it does not accept this user and password: {text}", world=world)
    if word == "NOPERM":
        return WorldUnavailable(
            f"this user may not do that: {text} (see docs: keys of the prefix, FUNCTION, FCALL, pub/sub)",
            world=world,
        )
    if is_damage(error):
        return WorldCorrupt(
            f"the state of a run is not as we write it, and nothing was done: {text}", world=world
        )
    if word == "WRONGTYPE":
        return WorldCorrupt(f"a key of ours holds something else: {text}", world=world)
    if is_passing(error):
        return WorldBusy(f"it takes nothing at the moment: {text}", world=world)
    return kind(f"it refused: {text}", world=world)


def checked(reply: Any, world: str) -> Any:
    """The reply, unless it is a refusal."""
    if isinstance(reply, ReplyError):
        raise world_error(reply, world)
    return reply
