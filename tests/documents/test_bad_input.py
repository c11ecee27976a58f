"""What is wrong inside a call is told with what to do about it, and takes nothing back that has happened."""

from pathlib import Path
from typing import Any

import pytest

from journal import Journal, Turn, TurnFailed, VirtualWorkspace, define_doc, io, tool
from journal.tools.exec import HostCommands

pytestmark = pytest.mark.anyio

Newer = define_doc("newer", 2, list[str])
Known = define_doc("newer", 1, list[str])
Old = define_doc("old", 1, list[str])


def broken(value: Any, version: int) -> Any:
    raise KeyError(version)


Migrated = define_doc("old", 2, list[str], migrate=broken)
Typed = define_doc("typed", 1, list[str])


class Wrong:
    """Each of its methods does something that is refused."""

    def __init__(self, commands: HostCommands) -> None:
        self.commands = commands
        self.drafts: list[Any] = []

    async def newer(self) -> None:
        io.docs.get(Known)

    async def migration(self) -> None:
        io.docs.get(Migrated)

    async def another_type(self) -> None:
        io.docs.update(Typed, lambda _: 3)  # type: ignore[arg-type,return-value]

    async def nothing(self) -> None:
        io.docs.update(Typed, lambda _: None)  # type: ignore[arg-type,return-value]

    async def dead_draft(self) -> None:
        self.drafts[0].update(Typed, lambda value: value)

    async def quota(self) -> None:
        await io.files.write("/a", "12345")

    async def escape(self) -> None:
        await io.files.write("/../etc/passwd", "x")

    async def command(self) -> None:
        await self.commands.run(["rm", "-rf", "/"])


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("newer", "written in version 2, and this code knows 1: deploy newer code"),
        ("migration", "raised KeyError; mend it, the log is as it was"),
        ("another_type", "Expected `array`, got `int`"),
        ("nothing", "returned None: return the next value"),
        ("dead_draft", "io.docs of a call that has ended"),
        ("quota", "max_bytes"),
        ("escape", "its names may not be . or .."),
        ("command", "'rm'"),
    ],
)
async def test_it_says_what_to_do_and_what_happened_stays(
    world_url: str, tmp_path: Path, kind: str, says: str
) -> None:
    """A payment before it is not made again, a file written before it is there, and a repair goes on from there."""
    wrong = Wrong(HostCommands(cwd=tmp_path, allow=["echo"]))
    paid, repaired, told = list[int](), list[int](), list[str]()
    journal = Journal(world_url)

    @tool(replay="never")
    async def pay() -> str:
        paid.append(1)
        wrong.drafts.append(io.docs)
        for doc in (Newer, Old):  # as other processes of the application do, of another version
            await journal.docs.update("r", doc, lambda value: [*value, "x"])
        await io.files.write("/paid", "yes")
        io.docs.update(Typed, lambda value: [*value, "paid"])
        return "paid"

    async def act() -> str:
        if not repaired:
            await getattr(wrong, kind)()
        return "done"

    @journal.agent(docs=[Known, Migrated, Typed], workspace=VirtualWorkspace(max_bytes=5))
    async def work(turn: Turn, _: None) -> list[str]:
        done, result = (await turn.tool(pay)).value, await turn.tool(tool(act, replay="safe"))
        told.append(result.text)
        return [done, result.value]

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        assert says in told[0]
        assert await journal.files.read("r", "/paid") == b"yes"
        assert await journal.docs.get("r", Typed) == ["paid"]
        repaired.append(1)
        assert await (await journal.retry("r")).settle(20, serve=True) == ["paid", "done"]
    assert paid == [1]
