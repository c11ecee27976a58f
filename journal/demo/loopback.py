"""HTTP on 127.0.0.1, on a free port: the floor under the model server and the refund service.

Both count what reached them in a `Tally` that outlives a kill, and can `Hold` one request at a chosen moment, so
that a client can be killed exactly there. Nothing listens anywhere but on loopback. Next: `model_server.py`.
"""

import json
import os
import socket
import sys
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Self

import msgspec

MAX_BODY_BYTES = 16 * 1024 * 1024


class Request(msgspec.Struct, frozen=True):
    """A request that was received whole."""

    method: str
    path: str
    """Without the query."""
    body: Any
    """Decoded JSON; None where there was none."""
    headers: dict[str, str] = {}
    """By lower-case name."""


class Reply(msgspec.Struct, frozen=True):
    """An answer: one JSON value, or server-sent events."""

    body: Any = None
    status: int = 200
    events: tuple[str, ...] | None = None
    """Frames to be sent one by one, instead of `body`."""
    headers: dict[str, str] = {}
    """More headers of the answer."""


class BadRequest(Exception):
    """What was asked cannot be answered; told to the client with status 400."""


class Tally:
    """What happened, by name and in order. With a path, each is durable on disk before `add` returns.

    Servers may share one: its order is then the order across them.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._lock = Lock()
        self._path = path
        self._names = read_tally(path) if path else []

    def add(self, name: str, **detail: object) -> int:
        """Count one more `name`; returns how many there are now."""
        with self._lock:
            if self._path:
                line = json.dumps({"name": name, **detail}) + "\n"
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
            self._names.append(name)
            return self._names.count(name)

    def names(self) -> list[str]:
        """All that was counted, in the order in which it happened."""
        with self._lock:
            return list(self._names)

    def count(self, name: str) -> int:
        """How often `name` was counted."""
        with self._lock:
            return self._names.count(name)


def read_tally(path: Path) -> list[str]:
    """The names in a tally's file, from any process; a line torn by a kill did not happen."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line)["name"] for line in lines if line.endswith("\n")]


class Hold:
    """Keeps the `on`-th arrival waiting until it is released; `reached` is set once it waits."""

    def __init__(self, on: int | None) -> None:
        self.on = on
        self.reached = Event()
        self._released = Event()

    def arrive(self, number: int) -> None:
        """Pass, or wait here if `number` is the one to be held."""
        if number == self.on:
            self.reached.set()
            self._released.wait()

    def release(self) -> None:
        """Let the held one go, and hold no more."""
        self._released.set()


class LoopbackServer:
    """A server of its own thread; a subclass says what it answers.

    A context manager: listening from `__enter__` (`url` is set then) until `__exit__`, which also releases whatever
    is held and cuts open connections.
    """

    url: str

    def __init__(self, *, tally: Tally | None, hang_on: int | None, port: int = 0) -> None:
        self.tally = tally or Tally()
        self.hold = Hold(hang_on)
        self._port = port
        self._http: _Http | None = None

    def answer(self, request: Request) -> Reply:
        """The reply to one request; called on the connection's own thread."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._http = _Http(self, self._port)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        # A short poll: `shutdown` waits for one.
        Thread(target=self._http.serve_forever, args=(0.05,), name="loopback", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.hold.release()
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http.cut()
            self._http = None


class _Http(ThreadingHTTPServer):
    def __init__(self, app: LoopbackServer, port: int) -> None:
        self.app = app
        self._open: set[socket.socket] = set()
        self._lock = Lock()
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Lost connections are the point of it all, so nothing is said about them."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def cut(self) -> None:
        """End the connections that clients keep open; their threads end by it."""
        with self._lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # the client was quicker


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave in one packet: two would wait for a delayed acknowledgement
    disable_nagle_algorithm = True
    server: _Http

    def do_GET(self) -> None:
        self._serve(None)

    def do_POST(self) -> None:
        length = self.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            self.close_connection = True
            return self._send_json(
                Reply({"error": {"message": "a content-length up to 16 MiB is needed"}}, 411)
            )
        data = self.rfile.read(int(length))
        if len(data) < int(length):
            self.close_connection = True  # cut off in the middle: it was never asked
            return None
        return self._serve(data)

    def _serve(self, data: bytes | None) -> None:
        try:
            body = json.loads(data) if data else None
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = self.server.app.answer(Request(self.command, self.path.partition("?")[0], body, headers))
        except (
            BadRequest,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
        ) as error:  # not what an API takes
            reply = Reply(
                {"error": {"message": str(error) or repr(error), "type": "invalid_request_error"}}, 400
            )
        if reply.events is None:
            self._send_json(reply)
        else:
            self._send_events(reply.events)

    def _send_json(self, reply: Reply) -> None:
        data = json.dumps(reply.body).encode()
        self.send_response(reply.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for name, text in reply.headers.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def _send_events(self, events: Iterable[str]) -> None:
        self.close_connection = True  # the end of the stream is the end of the connection
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for event in events:
            self.wfile.write(event.encode())
            self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent's name
        """Say nothing: the counts are the log."""
