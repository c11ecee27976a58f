"""LISTEN and NOTIFY: how the worlds of a store tell each other that there is something to look at.

Hints only: they may be lost, doubled or late, and whoever hears one reads the log. They are sent after the commit, by
a connection of their own, for a NOTIFY inside a commit makes all commits of a database wait for one another. Of runs
that nobody follows nothing is said (`ears.py`).
"""

import asyncio
from collections.abc import Callable
from hashlib import blake2b

import anyio
import psycopg
from psycopg import pq, sql
from psycopg.adapt import Transformer

from journal.core.errors import WorldError
from journal.worlds.postgres.address import Address
from journal.worlds.postgres.binary import long_array, to_longs
from journal.worlds.postgres.connection import CONNECT_SECONDS, connect_patiently
from journal.worlds.postgres.ears import Ears, Silence, first_key
from journal.worlds.postgres.pool import Row
from journal.worlds.postgres.statements import numbered, statements
from journal.worlds.postgres.wire import Wire

RING_SECONDS = 0.002
"""Between two messages about runs at least: what comes meanwhile is collected. Of work others hear at once."""
MAX_RUNS = 400
"""Hints in one message, which may not reach 8000 bytes; with more, everybody looks."""
RETRY_SECONDS = 1.0
READ_SECONDS = 10.0
LEAVE_SECONDS = 1.0
"""How long closing waits for the last hints to be sent."""

_EVERYTHING = "*"
_WORK = "w"


def channel_of(address: Address, namespace: str) -> str:
    """The channel of a namespace of a store."""
    digest = blake2b(f"{address.schema}\x01{namespace}".encode(), digest_size=12).hexdigest()
    return f"journal_{digest}"


def payload_of(locks: set[int], has_work: bool) -> str:
    """Runs by the keys of their locks."""
    if len(locks) > MAX_RUNS:
        return _EVERYTHING
    parts = [f"{lock & (2**64 - 1):x}" for lock in locks]
    return " ".join([_WORK, *parts] if has_work else parts)


def parse_payload(payload: str) -> tuple[list[int] | None, bool]:
    """(locks, whether there is work); None: everybody is to look."""
    parts = payload.split(" ")
    has_work = parts[0] == _WORK
    try:
        numbers = [int(part, 16) for part in parts[1 if has_work else 0 :] if part]
    except ValueError:
        return None, True
    return [number - 2**64 if number >= 2**63 else number for number in numbers], has_work


class Listener:
    """Hears the hints of others, from when somebody first waits until the world closes; followers read there, too."""

    def __init__(self, address: Address, namespace: str) -> None:
        self._address = address
        self._channel = channel_of(address, namespace)
        self.ears = Ears(first_key(address, namespace), asyncio.get_running_loop().time)
        self.on_ring: Callable[[list[int] | None, bool], None] = lambda locks, has_work: None
        self.on_lost: Callable[[], None] = lambda: None
        self._task: asyncio.Task[None] | None = None
        self._wire: Wire | None = None
        self._loading = Transformer()
        self.is_listening = False

    def start(self) -> None:
        """Listen, if that is not so yet."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(
                self._listen(), name="journal-postgres-listen"
            )

    async def _listen(self) -> None:
        while True:
            try:
                await self._listen_once()
            except (WorldError, psycopg.Error, TimeoutError):
                pass  # polling goes on meanwhile, and it is what tells those who wait
            self.is_listening = False
            await asyncio.sleep(RETRY_SECONDS)

    async def _listen_once(self) -> None:
        connection = await connect_patiently(self._address)
        wire: Wire | None = None
        try:
            await connection.execute(sql.SQL("listen {}").format(sql.Identifier(self._channel)))
            lost = asyncio.Event()
            wire = Wire(connection, on_lost=lambda _: lost.set(), on_notice=self._heard)
            texts = statements(self._address.schema)
            async with asyncio.timeout(CONNECT_SECONDS):
                for name in ("hold_ears", "drop_ears", "read_page"):
                    await wire.prepare(name.encode(), numbered(texts[name]))
            self.ears.attach(wire)
            self._wire, self._loading = wire, Transformer(connection)
            self.is_listening = True
            self.on_ring(None, True)  # what was said before we listened
            await lost.wait()
        finally:
            self.is_listening = False
            self._wire = None
            self.ears.detach()
            self.on_lost()
            if wire is not None:
                if wire.is_busy:
                    wire.abandon("it was closed here")
                await wire.aclose()
            else:
                await connection.close()

    async def read(self, name: bytes, parameters: list[bytes | None]) -> list[Row] | None:
        """The rows of a prepared read. None: there is no session, it is taken, or it failed: read elsewhere.

        Here, since whoever has just heard something finds the session awake, and the driver's own coroutines cost
        more than the server.
        """
        wire = self._wire
        if wire is None or not wire.is_open or wire.is_busy:
            return None
        done: asyncio.Future[pq.abc.PGresult | None] = asyncio.get_running_loop().create_future()

        def on_done(result: "pq.abc.PGresult | None", _: Exception | None) -> None:
            self.ears.update()
            if not done.done():  # else the reader went away
                done.set_result(result)

        wire.execute([(name, parameters)], on_done)
        try:
            async with asyncio.timeout(READ_SECONDS):
                result = await done
        except TimeoutError:
            wire.abandon(f"no answer for {READ_SECONDS:g} s")
            return None
        if result is None:
            return None
        self._loading.set_pgresult(result)
        return self._loading.load_rows(0, result.ntuples, tuple)

    def _heard(self, payload: str) -> None:
        self.on_ring(*parse_payload(payload))

    async def aclose(self) -> None:
        """Stop listening."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])


