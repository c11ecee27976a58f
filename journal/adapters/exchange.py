"""One request to a provider and its answer: sent when its call acts, or answered from the log.

What the client gets is made of what the log keeps, so that the first run and a replay are alike. Bodies are kept
decoded, to the byte; of an answer of 400 and above its status, codes and retry headers. Next: `transport.py`.
"""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import suppress
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from journal.adapters import dialects
from journal.adapters.dialects import Asked, Json, Reading
from journal.core import values
from journal.core.errors import DidNotHappen
from journal.core.failures import register_error
from journal.engine.calls import Settled
from journal.engine.context import in_call
from journal.engine.turn import failure_of

_KEPT_HEADERS = frozenset(
    {
        "content-disposition",
        "content-type",
        "location",
        "request-id",
        "retry-after",
        "retry-after-ms",
        "x-request-id",
        "x-should-retry",
    }
)
_KEPT_PREFIXES = ("anthropic-", "openai-", "x-ratelimit-")
_NOT_SENT = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol"})
_DOUBTFUL_STATUS = frozenset({408, 502, 504})
"""Answers that tell of a timeout or a broken connection behind the one who answers."""
_WORDS = "the provider's words are not recorded: response.extensions['provider_body'] has them the first time"


class HttpFailure(Exception):
    """A request without a usable answer. `data` is what the log keeps: no text of the provider's."""

    def __init__(self, data: Json, *, body: bytes | None = None) -> None:
        self.data, self.body = data, body
        super().__init__(data.get("status") or data.get("error"))

    @property
    def status_code(self) -> int | None:
        status: int | None = self.data.get("status")
        return status

    @property
    def headers(self) -> dict[str, str]:
        headers: dict[str, str] = self.data.get("headers", {})
        return headers

    @property
    def code(self) -> str | int | None:
        detail: Json = self.data.get("detail") or self.data.get("event") or {}
        return detail.get("code") or detail.get("type") or self.status_code


class HttpInterrupted(HttpFailure, ConnectionError):
    """The same, where the request may have had its effect."""


class HttpNotSent(HttpFailure, ConnectionError, DidNotHappen):
    """The same, where it certainly had none: there was no connection."""

    reason = "there was no connection"


for _cls in (HttpFailure, HttpInterrupted, HttpNotSent):
    register_error(_cls, to_data=lambda error: error.data, from_data=_cls)


