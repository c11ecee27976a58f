"""An application that `crash_everywhere` imports by name."""

from journal import Journal, Turn, tool
from journal.testing import Effects

journal = Journal()
effects = Effects()


@tool(replay="never")
async def transfer(amount: int) -> str:
    effects.add("transfer")
    return f"{amount} gone"


@journal.agent
async def pay(turn: Turn, amount: int) -> str:
    return (await turn.tool(transfer, amount)).status
