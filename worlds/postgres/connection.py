"""Connections: how they are opened, and how long we try.

Budget of one world: 1 that writes, up to 2 that read and claim, 1 that listens and 1 that rings (not with
`notify=off`), and 1 for each open renewer. All but the first are opened when they are needed.

A connection to a pooler of transactions is given no setting and no prepared statement: the one would stay behind for
strangers, the other would not be there. Each transaction brings its settings with it (`transaction_settings`).
"""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from journal.core.errors import WorldUnavailable
from journal.worlds.postgres.address import Address
from journal.worlds.postgres.failures import code_of, is_lost, is_nameless, is_refused, world_error

CONNECT_SECONDS = 10
"""How long one attempt to connect may take; libpq counts whole seconds."""
PATIENCE_SECONDS = 15.0
"""How long a lost server is waited for, before those who wait are told."""
NAME_SECONDS = 0.5
"""After so long a name that could not be found is looked up once more."""
_BACKOFF = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
_DEFAULTS: dict[str, Any] = {
    "application_name": "durable-journal",
    "client_encoding": "UTF8",
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}

_SETTINGS = {
    "search_path": "pg_catalog",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_sort": "off",
    "lock_timeout": "0",
}
"""Every statement of ours is a few index lookups, whatever the statistics of a young table say."""
_OF_SESSIONS = {"default_transaction_isolation": "read committed"}
"""What a transaction cannot say once it has begun."""


def parameters(address: Address) -> dict[str, Any]:
    """What libpq is told; the URL's own settings win."""
    return {**_DEFAULTS, **conninfo_to_dict(address.conninfo), "client_encoding": "UTF8"}


def _set(settings: Mapping[str, str], *, is_local: bool) -> str:
    calls = [f"set_config('{name}', '{value}', {is_local})" for name, value in settings.items()]
    return f"select {', '.join(calls)}"


def transaction_settings(**more: str) -> bytes:
    """A statement that makes our settings, and `more`, those of the transaction that it is in."""
    return _set({**_SETTINGS, **more}, is_local=True).encode()


def session_settings(**more: str) -> bytes:
    """A statement that makes them those of the connection."""
    return _set({**_SETTINGS, **_OF_SESSIONS, **more}, is_local=False).encode()


async def connect(address: Address) -> psycopg.AsyncConnection[Any]:
    """One attempt. Raises the driver's errors."""
    connection = await psycopg.AsyncConnection.connect(
        **parameters(address), autocommit=True, prepare_threshold=None if address.is_pooled else 0
    )
    try:
        if not address.is_pooled:
            await connection.execute(session_settings())
    except BaseException:
        await connection.close()
        raise
    return connection


def connect_blocking(address: Address, **settings: str) -> psycopg.Connection[Any]:
    """One attempt, from a thread. Raises the driver's errors."""
    connection = psycopg.Connection.connect(
        **parameters(address), autocommit=True, prepare_threshold=None if address.is_pooled else 0
    )
    try:
        if not address.is_pooled:
            with hung_up(connection, after=CONNECT_SECONDS):
                connection.execute(session_settings(**settings))
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def hung_up(connection: psycopg.Connection[Any], *, after: float) -> Iterator[None]:
    """Cut the connection if the block takes longer: the driver waits for a server that hangs as long as that hangs."""
    own = socket.socket(fileno=os.dup(connection.fileno()))
    timer = threading.Timer(after, _hang_up, (own,))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        own.close()


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it has ended meanwhile


def is_worth_waiting(error: Exception) -> bool:
    """Whether the server may be back in a moment: lost, starting, shutting down, or out of connections."""
    if is_refused(error):
        return False
    return is_lost(error) or (isinstance(error, psycopg.Error) and code_of(error) == "53300")


async def connect_patiently(
    address: Address, seconds: float = PATIENCE_SECONDS, *, is_first: bool = False
) -> psycopg.AsyncConnection[Any]:
    """Try until it succeeds or `seconds` have passed. Raises a `WorldError`.

    `is_first`: it was never reached here, so a name that cannot be found twice is taken for a mistake.
    """
    until = time.monotonic() + seconds
    attempt = 0
    while True:
        try:
            async with asyncio.timeout(max(until - time.monotonic(), 0.05)):
                return await connect(address)
        except (psycopg.Error, OSError) as error:  # a TimeoutError is an OSError
            pause = _BACKOFF[min(attempt, len(_BACKOFF) - 1)]
            if not is_worth_waiting(error):
                raise world_error(error, address.url) from error
            if is_first and is_nameless(error):
                if attempt:
                    raise WorldUnavailable(
                        f"there is no such host ({_first_line(error)}): check its name in the URL",
                        world=address.url,
                    ) from error
                pause = NAME_SECONDS
            if time.monotonic() + pause >= until:
                raise WorldUnavailable(
                    f"the server was not to be reached for {seconds:g} s ({_first_line(error)}): "
                    "check that it runs, and the URL",
                    world=address.url,
                ) from error
        attempt += 1
        await asyncio.sleep(pause)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
