"""What an error of Postgres means to us, in one place.

Three kinds: the contents of one batch are at fault (`is_content`: halve the group until it stands alone), the answer
is lost (`is_lost`: what was offered may have landed), or the store refused (`world_error` says how; nothing landed).
"""

import psycopg

from journal.core.errors import (
    WorldBusy,
    WorldCorrupt,
    WorldError,
    WorldFull,
    WorldMissing,
    WorldReadOnly,
    WorldUnavailable,
)

_READ_ONLY = {"25006", "42501"}
_MISSING = {"42P01", "42883", "3F000", "3D000", "42703"}
_BUSY = {"55P03", "57014"}
_DAMAGE = {"XX001", "XX002"}
_CONTENT_CLASSES = {"22", "23", "54"}
_LOST = {"57P01", "57P02", "57P03", "57P05"}


def code_of(error: psycopg.Error) -> str:
    """The SQLSTATE; empty where the error is the driver's own."""
    return error.sqlstate or ""


def is_lost(error: Exception) -> bool:
    """Whether the connection ended before it answered."""
    if not isinstance(error, psycopg.Error):
        return isinstance(error, OSError)
    code = code_of(error)
    return code in _LOST or code[:2] == "08" or (not code and isinstance(error, psycopg.OperationalError))


def is_content(error: Exception) -> bool:
    """Whether one of the batches may be at fault, so that halving helps: its contents, or a damaged page of its run."""
    if isinstance(error, psycopg.Error):
        code = code_of(error)
        return code[:2] in _CONTENT_CLASSES or code in _DAMAGE or isinstance(error, psycopg.DataError)
    return not isinstance(error, WorldError | OSError)


def is_passing(error: Exception) -> bool:
    """Whether nothing landed, and the same again may well do: two transactions were in each other's way."""
    return isinstance(error, psycopg.Error) and code_of(error) in ("40001", "40P01")


def world_error(error: Exception, world: str) -> WorldError:
    """The one mapping from Postgres's errors to ours."""
    if isinstance(error, WorldError):
        return error
    mapped = _map(error, world)
    mapped.__cause__ = error
    return mapped


def _map(error: Exception, world: str) -> WorldError:
    code = code_of(error) if isinstance(error, psycopg.Error) else ""
    text = str(error).strip().splitlines()
    said = text[0] if text else type(error).__name__
    if code in _READ_ONLY:
        return WorldReadOnly(
            f"it cannot be written ({said}): connect to the primary, as a user who may write to this schema",
            world=world,
        )
    if code == "53100":
        return WorldFull("the server's disk is full: free some space; nothing was stored", world=world)
    if code in _MISSING:
        return WorldMissing(
            f"its tables are not there ({said}): was the schema dropped? Open the store again to make them",
            world=world,
        )
    if code in _BUSY:
        return WorldBusy(
            f"the server gave up waiting ({said}): see pg_locks for who holds what, and the server's timeouts",
            world=world,
        )
    if code in _DAMAGE:
        return WorldCorrupt(
            f"the server reports damage ({said}): restore the database from a backup", world=world
        )
    if code == "53300":
        return WorldUnavailable(
            "the server has no connection left: a world takes up to six (raise max_connections)", world=world
        )
    if code[:2] == "28":
        return WorldUnavailable(
            f"the server does not let us in ({said}): check user and password", world=world
        )
    if is_lost(error) or isinstance(error, TimeoutError):
        return WorldUnavailable(f"the server does not answer ({said})", world=world)
    return WorldUnavailable(f"Postgres failed with {code or type(error).__name__}: {said}", world=world)
