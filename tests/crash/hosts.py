"""Hosts of a test: network namespaces that see one address of this machine, each over a cable that can be cut.

Linux and root. A namespace goes with its last process, even where nobody cleans up, and takes its cable along.
"""

import ctypes
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
_count = count()


@dataclass
class Host:
    """A namespace of its own."""

    pid: int
    """Of the process that keeps it."""
    cable: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """What makes a command run there."""
        return ("nsenter", f"--net=/proc/{self.pid}/ns/net")

    def cut(self) -> None:
        """Nothing passes any more, either way, and nobody is told."""
        _ip("link", "set", self.cable, "down")

    def heal(self) -> None:
        """Everything passes again."""
        _ip("link", "set", self.cable, "up")


@dataclass
class Network:
    """Some hosts, and the address under which they see this machine."""

    address: str
    hosts: list[Host]


def missing() -> str | None:
    """Why namespaces cannot be made here; None: they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        done = subprocess.run(["unshare", "--net", "ip", "link"], capture_output=True, text=True, check=False)
        return None if done.returncode == 0 else f"no network namespace can be made: {done.stderr.strip()}"
    except FileNotFoundError as error:
        return f"{error.filename} is missing: network namespaces need util-linux and iproute2"


@contextmanager
def start_network(size: int) -> Iterator[Network]:
    """So many hosts, none of which sees another."""
    # 198.18.0.0/15 is for tests of networks; others may run the same one here.
    net = f"198.{random.choice((18, 19))}.{random.randrange(256)}"
    name, address = f"j{os.getpid():x}.{next(_count):x}", f"{net}.1"
    with ExitStack() as stack:
        hosts = [_host(stack, f"{name}-{n}", f"{net}.{4 * n + 1}", f"{net}.{4 * n + 2}") for n in range(size)]
        yield Network(address, hosts)


def _host(stack: ExitStack, cable: str, here: str, there: str) -> Host:
    keeper = stack.enter_context(
        subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"],
            stdout=subprocess.PIPE,
            preexec_fn=lambda: _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
        )
    )
    stack.callback(keeper.kill)
    assert keeper.stdout is not None
    keeper.stdout.readline()
    host = Host(keeper.pid, cable)
    _ip("link", "add", cable, "type", "veth", "peer", "name", "store", "netns", str(keeper.pid))
    # Sockets that wait in vain for the other side would keep the namespace for minutes.
    stack.callback(_ip, "link", "delete", cable)
    _ip("address", "add", f"{here}/30", "dev", cable)
    _ip("link", "set", cable, "up")
    for arguments in (
        ("link", "set", "lo", "up"),
        ("address", "add", f"{there}/30", "dev", "store"),
        ("link", "set", "store", "up"),
        ("route", "add", "default", "via", here),
    ):
        _ip(*arguments, prefix=host.prefix)
    return host


def _ip(*arguments: str, prefix: tuple[str, ...] = ()) -> None:
    subprocess.run([*prefix, "ip", *arguments], check=True, capture_output=True)
