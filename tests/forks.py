"""Programs of the tests as real processes that need not import everything first.

`python -m` takes most of a second of processor time until a program's first line, and the crash tests start hundreds.
A `Nursery` is one process that has imported the engine and its worlds, and forks: what it starts is a process like any
other, with its own id, memory, descriptors, locks and environment, which may be stopped and killed.
"""

import atexit
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[1]
_WARM = ("structlog", "journal.engine.runtime", "journal.engine.worker")
"""No more than each of them imports: what is there has to be copied when it is touched, and let go in the end."""
_MAIN = "tests.forks"


class Fork:
    """A process that a nursery has started: the part of `subprocess.Popen` that is wanted."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self.pid = int(channel.recv(64))
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code (-9: killed); raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            self._channel.settimeout(timeout)
            try:
                said = self._channel.recv(64)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0) from None
            self._channel.close()
            assert said, f"nobody knows how process {self.pid} ended"
            self.returncode = int(said)
        return self.returncode

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        """Without effect if it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


class Nursery:
    """Starts processes for this one, and ends with it: it reads the end of its orders."""

    def __init__(self, *warm: str) -> None:
        """`warm`: modules that are imported beside the engine."""
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", _MAIN, str(theirs.fileno()), *warm]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, pass_fds=[theirs.fileno()]
        )
        theirs.close()

    def start(self, module: str, arguments: Iterable[str], environment: Mapping[str, str]) -> Fork:
        """`python -m module arguments…` in the tree's root."""
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        order = json.dumps([module, *arguments]).encode() + b"\0" + json.dumps(dict(environment)).encode()
        with theirs:
            socket.send_fds(self._orders, [order], [theirs.fileno()])
        return Fork(mine)

    def stop(self) -> None:
        """What it has started goes on."""
        self._orders.close()
        self._process.wait()


@cache
def nursery(*warm: str) -> Nursery:
    """This process's own, of that kind."""
    found = Nursery(*warm)
    atexit.register(found.stop)
    return found


def _take_orders(orders: socket.socket) -> list[str]:
    """Returns in each process that is started, with its command; the nursery itself ends here."""
    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, 1 << 20, 1)
        if not order:
            os._exit(0)
        channel = socket.socket(fileno=descriptors[0])
        if os.fork() == 0:
            orders.close()
            pid = os.fork()
            if pid == 0:
                channel.close()
                command, _, environment = order.partition(b"\0")
                os.environ.clear()
                os.environ.update(json.loads(environment))
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                found: list[str] = json.loads(command)
                return found
            _keep(pid, channel)
        channel.close()


def _keep(pid: int, channel: socket.socket) -> None:
    """Tell who asked for it that it runs, and how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        channel.send(str(pid).encode())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        channel.send(str(code).encode())
    finally:
        os._exit(0)


if __name__ == "__main__":
    for name in (*_WARM, *sys.argv[2:]):
        import_module(name)
    gc.freeze()  # a collection in a child would look at, and copy, all that was imported
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who keeps a process is not waited for
    sys.argv = _take_orders(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
