"""Workers as real processes: started, listened to, signalled. What they say is read from pipes, never waited for."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

APP = '''
import asyncio
import os
from pathlib import Path

from journal import Journal, Turn, never

journal = Journal("sqlite:journal.db")


@never
async def held() -> str:
    """Says that it began, then takes its time."""
    print("in the call", flush=True)
    await asyncio.sleep(3600)
    return "done"


@never
async def stubborn() -> str:
    """Will not be cancelled: it waits for its pipe."""
    print("in the call", flush=True)
    reading = asyncio.ensure_future(asyncio.to_thread(Path("gate").read_text))
    while not reading.done():
        try:
            await asyncio.shield(reading)
        except asyncio.CancelledError:
            pass
    return reading.result()


@never
def threaded() -> str:
    """Hangs on a thread, where nothing reaches it."""
    print("in the call", flush=True)
    return Path("gate").read_text()


@journal.agent
async def between(turn: Turn, prompt: str) -> str:
    await turn.step(note)
    if os.environ.get("HOLD"):
        print("between calls", flush=True)
        await asyncio.sleep(3600)
    return "through"


@journal.agent
async def within(turn: Turn, prompt: str) -> str:
    result = await turn.tool({"stubborn": stubborn, "threaded": threaded}.get(prompt, held))
    return result.text


@journal.agent
async def quick(turn: Turn, prompt: str) -> str:
    return prompt


def note() -> None:
    pass
'''


class Process:
    """One command line as a process."""

    def __init__(self, home: Path, *args: str, hold: bool = False) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("JOURNAL_")}
        environment |= {"PYTHONUNBUFFERED": "1", **({"HOLD": "1"} if hold else {})}
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "journal.cli", *args],
            cwd=home,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        """The next line of its output; blocks until it comes."""
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()

    def logged(self, event: str) -> dict[str, Any]:
        """The next log line about `event`; blocks until it comes."""
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            found: dict[str, Any] = json.loads(line)
            if found["event"] == event:
                return found
        raise AssertionError(f"it ended without saying {event!r}")

    def wait(self) -> int:
        """Its exit code."""
        return self.popen.wait(timeout=60)


@contextmanager
def running(home: Path, *args: str, hold: bool = False) -> Iterator[Process]:
    """A process that does not outlive the block."""
    process = Process(home, *args, hold=hold)
    try:
        yield process
    finally:
        if process.popen.poll() is None:
            process.popen.kill()
        process.popen.communicate()