class Ringer:
    """Tells other processes what this one has written."""

    def __init__(self, address: Address, namespace: str) -> None:
        self._address = address
        self._channel = channel_of(address, namespace).encode()
        self._key = first_key(address, namespace)
        self._silence = Silence()
        self._loop = asyncio.get_running_loop()
        self._locks: set[int] = set()
        self._has_work = False
        self._timer: asyncio.TimerHandle | None = None
        self._spoke_at = 0.0
        """Loop time of the last message."""
        self._wire: Wire | None = None
        self._opening: asyncio.Task[None] | None = None
        self._quiet = asyncio.Event()
        """No hint is under way."""
        self._quiet.set()
        self._is_closed = False

    def ring(self, locks: list[int], has_work: bool) -> None:
        """Say so: now, unless that was done just before, and nobody waits to begin. Nobody follows: say nothing."""
        heard = self._silence.heard(locks, self._loop.time())
        if not (heard or has_work):
            return
        self._locks.update(heard)
        is_urgent = has_work and not self._has_work
        self._has_work |= has_work
        if self._is_closed or not (is_urgent or self._timer is None):
            return
        pause = 0.0 if is_urgent else self._spoke_at + RING_SECONDS - self._loop.time()
        if self._timer is not None:
            self._timer.cancel()
        if pause > 0:
            self._timer = self._loop.call_later(pause, self._send)
        else:
            self._send()

    def _send(self) -> None:
        self._timer = None
        if self._wire is None or not self._wire.is_open:
            if self._opening is None or self._opening.done():
                self._opening = self._loop.create_task(self._open(), name="journal-postgres-ring")
            return
        if self._wire.is_busy:
            self._timer = self._loop.call_later(RING_SECONDS, self._send)
            return
        payload = payload_of(self._locks, self._has_work).encode()
        ears = long_array(list(self._silence.questions(self._locks)))
        parameters: list[bytes | None] = [self._channel, payload, self._key, ears]
        parameters.append(b"\x01" if self._has_work else b"\x00")
        self._locks.clear()
        self._has_work = False
        self._spoke_at = self._loop.time()
        self._quiet.clear()
        self._wire.execute([(b"notify", parameters)], self._sent)

    def _sent(self, result: "pq.abc.PGresult | None", error: Exception | None) -> None:
        free = result.get_value(0, 0) if result is not None else None
        if free is not None:
            self._silence.learn(to_longs(free), self._spoke_at)
        self._quiet.set()  # a hint that was lost is made good by the others' polling

    async def _open(self) -> None:
        try:
            connection = await connect_patiently(self._address)
        except WorldError:
            self._locks.clear()
            self._has_work = False
            return
        try:
            if not self._address.is_pooled:
                await connection.execute("set synchronous_commit = off")
            wire = Wire(connection, on_lost=lambda _: None, is_pooled=self._address.is_pooled)
            await wire.prepare(b"notify", statements(self._address.schema)["notify"])
        except BaseException as error:
            await connection.close()
            if not isinstance(error, psycopg.Error):
                raise
            return
        self._wire = wire
        if (self._locks or self._has_work) and self._timer is None:
            self._send()

    async def aclose(self) -> None:
        """Say what is left to say, if the server answers soon, then close the connection."""
        with anyio.move_on_after(LEAVE_SECONDS):
            await self._quiet.wait()
            if self._timer is not None:
                self._timer.cancel()
            if self._locks or self._has_work:
                self._send()
            if self._opening is not None:
                await asyncio.wait([self._opening])
            await self._quiet.wait()
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._wire is not None:
            await self._wire.aclose()
