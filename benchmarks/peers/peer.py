"""Both ends of the conversation: `Peer` asks, `serve` answers."""

import subprocess
import sys
from collections.abc import Callable
from typing import Self

REPLY = {"text": "x" * 188}
"""What every step returns: about 200 bytes of JSON."""


LOST = 3
"""Exit code of a process that was to go away (`dbos_recovery`)."""


class Peer:
    """A peer in its process."""

    def __init__(self, name: str, url: str, runs: int) -> None:
        command = [sys.executable, "-W", "ignore", "-m", f"benchmarks.peers.{name}", url, str(runs)]
        self._name = name
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def rate(self, seconds: float) -> float:
        """Steps a second, over a window of about `seconds`."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{seconds}\n")
        stdin.flush()
        for line in stdout:
            if line.startswith("rate "):
                return float(line.split()[1])
        raise RuntimeError(f"{self._name} ended with {self._process.wait()}")


def recovered(url: str, count: int) -> float:
    """Seconds that DBOS takes for a recorded step when it recovers a workflow of `count` whose process was lost."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.peers.dbos_recovery", url, str(count)]
    lost = subprocess.run([*command, "record"], capture_output=True, text=True)
    if lost.returncode != LOST:
        raise RuntimeError(f"the workflow to be lost ended with {lost.returncode}: {lost.stderr[-2000:]}")
    found = subprocess.run([*command, "recover"], check=True, capture_output=True, text=True)
    return float(found.stdout.split()[-1])


def serve(rate: Callable[[float], float]) -> None:
    """Answer until nobody asks any more."""
    for line in sys.stdin:
        sys.stdout.write(f"rate {rate(float(line))}\n")
        sys.stdout.flush()
