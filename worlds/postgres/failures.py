"""What an error of Postgres means to us, in one place.

Three kinds: the contents of one batch are at fault (`is_content`: halve the group until it stands alone), the answer
is lost (`is_lost`: what was offered may have landed), or the store refused (`world_error` says how; nothing landed).
"""

import re

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
_REFUSED = re.compile(
    r"password authentication failed|no password supplied|authentication failed for user|no pg_hba\.conf entry"
    r"|(?:database|role) \".*\" does not exist|is not permitted to log in|permission denied for database"
    r"|is not currently accepting connections|certificate verify failed|server does not support SSL"
)
_NAMELESS = re.compile(r"failed to resolve host|could not translate host name")
_AWAY = re.compile(
    r"refused|timeout|timed out|unreachable|starting up|shutting down|not yet accepting|closed the connection"
    r"|reset by peer|recovery|No such file"
)
"""Of another host of the URL: it may be the one that lets us in."""
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


def is_refused(error: Exception) -> bool:
    """Whether the server, or each that the URL names, will not let us in until somebody changes something.

    By its words, in English: the driver has no SQLSTATE for a connection that did not come about. In another language
    it is waited for like one that is away, and named then.
    """
    if not isinstance(error, psycopg.OperationalError):
        return False
    if code_of(error)[:2] in ("28", "3D"):
        return True
    said = str(error)
    return bool(_REFUSED.search(said)) and not _AWAY.search(said)


def is_nameless(error: Exception) -> bool:
    """Whether no host that the URL names is known by that name. A server that is away still has its name."""
    return isinstance(error, psycopg.OperationalError) and bool(_NAMELESS.search(str(error)))


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
    if is_refused(error):
        return WorldUnavailable(
            f"the server does not let us in ({said}): check user, password and database in the URL, and what "
            "pg_hba.conf and its grants allow them",
            world=world,
        )
    if is_lost(error) or isinstance(error, TimeoutError):
        return WorldUnavailable(f"the server does not answer ({said})", world=world)
    return WorldUnavailable(f"Postgres failed with {code or type(error).__name__}: {said}", world=world)
