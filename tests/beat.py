"""Whether programs that a test has started, by whatever way, still live."""

import os
from pathlib import Path

import anyio


class Beat:
    """A pipe by name. Programs open it and write a line; it is over when the last that has it open is gone."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "beat"
        os.mkfifo(self.path)
        self._fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)

    async def begun(self, lines: int = 1) -> None:
        seen = b""
        while seen.count(b"\n") < lines:
            try:
                seen += os.read(self._fd, 1000)
            except BlockingIOError:
                pass
            await anyio.sleep(0.005)

    @property
    def is_over(self) -> bool:
        try:
            while os.read(self._fd, 1000):
                pass
            return True
        except BlockingIOError:
            return False

    async def over(self) -> None:
        while not self.is_over:
            await anyio.sleep(0.005)

    def close(self) -> None:
        os.close(self._fd)
