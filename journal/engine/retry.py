"""Retries and timeouts around an act: they happen before the outcome is recorded, within one intent."""

import asyncio
import inspect
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from journal.core.errors import CallTimeout, DidNotHappen
from journal.engine.context import in_call
from journal.tools.model_retry import ModelRetry
from journal.tools.provider import status_of
from journal.tools.retry import Retry

_random = random.SystemRandom()


async def retrying(
    act: Callable[[], Awaitable[Any]],
    retry: Retry | None,
    timeout: float | None,
    key: str,
    *,
    is_never: bool = False,
) -> tuple[Any, int]:
    """Run `act` until it succeeds or `retry` has no tries left; (its result, how many tries it took).

    A `never` act is started again only if it says that it `DidNotHappen`, or a provider does by answering 429.

    `timeout` bounds each try, in seconds. The last error is re-raised unchanged, with the number of tries
    noted on it. Cancelling during a back-off cancels.
    """
    number, begun = 1, time.monotonic()
    while True:
        try:
            return await _bounded(act, timeout, key), number
        except Exception as error:
            error.__journal_tries__ = number  # type: ignore[attr-defined]  # read by calls.py for the outcome
            if is_never and not _did_not_happen(retry, error):
                raise
            if retry is None or number >= retry.tries or not await _wants_more(retry, error):
                raise
            elapsed = time.monotonic() - begun
            seconds = retry.pause(error, number, elapsed=elapsed, now=time.time(), random=_random.random())
            if seconds is None:
                raise
        await asyncio.sleep(seconds)
        if (context := in_call()) is not None:
            context.attempt.holding.check_trust()
            context.begin_again()
        number += 1


async def _bounded(act: Callable[[], Awaitable[Any]], timeout: float | None, key: str) -> Any:
    if timeout is None:
        return await act()
    try:
        async with asyncio.timeout(timeout) as scope:
            return await act()
    except TimeoutError:
        if scope.expired():
            raise CallTimeout(call=key, seconds=timeout) from None
        raise


def _did_not_happen(retry: Retry | None, error: Exception) -> bool:
    return isinstance(error, DidNotHappen) or (isinstance(retry, ModelRetry) and status_of(error) == 429)


async def _wants_more(retry: Retry, error: Exception) -> bool:
    if isinstance(retry, ModelRetry) and (context := in_call()) is not None and context.has_shown:
        return False  # a stream after its first chunk: it would be shown twice
    if retry.should_retry is None:
        return retry.is_worth(error)
    answer = retry.should_retry(error)
    return bool(await answer if inspect.isawaitable(answer) else answer)
