"""Renewing claims, from the thread of whoever calls, on a blocking connection of its own."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import redis
from redis.backoff import ExponentialBackoff
from redis.cluster import ClusterNode
from redis.exceptions import ConnectionError as Lost
from redis.exceptions import (
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.retry import Retry

from journal.core.errors import WorldError, WorldUnavailable
from journal.core.ports import Claim
from journal.worlds.redis.address import Address
from journal.worlds.redis.keys import Keys
from journal.worlds.redis.library import TEXT, function
from journal.worlds.redis.refusals import ReplyError, is_missing_function, world_error

_RENEW = function("renew")
TIMEOUT_SECONDS = 3.0
_WORDS = {OutOfMemoryError: "OOM ", ReadOnlyError: "READONLY ", NoPermissionError: "NOPERM "}
"""The words of the server that the driver has made classes of."""


class RedisRenewer:
    """A `Renewer`: one thread at a time."""

    def __init__(self, address: Address, keys: Keys, at: Callable[[], str]) -> None:
        self._world = address.shown
        self._keys = keys
        self._at = at
        self._address = address
        self._client: Any = None
        self._finalizer: weakref.finalize[Any, Any] | None = None

    def renew(self, claims: Sequence[Claim], lease_seconds: float) -> set[Claim]:
        """See `Renewer.renew`."""
        if not claims:
            return set()
        try:
            self._connect()
            replies = self._ask(claims, lease_seconds)
            if any(isinstance(reply, ResponseError) and _is_missing(reply) for reply in replies):
                self._client.execute_command("FUNCTION LOAD", TEXT)
                replies = self._ask(claims, lease_seconds)
        except Lost as error:
            raise WorldUnavailable(f"claims could not be renewed: {error}", world=self._world) from error
        except RedisError as error:
            raise self._error(error) from error
        for reply in replies:
            if isinstance(reply, RedisError):
                raise self._error(reply)
        return {claim for claim, is_held in zip(claims, replies, strict=True) if is_held}

    def _connect(self) -> None:
        if self._client is not None:
            return
        # A renewal may be sent twice: the second says the same.
        options: dict[str, Any] = {
            "socket_timeout": TIMEOUT_SECONDS,
            "socket_connect_timeout": TIMEOUT_SECONDS,
            "retry": Retry(ExponentialBackoff(cap=0.5, base=0.05), 2),
            "protocol": 2,
        }
        url = self._address.driver_url
        if self._address.is_cluster:
            places = self._address.nodes
            nodes = [ClusterNode(host, port) for host, port in places]  # type: ignore[no-untyped-call]  # no hints there
            self._client = redis.RedisCluster.from_url(
                url, startup_nodes=nodes, require_full_coverage=False, **options
            )
        else:
            self._client = redis.Redis.from_url(url, **options)
        self._finalizer = weakref.finalize(self, self._client.close)

    def _ask(self, claims: Sequence[Claim], lease_seconds: float) -> list[Any]:
        at, lease = self._at(), repr(float(lease_seconds))
        pipeline = self._client.pipeline(transaction=False)
        for claim in claims:
            keys = self._keys.of_run(claim.run)
            pipeline.execute_command(
                "FCALL", _RENEW, 2, keys.hash, keys.index, at, keys.name, claim.epoch, claim.token, lease
            )
        replies: list[Any] = pipeline.execute(raise_on_error=False)
        return replies

    def _error(self, error: RedisError) -> WorldError:
        word = next((word for kind, word in _WORDS.items() if isinstance(error, kind)), "")
        return world_error(ReplyError(f"{word}{error}"), self._world)

    def close(self) -> None:
        """See `Renewer.close`."""
        if self._finalizer is not None:
            self._finalizer()


def _is_missing(error: ResponseError) -> bool:
    text = str(error)
    return is_missing_function(ReplyError(text if text.startswith("ERR ") else f"ERR {text}"))
