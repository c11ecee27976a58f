"""What stands beside a child process: who tells that it has exited, and who kills its group if we die."""

import asyncio
import os
import subprocess
import sys

_POLL_SECONDS = 0.02
_GONE_SECONDS = 5.0


class Guard:
    """Kills a group when this process dies: it reads from a pipe whose other end nobody else has.

    Not PR_SET_PDEATHSIG: that needs code of ours between fork and exec, reaches the child and none of its children,
    and strikes already when the *thread* that started the child ends.
    """

    SHELL = "/bin/sh"
    """It is given a constant to run, and no word of any command."""
    _SCRIPT = 'read -r group && { read -r over || kill -s KILL -- "-$group"; }'

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - a constant; it starts before what it guards, for 1 ms
            [self.SHELL, "-c", self._SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd="/",
            env={},
            start_new_session=True,
        )

    def watch(self, group: int) -> None:
        self._tell(f"{group}\n")

    async def dismiss(self) -> None:
        """There is nothing to guard any more."""
        self._tell("over\n")
        over = Exit(self._process)
        try:
            await over.wait(_GONE_SECONDS)
        finally:
            over.close()

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode())
        except BrokenPipeError:
            pass  # somebody killed it


class Exit:
    """The exit of a process, told by the event loop."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._told = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._fd = _pidfd(process.pid)
        if self._fd is not None:
            self._loop.add_reader(self._fd, self._tell)

    @property
    def is_over(self) -> bool:
        return self._told.is_set()

    async def wait(self, seconds: float) -> bool:
        """Whether the process has exited, after `seconds` at the latest."""
        try:
            async with asyncio.timeout(seconds):
                while self._fd is None and self._process.poll() is None:  # noqa: ASYNC110 - no pidfds here
                    await asyncio.sleep(_POLL_SECONDS)
                if self._fd is None:
                    self._told.set()
                await self._told.wait()
        except TimeoutError:
            pass
        return self.is_over

    def close(self) -> None:
        if self._fd is not None:
            self._loop.remove_reader(self._fd)  # of a closed loop, too
            os.close(self._fd)
            self._fd = None

    def _tell(self) -> None:
        assert self._fd is not None
        self._loop.remove_reader(self._fd)
        self._told.set()


def _pidfd(pid: int) -> int | None:
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:  # an old kernel, a sandbox, or no descriptor left
        return None
