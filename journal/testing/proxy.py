"""A TCP proxy that cuts, delays and drops what passes through it: a network that can be broken on purpose."""

import asyncio
import fcntl
import socket
import sys
import termios
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Self

_CHUNK = 64 * 1024


class Proxy:
    """Forwards 127.0.0.1:`port` to `target`, from a thread of its own. Its methods may be called from any thread."""

    def __init__(self, target: int, *, host: str = "127.0.0.1") -> None:
        self.port = 0
        self._host = host
        self._target = target
        self._links: set[_Link] = set()
        self._delay_seconds = 0.0
        self._is_refusing = False
        self._flow = {"up": True, "down": True}
        self._left: dict[str, int] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="journal-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.port = self._call(self._listen).result()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._call(self._close).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def connections(self) -> int:
        """How many are open now."""
        return len(self._links)

    def cut(self) -> None:
        """Reset every open connection; new ones are served."""
        self._on_loop(self._reset_all)

    def cut_after(self, *, up: int | None = None, down: int | None = None) -> None:
        """Pass so many more bytes on (`up`: to the target, `down`: from it), then `cut`, once.

        Without a number: take that back.
        """
        left = {way: count for way, count in (("up", up), ("down", down)) if count is not None}
        self._on_loop(lambda: setattr(self, "_left", left or None))

    def lead_to(self, target: int) -> None:
        """New connections go to that port."""
        self._on_loop(lambda: setattr(self, "_target", target))

    def refuse(self, is_refusing: bool = True) -> None:
        """Reset every new connection at once, until told otherwise."""
        self._on_loop(lambda: setattr(self, "_is_refusing", is_refusing))

    def delay(self, seconds: float) -> None:
        """Hold every piece back for so long, both ways."""
        self._on_loop(lambda: setattr(self, "_delay_seconds", seconds))

    def drop(self, *, up: bool = True, down: bool = True) -> None:
        """Pass nothing on any more (`up`: to the target, `down`: from it); connections stay, bytes are lost."""
        self._on_loop(lambda: self._flow.update(up=not up, down=not down))

    def heal(self) -> None:
        """Pass everything on again, at once. What was dropped is gone, so its connections are reset."""

        def heal() -> None:
            if not all(self._flow.values()):
                self._reset_all()
            self._flow.update(up=True, down=True)
            self._delay_seconds, self._is_refusing = 0.0, False

        self._on_loop(heal)

    # On the proxy's own thread

    def _reset_all(self) -> None:
        for link in list(self._links):
            link.reset()

    def _on_loop(self, act: Callable[[], object]) -> None:
        """Run it there, and return when it was done."""
        done: Future[None] = Future()

        def run() -> None:
            try:
                act()
            except BaseException as error:  # noqa: BLE001 - raised to the caller
                done.set_exception(error)
            else:
                done.set_result(None)

        self._loop.call_soon_threadsafe(run)
        done.result()

    def _call(self, make: Callable[[], Coroutine[Any, Any, int]]) -> "Future[int]":
        return asyncio.run_coroutine_threadsafe(make(), self._loop)

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _close(self) -> int:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return 0

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_refusing:
            _reset(writer)
            return
        try:
            there, back = await asyncio.open_connection(self._host, self._target)
        except OSError:
            _reset(writer)
            return
        link = _Link(writer, back)
        self._links.add(link)
        try:
            await asyncio.gather(self._pump("up", reader, back), self._pump("down", there, writer))
        except OSError:
            pass  # either side went away
        finally:
            self._links.discard(link)
            link.reset()

    async def _pump(self, way: str, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(_CHUNK):
            if self._delay_seconds:
                await asyncio.sleep(self._delay_seconds)
            if self._flow[way]:
                data, is_last = self._cut_short(way, data)
                sink.write(data)
                await sink.drain()
                if is_last:
                    self._left = None
                    await _sent(sink)
                    self._reset_all()
        if sink.can_write_eof() and not sink.is_closing():
            sink.write_eof()

    def _cut_short(self, way: str, data: bytes) -> tuple[bytes, bool]:
        """What of it is passed on, and whether that is the last before a cut."""
        if self._left is None or way not in self._left:
            return data, False
        passed = data[: self._left[way]]
        self._left[way] -= len(passed)
        return passed, self._left[way] == 0


async def _sent(sink: asyncio.StreamWriter) -> None:
    """Wait until the other side has what was written: a reset would take it along."""
    connection = sink.get_extra_info("socket")
    for _ in range(200):
        if (descriptor := connection.fileno()) < 0:
            return  # it was cut meanwhile
        left = fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4))
        if sink.transport.get_write_buffer_size() == 0 and int.from_bytes(left, sys.byteorder) == 0:
            return
        await asyncio.sleep(0.001)


class _Link:
    """One connection: our side of the client, and our side of the target."""

    def __init__(self, *writers: asyncio.StreamWriter) -> None:
        self._writers = writers

    def reset(self) -> None:
        for writer in self._writers:
            _reset(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close it so that the other side sees a reset, as of a machine that is gone."""
    connection = writer.get_extra_info("socket")
    if connection is not None and not writer.is_closing():
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        except OSError:
            pass  # closed already
    writer.transport.abort()
