"""What the tests of the shell share: scripts run in a turn, and the processes that they run in."""

import os
from typing import Any

import anyio

from journal import Journal, Turn, VirtualWorkspace, io, tool
from journal.tools.result import ToolResult
from journal.tools.shell import Shell


@tool(replay="safe")
async def fill(files: dict[str, str]) -> None:
    """Each character is a byte."""
    for path, content in files.items():
        await io.files.write(path, content.encode("latin-1"), is_executable=path.endswith(".sh"))


async def ran(
    *commands: str,
    files: dict[str, bytes] | None = None,
    shell: Shell | None = None,
    workspace: VirtualWorkspace | None = None,
) -> tuple[list[ToolResult[str]], dict[str, bytes]]:
    """What each of the scripts came to, one after the other, and the files that there are then."""
    journal = Journal("memory:")
    given = (shell or Shell()).tool()
    results: list[ToolResult[str]] = []

    @journal.agent(workspace=workspace or VirtualWorkspace())
    async def work(turn: Turn, _: None) -> None:
        before = {path: data.decode("latin-1") for path, data in (files or {}).items()}
        assert (await turn.tool(fill, before)).status == "ok"
        for command in commands:
            result: Any = await turn.tool(given, command)
            results.append(result)

    async with journal:
        await work.run(None, run_id="r")
        paths = await journal.files.glob("r")
        return results, {path: await journal.files.read("r", path) for path in paths}


async def said(*commands: str, **options: Any) -> list[str]:
    """What a model reads of each of the scripts."""
    results, _ = await ran(*commands, **options)
    return [result.text for result in results]


def interpreters(of: int | None = None) -> list[int]:
    """Process ids of the interpreters that a process (else this one) has started, and that still are there."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                command = file.read()
            with open(f"/proc/{pid}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue  # gone meanwhile
        if parent == (of or os.getpid()) and b"shell_child.py" in command:
            found.append(int(pid))
    return found


async def begun() -> int:
    """The interpreter, once it is there."""
    while not (found := interpreters()):
        await anyio.sleep(0.005)
    return found[0]