class Exchange:
    """A request that is sent when its call acts, and the answer, from there or from the log."""

    def __init__(self, inner: Any, http: ModuleType, request: Any, asked: Asked) -> None:
        self._inner, self._http, self._request, self._asked = inner, http, request, asked
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.head: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        """In a stream: makes the answer, once status and headers are there."""

    # Acting: within the call

    async def whole(self) -> Json:
        """Send, and read the body to its end."""
        try:
            response = await self._inner.handle_async_request(self._request)
            try:
                body = await response.aread()
            finally:
                await response.aclose()
        except self._http.RequestError as error:
            raise self._broken(error, {}) from error
        head = _head_of(response)
        self._refuse(head, body)
        reading = Reading(self._asked.name, is_events=False)
        reading.feed(body)
        reading.end()
        return {**head, "body": body, "reading": reading}

    async def stream(self) -> Json:
        """Send, and show the body as it comes; the call is over with its last event."""
        context = in_call()
        head: Json = {}
        body = bytearray()
        try:
            response = await self._inner.handle_async_request(self._request)
            try:
                head = _head_of(response)
                if response.status_code >= 400:
                    self._refuse(head, await response.aread())
                reading = Reading(
                    self._asked.name, is_events="event-stream" in head["headers"].get("content-type", "")
                )
                if context is not None:
                    context.has_shown = True  # from here on the client reads along
                self.head.set_result(lambda work: self._response(head, self._body(work, None)))
                async for chunk in response.aiter_bytes():
                    body += chunk
                    text = reading.feed(chunk)
                    if text and context is not None:
                        context.emit({"type": "text-delta", "delta": text})
                    self._chunks.put_nowait(chunk)
            finally:
                await response.aclose()
        except self._http.RequestError as error:
            raise self._broken(error, head) from error
        reading.end()
        if reading.error is not None:
            raise HttpFailure({**head, "event": reading.error})
        if not reading.has_ended:
            raise self._broken(
                self._http.RemoteProtocolError("the stream ended without its last event"), head
            )
        return {**head, "body": bytes(body), "reading": reading}

    def _refuse(self, head: Json, body: bytes) -> None:
        if head["status"] >= 400:
            found = dialects.detail_of(body)
            cls = HttpInterrupted if head["status"] in _DOUBTFUL_STATUS else HttpFailure
            raise cls({**head, "detail": found}, body=body)

    def _broken(self, error: Exception, head: Json) -> HttpFailure:
        name = type(error).__name__
        return (HttpNotSent if name in _NOT_SENT else HttpInterrupted)({**head, "error": name})

    # Answering: to the client, alike on the first run and on a replay

    def answer(self, settled: Settled) -> Any:
        """The response that the call came to; raises as the library does where there is none."""
        if settled.data is not None:
            kept = values.decode(settled.data)
            body = kept["text"].encode() if "text" in kept else base64.b64decode(kept["base64"])
            return self._response(kept, self._http.ByteStream(body))
        failure = failure_of(settled)
        if not isinstance(failure, HttpFailure):
            raise failure
        data = failure.data
        if "detail" in data:
            body = dialects.error_body(self._asked.name, data["detail"], f"HTTP {data['status']}; {_WORDS}")
            response = self._response(data, self._http.ByteStream(values.encode(body)))
            if isinstance(settled.cause, HttpFailure):
                response.extensions["provider_body"] = settled.cause.body
            return response
        if "event" in data:
            event = dialects.error_event(self._asked.name, data["event"], "an error within the stream")
            return self._response(data, self._http.ByteStream(event))
        if "status" in data:  # it broke within the body
            return self._response(data, self._body(None, self.error_of(failure)))
        raise self.error_of(failure) from failure

    def error_of(self, failure: HttpFailure) -> Exception:
        """The library's own exception."""
        cls = getattr(self._http, str(failure.data["error"]), self._http.RequestError)
        error: Exception = cls("as recorded", request=self._request)
        return error

    def _response(self, head: Json, body: Any) -> Any:
        return self._http.Response(head["status"], headers=head["headers"], stream=body)

    def _body(self, work: "asyncio.Task[Settled] | None", error: Exception | None) -> Any:
        return _body_class(self._http)(self, work, error)

    # A stream's body

    def finished(self, work: "asyncio.Task[Settled]") -> None:
        """The call is over: there are no more chunks."""
        self._chunks.put_nowait(None)
        if not work.cancelled():
            work.exception()  # told to whoever still reads

    async def chunks(self, work: "asyncio.Task[Settled]") -> AsyncIterator[bytes]:
        """The body; its end comes once the outcome is durable."""
        try:
            while (chunk := await self._chunks.get()) is not None:
                yield chunk
        except asyncio.CancelledError:
            await cancelled(work)
            raise
        settled = work.result()
        if settled.data is None:
            failure = failure_of(settled)
            if not isinstance(failure, HttpFailure):
                raise failure
            if "event" not in failure.data:  # that was among the chunks
                raise self.error_of(failure) from failure


class _Body:
    """A stream's body; stands before the library's own class of such."""

    def __init__(
        self, exchange: Exchange, work: "asyncio.Task[Settled] | None", error: Exception | None
    ) -> None:
        self._exchange, self._work, self._error = exchange, work, error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._work is None:
            assert self._error is not None
            raise self._error
        async for chunk in self._exchange.chunks(self._work):
            yield chunk

    async def aclose(self) -> None:
        """The client is done with it. What it left unread is still read, for it is paid for, and recorded whole.

        Not if it leaves because it is cancelled: then the request is broken off, and the call recorded as cancelled.
        """
        work, here = self._work, asyncio.current_task()
        if work is None or work.done():
            return
        if here is not None and here.cancelling():
            await cancelled(work)
            return
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError:
            await cancelled(work)
            raise


_body_classes: WeakKeyDictionary[ModuleType, type] = WeakKeyDictionary()


def _body_class(http: ModuleType) -> type:
    if (found := _body_classes.get(http)) is None:
        found = _body_classes[http] = type("DurableBody", (_Body, http.AsyncByteStream), {})
    return found


async def cancelled(work: "asyncio.Task[Settled]") -> None:
    """Break the call off, and wait until that is in the log."""
    work.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.wait({work})


def _head_of(response: Any) -> Json:
    headers = {
        name: value
        for name, value in response.headers.items()
        if name in _KEPT_HEADERS or name.startswith(_KEPT_PREFIXES)
    }
    return {"status": response.status_code, "headers": headers}


def encode_answer(answer: Json) -> bytes:
    """What the log keeps of an answer: text as text, anything else in base64."""
    kept = {"status": answer["status"], "headers": answer["headers"]}
    try:
        kept["text"] = answer["body"].decode()
    except UnicodeDecodeError:
        kept["base64"] = base64.b64encode(answer["body"]).decode()
    return values.encode(kept, what="the answer of the provider")
