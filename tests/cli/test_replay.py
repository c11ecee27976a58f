"""`journal replay`: what it prints, where it stops, and pdb in a real process."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli, objects

APP = """
import asyncio
from pathlib import Path

from journal import Journal, Turn, never, step

journal = Journal("sqlite:journal.db")


def note(text: str) -> None:
    with Path("acts").open("a") as file:
        file.write(f"{text}\\n")


@step
async def double(n: int) -> int:
    note(f"double {n}")
    return n * 2


@never
def pay(amount: int) -> int:
    note(f"pay {amount}")
    return amount


async def helper(turn: Turn, n: int) -> int:
    inner = n + 1
    return await turn.step(double, inner)


@journal.agent
async def work(turn: Turn, n: int) -> int:
    first = await turn.step(double, n)
    second = await helper(turn, first)
    third, fourth = await asyncio.gather(turn.step(double, 7), turn.step(double, 8))
    paid = await turn.tool(pay, second)
    return paid.value + third + fourth
"""
PRINTED = """\
   1  step   double#1: ok, record N
   2  step   double#2: ok, record N
   3  step   t1/double#1: ok, record N
   4  step   t2/double#1: ok, record N
   5  tool   pay#1: ok, record N
"""


def numbered(text: str) -> str:
    """Without the numbers of records: parallel calls are written in the order in which they came."""
    return re.sub(r"record \d+", "record N", text)


@pytest.fixture
def ran(cli: Cli, home: Path) -> Path:
    """A directory with a run `r` of the application that went through: (1 → 2, 3 → 6, 14, 16) is 36."""
    (home / "app.py").write_text(APP)
    assert cli("submit", "work", "1", "--input-json", "--run", "r").exit_code == 0
    assert cli("worker", "--until-idle").exit_code == 0
    assert (home / "acts").read_text() == "double 1\ndouble 3\ndouble 7\ndouble 8\npay 6\n"
    (home / "acts").unlink()
    return home


def test_it_prints_each_call_and_how_the_turn_ended(cli: Cli, ran: Path) -> None:
    before = (ran / "journal.db").read_bytes()
    found = cli("replay", "r")
    assert found.exit_code == 0
    assert numbered(found.stdout) == PRINTED + (
        "recorded  succeeded, output of 2 B\nreplayed  succeeded, output of 2 B\nended as recorded: succeeded\n"
    )
    assert not (ran / "acts").exists()
    assert (ran / "journal.db").read_bytes() == before
    (told,) = objects(cli("replay", "r", "--json"))
    assert (told["verdict"], told["parted"], len(told["calls"])) == ("same", False, 5)


def test_changed_code_is_3_and_shown_field_by_field(cli: Cli, ran: Path) -> None:
    (ran / "app.py").write_text(APP.replace("inner = n + 1", "inner = n + 2"))
    found = cli("replay", "r")
    assert found.exit_code == 3
    assert "asks for 'double#2' with the input" in found.stdout
    assert "  input.n: recorded 3, now 4\n" in found.stdout
    (ran / "app.py").write_text(APP.replace("third + fourth", "third"))
    found = cli("replay", "r")
    assert (found.exit_code, "  output: recorded 36, now 20\n" in found.stdout) == (3, True)
    assert not (ran / "acts").exists()


def test_until_stops_before_the_call_is_served(cli: Cli, ran: Path) -> None:
    found = cli("replay", "r", "--until", "3")
    assert found.exit_code == 0
    assert numbered(found.stdout).startswith("".join(PRINTED.splitlines(keepends=True)[:3]))
    assert found.stdout.endswith("recorded  succeeded, output of 2 B\nstopped where it was asked to\n")
    assert "pay" not in found.stdout
    refused = cli("replay", "r", "--until", "6")
    assert (
        refused.exit_code,
        "call 6 is none that turn 'start' goes by (it has 1 to 5)" in refused.stderr,
    ) == (
        2,
        True,
    )


def test_what_is_not_there_is_said(cli: Cli, ran: Path) -> None:
    assert cli("replay", "nope").exit_code == 4
    assert cli("replay", "r", "--turn", "nope").exit_code == 4
    assert cli("replay", "r", app=None).exit_code == 2
    (ran / "app.py").write_text(APP.replace("async def work", "async def other"))
    assert cli("replay", "r").exit_code == 2


def test_what_is_not_installed_here_is_named(cli: Cli, ran: Path) -> None:
    (ran / "app.py").write_text(APP.replace("    first = ", "    import some_sdk_of_theirs\n    first = "))
    for options in ((), ("--until", "2"), ("--json",)):
        refused = cli("replay", "r", *options)
        assert refused.exit_code == 2
        assert "needs the module 'some_sdk_of_theirs'" in refused.stderr
        assert "not installed here" in refused.stderr


def debugged(home: Path, number: int, *commands: str) -> Any:
    """(stdout, exit code) of pdb at a call, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "journal.cli", "--app", "app", "replay", "r", "--pdb-at", str(number)],
        cwd=home,
        input="".join(f"{command}\n" for command in commands),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert not (home / "acts").exists()
    return done.stdout, done.returncode, done.stderr


