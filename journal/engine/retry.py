"""Retries and timeouts around an act: they happen before the outcome is recorded, within one intent."""

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable
from typing import Any

from journal.core.errors import CallTimeout, DidNotHappen
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

    A `never` act is started again only if it says that it `DidNotHappen`.

    `timeout` bounds each try, in seconds. The last error is re-raised unchanged, with the number of tries
    noted on it. Cancelling during a back-off cancels.
    """
    number = 1
    while True:
        try:
            return await _bounded(act, timeout, key), number
        except Exception as error:
            error.__journal_tries__ = number  # type: ignore[attr-defined]  # read by calls.py for the outcome
            if is_never and not isinstance(error, DidNotHappen):
                raise
            if retry is None or number >= retry.tries or not await _wants_more(retry, error):
                raise
            delay = retry.delay(number, _random.random())
        await asyncio.sleep(delay)
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


async def _wants_more(retry: Retry, error: Exception) -> bool:
    if retry.should_retry is None:
        return True
    answer = retry.should_retry(error)
    return bool(await answer if inspect.isawaitable(answer) else answer)
