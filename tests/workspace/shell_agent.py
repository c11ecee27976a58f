"""An agent with a shell, to be killed everywhere."""

from journal import Journal, Turn, VirtualWorkspace
from journal.tools.shell import shell

journal = Journal()


@journal.agent(workspace=VirtualWorkspace())
async def work(turn: Turn, name: str) -> list[str]:
    """What it says rests on the files of the call before, and on its having run once as far as files can tell."""
    first = await turn.tool(shell, f"mkdir -p {name}; echo line >> {name}/a; wc -l < {name}/a")
    second = await turn.tool(shell, f"echo line >> {name}/a; mv {name}/a b; find /b /{name} -type f; cat b")
    return [first.text, second.text]
