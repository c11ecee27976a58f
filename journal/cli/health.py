"""A worker's health endpoint: GET /health on loopback, for supervisors. Says numbers, never content.

200 while the worker takes work; 503 once it is stopping, and while the store does not answer it. Ten lines of HTTP
are enough for a probe, and no server has to be installed for them.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec

from journal.core.errors import InvalidOptions
from journal.engine.log import logger
from journal.engine.worker import Worker

HOST = "127.0.0.1"
_READ_SECONDS = 5.0
_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


@asynccontextmanager
async def serve_health(worker: Worker, world: str, port: int) -> AsyncIterator[int]:
    """Answer while the block runs; the port (`port` 0: one that is free)."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_READ_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            writer.write(_response(head, worker, world))
            await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # no request of ours
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(answer, HOST, port)
    except OSError as error:
        raise InvalidOptions(
            f"--health-port {port} cannot be listened on ({error.strerror}): choose another"
        ) from error
    try:
        bound: int = server.sockets[0].getsockname()[1]
        logger().info("health endpoint", url=f"http://{HOST}:{bound}/health", port=bound)
        yield bound
    finally:
        server.close()


def _response(head: bytes, worker: Worker, world: str) -> bytes:
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if path not in (b"/health", b"/healthz"):
        return _http(404, {"error": "ask for /health"}, method)
    if method not in (b"GET", b"HEAD"):
        return _http(405, {"error": "GET only"}, method)
    status = "stopping" if worker.is_stopping else "ok" if worker.is_answered else "no answer from the store"
    state = {
        "status": status,
        "busy": worker.busy,
        "slots": worker.concurrency,
        "worked": worker.worked,
        "world": world,
    }
    return _http(200 if status == "ok" else 503, state, method)


def _http(status: int, value: Mapping[str, object], method: bytes) -> bytes:
    body = msgspec.json.encode(value)
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == b"HEAD" else body)
