"""Raw clients: a transport for httpx (or httpx2) that records each request of a turn as a call.

It wraps another transport, so it covers whatever is built on one: `create`, streams and stream helpers of the OpenAI
and Anthropic clients. The intent is durable before the request goes out; the outcome once the whole body was read; what
is recorded is answered from the log, byte for byte, and nothing is sent. Headers of requests are never recorded. What a
request means is read in `dialects.py`; `openai.py` and `anthropic.py` wrap whole clients.
"""

import asyncio
import sys
from contextvars import ContextVar
from types import ModuleType
from typing import Any, Self, TypeVar
from weakref import WeakKeyDictionary

from journal.adapters import dialects
from journal.adapters.dialects import Asked
from journal.adapters.exchange import Exchange, cancelled, encode_answer
from journal.core.errors import InvalidOptions, JournalError, OutcomeUnknown
from journal.core.records import Policy
from journal.engine.adapting import notes_of, reporting, scope_here
from journal.engine.attempt import Attempt
from journal.engine.calls import Call, settle
from journal.engine.context import CallContext
from journal.engine.scope import Scope
from journal.tools.policy import resolve

T = TypeVar("T")

_LIBRARIES = ("httpx2", "httpx")
_MADE_UP = "stainless-"
"""How idempotency keys begin that the client library makes up; others are the program's own."""


client_retries: ContextVar[int] = ContextVar("journal_client_retries", default=0)
"""How often the client library repeats the request under way by itself: then the engine does not."""


