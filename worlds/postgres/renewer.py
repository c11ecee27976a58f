"""Renewing claims, from the thread of whoever calls, on a connection of its own.

Rows that others have locked are skipped at first and asked for again, for whoever is appending or claiming must not
wait for renewals, nor the other way round; a row that stays locked is waited for in the end, in order.
"""

import time
import weakref
from collections.abc import Sequence
from typing import Any

import psycopg

from journal.core.clock import Clock
from journal.core.errors import WorldUnavailable
from journal.core.ports import Claim
from journal.worlds.postgres.address import Address
from journal.worlds.postgres.connection import (
    connect_blocking,
    hung_up,
    is_worth_waiting,
    transaction_settings,
)
from journal.worlds.postgres.failures import is_lost, is_passing, world_error
from journal.worlds.postgres.statements import statements

PATIENCE_SECONDS = 8.0
"""How long a renewal tries; leases are renewed at a third of their length, 10 s by default."""
LOCK_SECONDS = 3.0
STATEMENT_SECONDS = 10.0
ANSWER_SECONDS = 12.0
"""How long an answer is waited for; the server itself gives a statement up before that, if it lives."""
SKIPS = 5
_PAUSE_SECONDS = 0.005
_BACKOFF_SECONDS = 0.1


class PostgresRenewer:
    """A `Renewer`: one thread at a time."""

    def __init__(self, address: Address, namespace: str, clock: Clock | None) -> None:
        self._address = address
        self._namespace = namespace
        self._clock = clock
        self._texts = {name: text.encode() for name, text in statements(address.schema).items()}
        self._held: list[psycopg.Connection[Any]] = []
        # For one that nobody closed: a connection that is merely dropped is a warning.
        self._finalizer = weakref.finalize(self, _close, self._held)

    def renew(self, claims: Sequence[Claim], lease_seconds: float) -> set[Claim]:
        """See `Renewer.renew`."""
        if not claims:
            return set()
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self._renew(claims, lease_seconds)
            except (psycopg.Error, OSError) as error:
                if not is_passing(error):
                    _close(self._held)
                    if not is_worth_waiting(error):
                        raise world_error(error, self._address.url) from error
                if time.monotonic() >= until:
                    reason = str(error).strip() if is_lost(error) else type(error).__name__
                    raise WorldUnavailable(
                        f"claims could not be renewed for {PATIENCE_SECONDS:g} s ({reason})",
                        world=self._address.url,
                    ) from error
                time.sleep(_BACKOFF_SECONDS)

    def _renew(self, claims: Sequence[Claim], lease_seconds: float) -> set[Claim]:
        if not self._held:
            self._held.append(connect_blocking(self._address, **_limits()))
        left = list(claims)
        renewed: set[Claim] = set()
        for count in range(SKIPS + 1):
            name = "renew" if count < SKIPS else "renew_waiting"
            renewed |= self._fetch(name, left, lease_seconds)
            left = [claim for claim in left if claim not in renewed]
            if left:
                held = self._fetch("still_held", left, lease_seconds)
                left = [claim for claim in left if claim in held]
            if not left:
                break
            time.sleep(_PAUSE_SECONDS)
        return renewed

    def _fetch(self, name: str, claims: Sequence[Claim], lease_seconds: float) -> set[Claim]:
        asked = {
            "at": None if self._clock is None else self._clock.time(),
            "namespace": self._namespace,
            "lease_seconds": lease_seconds,
            "runs": [claim.run for claim in claims],
            "epochs": [claim.epoch for claim in claims],
            "tokens": [claim.token for claim in claims],
        }
        connection, statement = self._held[0], self._texts[name]
        with hung_up(connection, after=ANSWER_SECONDS):
            if self._address.is_pooled:
                cursor: psycopg.Cursor[Any] = psycopg.ClientCursor(connection)
                cursor.execute(transaction_settings(**_limits()) + b";" + statement, asked)
                cursor.nextset()
            else:
                cursor = connection.execute(statement, asked, prepare=True, binary=True)
        found = set(cursor.fetchall())
        return {claim for claim in claims if (claim.run, claim.epoch, claim.token) in found}

    def close(self) -> None:
        """See `Renewer.close`."""
        _close(self._held)
        self._finalizer.detach()


def _limits() -> dict[str, str]:
    return {
        "lock_timeout": str(int(LOCK_SECONDS * 1000)),
        "statement_timeout": str(int(STATEMENT_SECONDS * 1000)),
    }


def _close(held: list[psycopg.Connection[Any]]) -> None:
    while held:
        held.pop().close()
