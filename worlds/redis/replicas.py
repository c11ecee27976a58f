"""Waiting for replicas: what a server has taken is answered once so many of them have it, too (`wait` in the URL)."""

from collections import deque
from typing import Any

from journal.core.ports import Unknown
from journal.worlds.redis.calls import Call, Cut, ignored
from journal.worlds.redis.connection import pack


class Replicas:
    """Of one line. Behind the batches of one write go a write of its own and a WAIT.

    WAIT is about this connection's last write; a batch that is there already, from another one, writes nothing.
    """

    def __init__(self, wanted: int, *, patience_seconds: float) -> None:
        self.wanted = wanted
        self._milliseconds = int(patience_seconds * 500)
        self._landed: deque[tuple[Call, Any]] = deque()
        """Batches that the server has, and its replicas perhaps not."""
        self._has_written = False

    def behind(self, calls: list[Call], key: bytes) -> list[Call]:
        """What to send behind these; `key` is one that this server has."""
        call = calls[-1]
        loop = call.future.get_loop()
        write = pack(("HSET", key, "waited", ""))
        wait = pack(("WAIT", self.wanted, self._milliseconds))
        return [
            Call(write, Cut.HERE, self._written, ignored(loop.create_future()), call.deadline),
            Call(wait, Cut.HERE, self._waited, ignored(loop.create_future()), call.deadline),
        ]

    def keep(self, call: Call, answer: Any) -> None:
        """The server has it; the answer has to wait."""
        self._landed.append((call, answer))

    def drop(self) -> list[Call]:
        """The connection is lost: those whose answers still wait."""
        landed = [call for call, _ in self._landed]
        self._landed.clear()
        self._has_written = False
        return landed

    def refused(self, call: Call) -> None:
        """One of ours, perhaps: then nothing is known of replicas."""
        if call.decode == self._waited:
            self._waited(0)

    def _written(self, _: Any) -> None:
        self._has_written = True

    def _waited(self, replicas: int) -> None:
        if not self._has_written:
            replicas = 0
        self._has_written = False
        while self._landed:
            call, answer = self._landed.popleft()
            if replicas < self.wanted:
                answer = Unknown(f"{replicas} of {self.wanted} replicas have it")
            if not call.future.done():
                call.future.set_result(answer)
