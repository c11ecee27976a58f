"""`journal check --in-flight`: would this code strand a run? Asked of a store with real unfinished runs."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from journal.cli.opening import load_app
from tests.cli.conftest import Cli, objects

APP = """
import asyncio
from pathlib import Path

from journal import Journal, Turn, never, safe, step

journal = Journal("sqlite:journal.db")
inside = asyncio.Event()


def note(text: str) -> None:
    with Path("acts").open("a") as file:
        file.write(f"{text}\\n")


@step
async def reserve(order: str) -> str:
    note(f"reserve {order}")
    return order


@safe
async def look(order: str) -> str:
    note(f"look {order}")
    return "seen"


@never
async def pay(order: str, amount: int) -> str:
    note(f"pay {order}")
    inside.set()
    await asyncio.sleep(3600)
    return "paid"


@journal.agent
async def shop(turn: Turn, order: str) -> str:
    await turn.step(reserve, order)
    await turn.tool(look, order)
    if order == "free":
        return order
    return (await turn.tool(pay, order, 3)).status


@journal.agent
async def other(turn: Turn, order: str) -> str:
    return order
"""


async def interrupt(run: str) -> None:
    """Work on `run` until it is inside `pay`, and let it go there."""
    journal = load_app("app:journal")
    async with journal:
        handle = await journal.submit("shop", "42", run_id=run)
        working = asyncio.create_task(handle.settle(None, serve=True))
        await __import__("app").inside.wait()
    await asyncio.wait({working})


@pytest.fixture
def shop(cli: Cli, home: Path) -> Path:
    """`broken`: left in doubt inside `pay`. `waiting`: submitted, never begun. `through`: finished."""
    (home / "app.py").write_text(APP)
    assert cli("submit", "shop", "free", "--run", "through").exit_code == 0
    assert cli("worker", "--until-idle").exit_code == 0
    asyncio.run(interrupt("broken"))
    assert cli("submit", "shop", "43", "--run", "waiting").exit_code == 0
    assert (home / "acts").read_text() == "reserve free\nlook free\nreserve 42\nlook 42\npay 42\n"
    (home / "acts").unlink()
    return home


def test_code_that_goes_by_the_log_is_0_and_nothing_happens(cli: Cli, shop: Path) -> None:
    before = cli("log", "broken", "--json", "--values").stdout, (shop / "journal.db").read_bytes()
    found = cli("check", "--in-flight")
    assert found.exit_code == 0, found.stdout
    lines = [" ".join(line.split()) for line in found.stdout.splitlines()]
    assert sorted(lines[1:-1]) == [
        "broken start shop 2 the log ends here: call 3, tool pay#1: it is in doubt, and a worker would call it unknown",
        "waiting start shop 0 the log ends here: step reserve#1: it is not in the log",
    ]
    assert lines[-1] == "2 unfinished, 0 of them stranded by this code"
    assert not (shop / "acts").exists()
    assert (cli("log", "broken", "--json", "--values").stdout, (shop / "journal.db").read_bytes()) == before


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        (
            "turn.step(reserve, order)",
            'turn.step(reserve, f"{order}!")',
            '  input.order: recorded "42", now "42!"',
        ),
        (
            "    await turn.tool(look, order)\n",
            "",
            "call 'look#1' is in the log and the code does not ask for it before the log ends: call 3, tool pay#1",
        ),
        (
            "turn.step(reserve",
            "turn.tool(reserve",
            "the code asks for 'reserve#1' as a tool, and it was a step",
        ),
    ],
    ids=["a changed input", "a removed tool", "another kind"],
)
def test_a_run_that_would_diverge_is_3(cli: Cli, shop: Path, was: str, now: str, says: str) -> None:
    (shop / "app.py").write_text(APP.replace(was, now))
    found = cli("check", "--in-flight")
    assert found.exit_code == 3
    assert says in found.stdout
    assert "2 unfinished, 1 of them stranded by this code" in found.stdout
    told = {one["run"]: one for one in objects(cli("check", "--in-flight", "--json"))}
    assert (told["broken"]["stranded"], told["waiting"]["stranded"]) == (True, False)
    assert told["broken"]["replay"]["verdict"] == "diverged"
    assert not (shop / "acts").exists()


def test_a_blocked_turn_is_looked_at_too(cli: Cli, shop: Path) -> None:
    (shop / "app.py").write_text(APP.replace("(pay, order, 3)", "(pay, order, 4)"))
    assert cli("cancel", "waiting").exit_code == 0
    assert cli("worker", "--until-idle").exit_code == 0
    assert cli("show", "broken", "--exit-status").exit_code == 3
    found = cli("check", "--in-flight")
    assert (found.exit_code, "  input.amount: recorded 3, now 4" in found.stdout) == (3, True)
    (shop / "app.py").write_text(APP)
    assert cli("check", "--in-flight").exit_code == 0


def test_agents_that_are_gone_are_told(cli: Cli, shop: Path) -> None:
    (shop / "app.py").write_text(APP.replace("async def shop", "async def store"))
    found = cli("check", "--in-flight")
    assert (found.exit_code, found.stdout) == (0, "0 unfinished, 0 of them stranded by this code\n")
    assert "2 unfinished of agent 'shop', which is not registered here" in found.stderr


def test_a_damaged_log_is_told_and_the_others_are_looked_at(cli: Cli, shop: Path) -> None:
    database = sqlite3.connect(shop / "journal.db")
    with database:
        database.execute("drop trigger records_never_change")
        which = "rid = (select rid from runs where run = 'broken') and seq = 5"
        database.execute(f"update records set body = x'00' where {which}")
    database.close()
    found = cli("check", "--in-flight")
    assert found.exit_code == 3
    assert "record 5 of run 'broken' is damaged" in found.stdout
    assert "2 unfinished, 1 of them stranded by this code" in found.stdout


def test_it_needs_an_application_and_a_store(cli: Cli, home: Path) -> None:
    assert cli("check", "--in-flight", app=None).exit_code == 2
    found = cli("check", "--in-flight")
    assert (found.exit_code, "there is no store here" in found.stderr) == (6, True)
