"""`journal fork`, `journal diff`, what `journal retry` says of calls: as commands, and killed half way."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest

from journal.core.ports import World
from journal.worlds import open_world
from journal.worlds.contract.harness import begin, claim_all, committed, hold
from journal.worlds.postgres import drop_schema
from journal.worlds.redis import drop_prefix
from tests.cli.conftest import Cli, objects
from tests.cli.processes import running


def in_world(url: str, act: Any) -> Any:
    async def main() -> Any:
        async with open_world(url) as world:
            return await act(world)

    return asyncio.run(main())


# Killed ------------------------------------------------------------------------------------------------

PINNED = 4000


async def _long(world: World) -> None:
    """Many calls, and one more that is to be made anew."""
    await begin(world, "long")
    holder = await hold(world, "long")
    for first in range(0, PINNED, 200):
        batch = holder.batch(*[holder.outcome(key=f"c#{first + n}") for n in range(1, 201)])
        committed(await holder.offer(batch))
    committed(await holder.offer(holder.batch(holder.outcome(key="last#1"))))
    await holder.release()


@pytest.fixture(params=["sqlite", "postgres", "redis", "cluster"])
def store(request: pytest.FixtureRequest, home: Path) -> Iterator[str]:
    """URL of an empty store."""
    match request.param:
        case "postgres":
            url = f"{request.getfixturevalue('postgres_server')}?schema=forked_{uuid4().hex[:12]}"
            yield url
            asyncio.run(drop_schema(url))
        case "redis" | "cluster":
            url = f"{request.getfixturevalue(f'{request.param}_server')}?prefix=forked-{uuid4().hex[:12]}"
            yield url
            asyncio.run(drop_prefix(url))
        case _:
            yield "sqlite:journal.db"


def test_a_fork_that_is_killed_half_way_is_finished_by_the_same_command(
    cli: Cli, home: Path, store: str
) -> None:
    in_world(store, _long)
    command = ("fork", "long", "--at", str(PINNED + 1), "--world", store)
    with running(home, *command) as forking:
        in_world(store, _until_half_way)
        forking.popen.kill()
        assert forking.wait() == -9

    async def seen(world: World) -> tuple[Any, Any, list[str]]:
        claimed = await claim_all(world)
        return (
            await world.run("long@4001"),
            await world.read("long@4001", limit=1),
            [c.claim.run for c in claimed],
        )

    info, first, claimed = in_world(store, seen)
    assert info.building
    assert 0 < info.head < PINNED
    assert claimed == ["long"], "nobody can claim the fork"
    refused = cli("retry", "long@4001", "--world", store, app=None)
    assert (refused.exit_code, "journal fork) again" in refused.stderr) == (2, True)
    done = cli(*command, app=None)
    assert (done.exit_code, done.stdout) == (0, "long@4001\n"), done.output
    info, again, claimed = in_world(store, seen)
    assert (info.building, info.head) == (False, PINNED + 2)
    assert again == first, "what the dead one wrote stands"
    assert "long@4001" in claimed
    assert "was there already" in cli(*command, app=None).stderr


async def _until_half_way(world: World) -> None:
    with anyio.fail_after(60):
        while (info := await world.run("long@4001")) is None or info.head < 200:
            await anyio.sleep(0.002)


# From the command line ---------------------------------------------------------------------------------


def test_a_run_and_its_fork(cli: Cli, home: Path) -> None:
    cli("submit", "support", "x", "--run", "one")
    cli("worker", "--until-idle")
    forked = cli("fork", "one", "--at", "2")
    assert (forked.exit_code, forked.stdout) == (0, "one@2\n"), forked.output
    assert "with 1 call on record" in forked.stderr
    assert "started in one, and started anew here if it is asked for: pay#1" in forked.stderr
    parted = cli("diff", "one", "one@2")
    assert parted.exit_code == 1
    assert parted.stdout.splitlines() == [
        "1 call alike, then they part", "turn start, pay#1: call", "  one call 2: tool pay#1 (pay)",
        "  one@2: nothing",
    ]  # fmt: skip
    assert "2 more" in parted.stderr
    cli("worker", "--until-idle")
    alike = cli("diff", "one", "one@2")
    assert (alike.exit_code, alike.stdout) == (0, "alike: 3 calls\n")
    assert "forked from one before call 2" in cli("show", "one@2").stdout
    assert cli("export", "one", "-o", "one.jsonl").exit_code == 0
    assert cli("diff", "./one.jsonl", "one@2").exit_code == 0
    verified = cli("verify", "one@2")
    assert verified.exit_code == 0, verified.output
    again = json.loads(cli("fork", "one", "--at", "2", "--json").stdout)
    assert (again["run"], again["is_new"], again["pinned"]) == ("one@2", False, 1)


def test_another_input(cli: Cli, home: Path) -> None:
    cli("submit", "support", "x", "--run", "one")
    cli("worker", "--until-idle")
    assert cli("fork", "one", "--at", "1", "--as", "two", "--input", '"y"').exit_code == 0
    cli("worker", "--until-idle")
    (parted,) = objects(cli("diff", "one", "two", "--json"))
    hows = [(p["how"], p.get("left"), p.get("right")) for p in parted["partings"]]
    assert hows[0] == ("input of the turn", '"x"', '"y"')
    assert ("end of the turn", 'succeeded "looked at X"', 'succeeded "looked at Y"') in hows
    assert "begun anew with another input" in cli("show", "two").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("fork", "one"), 2, "--at"),
        (("fork", "one", "--at", "9"), 2, "has no call 9; it has 3"),
        (("fork", "one", "--at", "0"), 2, "--at"),
        (("fork", "none", "--at", "1"), 4, "journal runs"),
        (("fork", "one", "--at", "1", "--input", "{"), 2, "--input"),
        (("fork", "one", "--at", "1", "--input", "hello"), 2, 'as text it is "hello"'),
        (("fork", "one", "--at", "1", "--as", "one"), 2, "--as"),
        (("fork", "one", "--at", "1", "--as", "-x"), 2, "is refused"),
        (("retry", "one"), 2, "journal fork --world sqlite:"),
        (("retry", "bad", "--settle", "1"), 2, "N=JSON"),
        (("retry", "bad", "--settle", "1=1", "--settle", "1=2"), 2, "twice"),
        (("retry", "bad", "--settle", "1=nonsense"), 2, "--settle 1"),
        (("retry", "bad", "--settle", "1=7"), 2, "only an unknown one is settled"),
        (("retry", "bad", "--accept-divergence"), 2, "not blocked by a divergence"),
        (("retry", "bad", "--from", "7"), 2, "has no call 7"),
        (("diff", "one", "none"), 4, "journal runs"),
    ],
)
def test_bad_input_says_what_to_do(
    cli: Cli, home: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    cli("submit", "support", "x", "--run", "one")
    cli("submit", "support", "fail", "--run", "bad")
    cli("worker", "--until-idle")
    refused = cli(*arguments)
    assert (refused.exit_code, says in refused.stderr) == (code, True), refused.output


def test_a_retry_from_a_call_on(cli: Cli, home: Path) -> None:
    cli("submit", "support", "fail", "--run", "bad")
    cli("worker", "--until-idle")
    sent = cli("retry", "bad", "--from", "1")
    assert sent.exit_code == 0, sent.output
    assert "sets call 1 and all after it aside" in cli("show", "bad").stdout


def test_a_value_told_by_hand_is_shown_only_when_asked_for(cli: Cli, home: Path) -> None:
    (home / "app.py").write_text(UNSURE)
    cli("submit", "payer", "x", "--run", "r")
    cli("worker", "--until-idle")
    assert cli("retry", "r", "--settle", '1={"secret": 7}').exit_code == 0
    cli("worker", "--until-idle")
    assert "secret" not in cli("log", "r").stdout
    assert "secret" in cli("log", "r", "--values").stdout
    assert "told by hand" in cli("show", "r").stdout
    assert cli("verify", "r").exit_code == 0


UNSURE = """
from journal import Journal, Turn, never

journal = Journal("sqlite:journal.db")


@never
def pay() -> dict[str, int]:
    raise TimeoutError


@journal.agent
async def payer(turn: Turn, prompt: str) -> int:
    return (await turn.tool(pay)).value["secret"]
"""
