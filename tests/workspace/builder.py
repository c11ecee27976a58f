"""An agent that works in a directory, and a process that dies in the middle of what the engine does with its files."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from journal import DirectoryWorkspace, Journal, Turn, io, tool
from journal.tools.exec import HostCommands
from journal.tools.files import edit_file, glob_files, read_file, write_file

journal = Journal()
run = HostCommands(cwd="workspace", allow=["sh"]).tool()
workspace = DirectoryWorkspace(os.environ.get("BUILDER_ROOT", "/nonexistent"))
on_writing: list[Callable[[], None]] = []


@tool(replay="safe")
async def build() -> list[str]:
    """Half a file, then the whole of it, and how often it was built; its result is what it found."""
    async with io.files.directory() as directory:
        place = Path(directory.path)
        found = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
        runs = int((place / "runs").read_text()) if (place / "runs").exists() else 0
        with (place / "out").open("w") as file:
            file.write("half")
            file.flush()
            for act in on_writing:
                act()
            file.write("whole\n")
        (place / "runs").write_text(str(runs + 1))
    return found


@journal.agent(workspace=workspace)
async def builder(turn: Turn, name: str) -> list[str]:
    """All that it says rests on files that calls before left."""
    await turn.tool(write_file, f"/{name}/1", "file 1\n")
    said = (await turn.tool(build)).value
    ran = await turn.tool(run, ["sh", "-c", "cat out runs; echo more > more"])
    said.append("unknown" if ran.status == "unknown" else ran.value.stdout)
    await turn.tool(edit_file, f"/{name}/1", "file", "edited")
    return [*said, (await turn.tool(read_file, f"/{name}/1")).text, (await turn.tool(glob_files, "/**")).text]


def die_at(step: str, number: int) -> None:
    """Let this process be killed just before that step, when it comes to it for the `number`-th time."""
    from journal.engine.directories import CallChanges
    from journal.tools.objects import Staging
    from journal.tools.snapshots import Snapshots
    from journal.tools.working_tree import WorkingTree

    times: list[int] = []

    def reached() -> None:
        times.append(1)
        if len(times) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(where: Any, name: str) -> None:
        inner = getattr(where, name)

        def dying(*args: Any, **options: Any) -> Any:
            reached()
            return inner(*args, **options)

        setattr(where, name, dying)

    rename = os.rename

    def swap(one: str, other: str) -> None:
        if other.endswith("/tree"):
            reached()
        rename(one, other)

    match step:
        case "writing":
            on_writing.append(reached)
        case "contents":
            before(Staging, "commit")
        case "list":
            before(Snapshots, "_path")
        case "reference":
            before(Snapshots, "_refer")
        case "record":
            before(CallChanges, "recorded")
        case "copy":
            before(WorkingTree, "_copy")
        case "swap":
            os.rename = swap  # type: ignore[assignment]


async def main() -> None:
    async with journal:
        print(await builder.run("src", run_id="r"))


if __name__ == "__main__":
    if "BUILDER_DIES" in os.environ:
        step, _, number = os.environ["BUILDER_DIES"].partition(":")
        die_at(step, int(number))
    asyncio.run(main())
