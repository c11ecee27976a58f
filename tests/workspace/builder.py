"""An agent that works in a directory, to be killed everywhere; its root lies beside the store."""

import os
import sys
from pathlib import Path

from journal import DirectoryWorkspace, Journal, Turn, io, tool
from journal.tools.exec import HostCommands
from journal.tools.files import edit_file, glob_files, read_file, write_file

journal = Journal()
run = HostCommands(cwd="workspace", allow=["sh"]).tool()
workspace = DirectoryWorkspace(os.environ.get("BUILDER_ROOT", "/nonexistent"))


@tool(replay="safe")
async def build() -> list[str]:
    """Half a file, then the whole of it, and a count of how often it ended; what it found is its result."""
    async with io.files.directory() as directory:
        place = Path(directory.path)
        found = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
        runs = int((place / "runs").read_text()) if (place / "runs").exists() else 0
        with (place / "out").open("w") as file:
            file.write("half")
            file.flush()
            reached("writing")
            file.write("whole")
        (place / "runs").write_text(str(runs + 1))
    return found


def reached(step: str) -> None:
    """A step at which the test may have us killed."""
    if os.environ.get("BUILDER_DIES") == step and not os.path.exists(f"{workspace.root}.died"):
        Path(f"{workspace.root}.died").write_text(step)
        os.kill(os.getpid(), 9)


@journal.agent(workspace=workspace)
async def builder(turn: Turn, name: str) -> list[str]:
    """All that it says rests on files that calls before left."""
    await turn.tool(write_file, f"/{name}/1", "file 1\n")
    built = (await turn.tool(build)).value
    said = (await turn.tool(run, ["sh", "-c", "cat out runs; echo more > more"])).text
    await turn.tool(edit_file, "/src/1", "file", "edited")
    return [*built, said, (await turn.tool(read_file, "/src/1")).text, (await turn.tool(glob_files, "/**")).text]


def break_at(step: str) -> None:
    """Die in the middle of what the engine does with files."""
    from journal.engine import snapshots
    from journal.tools import objects, working_tree

    def before(module: object, name: str) -> None:
        inner = getattr(module, name)

        def dying(*args: object, **options: object) -> object:
            if is_due():
                reached(step)
            return inner(*args, **options)

        setattr(module, name, dying)

    def is_due() -> bool:
        return step != "swap" or "new" in os.listdir(os.path.dirname(trees[-1].path)) if trees else True

    trees: list[working_tree.WorkingTree] = []
    match step:
        case "content":
            before(objects.Staging, "commit")
        case "list":
            before(objects, "write_whole")
            from journal.tools import snapshots as kept

            kept.write_whole = objects.write_whole  # type: ignore[assignment]
        case "reference":
            from journal.tools import snapshots as kept

            before(kept.Snapshots, "_refer")
        case "record":
            before(snapshots.CallChanges, "recorded")
        case "copy":
            before(working_tree.WorkingTree, "_copy")
        case "swap":
            inner = working_tree.os.rename

            def rename(one: str, other: str) -> None:
                if other.endswith("/tree"):
                    reached(step)
                inner(one, other)

            working_tree.os = type("os", (), {**vars(working_tree.os), "rename": staticmethod(rename)})  # type: ignore


async def main() -> None:
    async with journal:
        print(await builder.run("src", run_id="r"))


if __name__ == "__main__":
    import asyncio

    break_at(os.environ.get("BUILDER_DIES", ""))
    asyncio.run(main())
    sys.exit(0)