class _Logical:
    """A request of the program; the client library's own retries are further tries of it."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.unknown: OutcomeUnknown | None = None
        """Set once a try ended so: then there are no more."""


class DurableTransport:
    """`inner`, with its requests recorded in the turn that they are made in.

    Takes part in an async client: ``httpx2.AsyncClient(transport=durable_transport(httpx2.AsyncHTTPTransport()))``.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._http = library_of(inner)

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._inner.__aexit__(*error)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def handle_async_request(self, request: Any) -> Any:
        """Raises `NotInTurn` outside of a turn, and `OutcomeUnknown` for what is in doubt and not to be repeated."""
        content = await request.aread()
        scope = scope_here("a durable client")
        attempt = scope.attempt
        asked = dialects.read_request(
            request.method,
            request.url.path,
            request.headers.get("content-type", ""),
            content,
            lambda tool: _policy_of(attempt, tool),
        )
        notes = notes_of(attempt, "transport")
        logical, key = _place(scope, asked, _retries(request), notes)
        if logical.unknown is not None:
            raise logical.unknown
        if request.headers.get("idempotency-key", _MADE_UP).startswith(_MADE_UP):
            context = CallContext(attempt, logical.key, 1, None)
            request.headers["idempotency-key"] = context.idempotency_key
        exchange = Exchange(self._inner, self._http, request, asked)
        call = Call(
            key=key,
            kind=asked.kind,
            name=asked.name,
            act=reporting(
                exchange.stream if asked.is_stream else exchange.whole,
                lambda answer: answer["reading"].facts(answer["headers"]),
            ),
            input=dialects.recorded_input(asked),
            input_digest=asked.digest,
            config_digest=asked.config_digest,
            encode=encode_answer,
            policy=asked.policy,
            retry=attempt.agent.model_retry if asked.kind == "model" and not client_retries.get() else None,
        )
        try:
            if asked.is_stream:
                return await self._streamed(attempt, call, exchange)
            return exchange.answer(await settle(attempt, call))
        except OutcomeUnknown as error:
            logical.unknown = error
            raise

    async def _streamed(self, attempt: Attempt, call: Call, exchange: Exchange) -> Any:
        """The answer as soon as its head is there; its body follows while the call goes on in a task of its own."""
        work = asyncio.create_task(settle(attempt, call), name=f"journal {call.key}")
        attempt.tasks[work] = None
        work.add_done_callback(exchange.finished)
        try:
            await asyncio.wait({work, exchange.head}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await cancelled(work)
            raise
        if exchange.head.done() and not exchange.head.cancelled():
            return exchange.head.result()(work)
        return exchange.answer(work.result())


def durable_transport(inner: T) -> T:
    """`inner` wrapped; of the same library, `httpx` or `httpx2`, for its ``AsyncClient(transport=…)``.

    Under a client library set ``max_retries=0`` beside it: its retries are further tries of the same call, unseen.
    """
    transport: Any = DurableTransport(inner)
    return transport  # type: ignore[no-any-return]  # it acts as one: neither library asks for the class


def library_of(part: object) -> ModuleType:
    """`httpx2` or `httpx`: the one that `part` is of. Raises `InvalidOptions`."""
    for name in _LIBRARIES:
        library = sys.modules.get(name)
        if library is not None and isinstance(part, (library.AsyncBaseTransport, library.AsyncClient)):
            return library
    if isinstance(part, _Through):
        return library_of(part.client)
    raise InvalidOptions(
        f"{type(part).__qualname__} is no async transport or client of httpx or httpx2: a handler is async, so use "
        "AsyncOpenAI, AsyncAnthropic or an AsyncHTTPTransport"
    )


def _policy_of(attempt: Attempt, tool: str) -> Policy:
    agent = attempt.agent
    return resolve(tool, agent=agent.tools, journal=agent.journal.tools).policy


def _retries(request: Any) -> int:
    count = request.headers.get("x-stainless-retry-count", "0")
    return int(count) if count.isdecimal() else 0


def _place(scope: Scope, asked: Asked, retries: int, notes: dict[str, Any]) -> tuple[_Logical, str]:
    """The logical call, and the key of this try of it.

    The digest is in the key: of requests under way at once, which comes first is chance.
    """
    name = f"{asked.name}:{asked.digest.hex()[:12]}"
    latest = f"latest {scope.path} {name}"
    logical: _Logical | None = notes.get(latest)
    if retries and logical is not None:
        stem, _, number = logical.key.rpartition("#")
        return logical, f"{stem}.retry{retries}#{number}"
    logical = notes[latest] = _Logical(scope.next_key(name))
    return logical, logical.key


# Whole clients -------------------------------------------------------------------------------------


class _Through:
    """A transport that sends through a client, with its pool, proxies, cookies and hooks."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self.client.aclose()

    async def handle_async_request(self, request: Any) -> Any:
        return await self.client.send(request, stream=True)


_classes: WeakKeyDictionary[type, type] = WeakKeyDictionary()


def _outspoken(kind: Any) -> type:
    """A class of clients that lets our errors through, where the library makes failed connections of them."""

    class Durable(kind):  # type: ignore[misc]  # a class that is known at run time
        async def request(self, cast_to: Any, options: Any, **more: Any) -> Any:
            token = client_retries.set(options.get_max_retries(self.max_retries))
            try:
                return await super().request(cast_to, options, **more)
            except Exception as error:
                if isinstance(error.__cause__, JournalError):
                    raise error.__cause__ from None
                raise
            finally:
                client_retries.reset(token)

    Durable.__name__, Durable.__qualname__, Durable.__module__ = (
        kind.__name__,
        kind.__qualname__,
        kind.__module__,
    )
    return Durable


def durable_copy(client: T) -> T:
    """A copy of a client of the OpenAI or Anthropic library that records; shares and closes the same connections.

    The library's own retries are off in it. Raises `InvalidOptions` for a sync client.
    """
    kind = type(client)
    if kind in _classes.values():
        return client
    given: Any = client
    inner = given._client  # noqa: SLF001 - both libraries keep it there, and have no other word for it
    outer = library_of(inner).AsyncClient(
        transport=DurableTransport(_Through(inner)), timeout=inner.timeout, trust_env=False
    )
    copy = given.copy(http_client=outer, max_retries=0)
    if kind not in _classes:
        _classes[kind] = _outspoken(kind)
    copy.__class__ = _classes[kind]
    return copy  # type: ignore[no-any-return]  # of a subclass of the client's