def test_pdb_opens_in_the_frame_that_asks_and_steps_on(ran: Path) -> None:
    out, code, err = debugged(ran, 2, "p inner, n", "up", "p first", "down", "c")
    assert (code, err) == (0, ""), err
    assert "app.py" in out
    assert "(Pdb) (3, 2)" in out
    assert "(Pdb) > " in out
    assert "(Pdb) 2\n" in out
    assert out.endswith("ended as recorded: succeeded\n")


def test_pdb_steps_through_the_handler(ran: Path) -> None:
    out, code, _ = debugged(ran, 1, "p n", "n", "p first", "n", "p second", "c")
    assert code == 0
    assert "(Pdb) 1\n" in out
    assert "-> second = await helper(turn, first)" in out
    assert "(Pdb) 2\n" in out
    assert "(Pdb) 6\n" in out
    assert out.endswith("ended as recorded: succeeded\n")


def test_pdb_finds_the_handler_where_it_waits_for_others(ran: Path) -> None:
    out, code, _ = debugged(ran, 4, "p second", "n", "p third, fourth", "c")
    assert code == 0
    assert "-> third, fourth = await asyncio.gather" in out
    assert "(Pdb) 6\n" in out
    assert "(Pdb) (14, 16)\n" in out


def test_quitting_the_debugger_stops_the_replay(ran: Path) -> None:
    out, code, err = debugged(ran, 2, "q")
    assert (code, err) == (0, ""), err
    assert out.endswith("stopped in the debugger\n")
    out, code, err = debugged(ran, 1, "n", "q")
    assert (code, err) == (0, ""), err
    assert out.endswith("stopped in the debugger\n")


def debugged_where_it_parts(home: Path, *commands: str) -> Any:
    """(stdout, exit code, stderr) of `--pdb` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "journal.cli", "--app", "app", "replay", "r", "--pdb"],
        cwd=home,
        input="".join(f"{command}\n" for command in commands),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert not (home / "acts").exists()
    return done.stdout, done.returncode, done.stderr


def test_pdb_opens_where_the_code_asks_for_something_else(ran: Path) -> None:
    (ran / "app.py").write_text(APP.replace("inner = n + 1", "inner = n + 2"))
    out, code, err = debugged_where_it_parts(ran, "p inner, n", "up", "p first", "c")
    assert (code, err) == (3, ""), err
    assert "-> return await turn.step(double, inner)" in out
    assert "(Pdb) (4, 2)" in out
    assert "(Pdb) 2\n" in out
    assert "asks for 'double#2' with the input" in out.partition("(Pdb)")[0], "it says first why it stops"
    assert out.endswith("  input.n: recorded 3, now 4\n")


@pytest.mark.parametrize("end", ["q", "n"])
def test_leaving_the_debugger_there_is_still_3(ran: Path, end: str) -> None:
    (ran / "app.py").write_text(APP.replace("inner = n + 1", "inner = n + 2"))
    out, code, err = debugged_where_it_parts(ran, end, "q")
    assert (code, err) == (3, ""), err
    assert out.endswith("  input.n: recorded 3, now 4\n")


def test_pdb_opens_at_the_error_that_was_not_recorded(ran: Path) -> None:
    (ran / "app.py").write_text(APP.replace("    return paid.value +", "    return paid.nothing +"))
    out, code, err = debugged_where_it_parts(ran, "p second, third", "c")
    assert (code, err) == (3, ""), err
    assert "it ends otherwise than recorded: AttributeError at " in out
    assert "-> return paid.nothing + third + fourth" in out
    assert "(Pdb) (6, 14)\n" in out


def test_pdb_opens_where_the_handler_waits(ran: Path) -> None:
    waits = APP.replace(
        "    paid = await",
        "    await asyncio.Event().wait()\n    paid = await",
    )
    (ran / "app.py").write_text(waits)
    out, code, err = debugged_where_it_parts(ran, "p third, fourth", "c")
    assert (code, err) == (3, ""), err
    assert "-> await asyncio.Event().wait()" in out
    assert "(Pdb) (14, 16)\n" in out
    assert "the log holds 'pay#1' next" in out


def test_pdb_does_not_open_where_nothing_parts_and_says_where_it_cannot(ran: Path) -> None:
    out, code, err = debugged_where_it_parts(ran)
    assert (code, err, "(Pdb)" in out) == (0, "", False)
    (ran / "app.py").write_text(APP.replace("third + fourth", "third"))
    out, code, err = debugged_where_it_parts(ran)
    assert (code, "(Pdb)" in out) == (3, False)
    assert "the debugger finds no frame of it: --pdb-at 5 stops at the last call that it asked for" in err
