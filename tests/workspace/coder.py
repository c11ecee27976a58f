"""An agent that works on files, to be killed everywhere."""

import asyncio

from journal import Journal, Turn, VirtualWorkspace, io, tool
from journal.tools.files import edit_file, glob_files, read_file, write_file

journal = Journal()


@tool(replay="never")
async def build() -> list[str]:
    """Counts in a file how often it ran."""
    runs = int(await io.files.read_text("/runs")) if await io.files.exists("/runs") else 0
    await io.files.write("/runs", str(runs + 1))
    await io.files.write("/out", b"\0" * 10_000)
    await asyncio.sleep(0)
    return await io.files.glob("/**")


@journal.agent(workspace=VirtualWorkspace())
async def coder(turn: Turn, name: str) -> list[str]:
    """All that it says rests on files that calls before left."""
    await asyncio.gather(*(turn.tool(write_file, f"/{name}/{n}", f"file {n}\n") for n in range(3)))
    said = [(await turn.tool(edit_file, f"/{name}/1", "file", "edited")).text]
    built = await turn.tool(build)
    if built.status == "unknown":
        said.append((await turn.tool(glob_files, "/**")).text)  # nothing of it is there
    return [*said, (await turn.tool(read_file, f"/{name}/1")).text, (await turn.tool(glob_files, "/**")).text]
