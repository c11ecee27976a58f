"""`journal copy` and `journal archive`: from the command line, with real processes, and killed half way."""

import asyncio
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest

from journal.core.ports import RunQuery, World
from journal.worlds import open_world
from journal.worlds.contract.building import worked_on
from journal.worlds.contract.harness import begin, committed, hold, info_of
from journal.worlds.postgres import drop_schema
from journal.worlds.redis import drop_prefix
from tests.cli.conftest import Cli, objects
from tests.cli.processes import Process, running

APP = '''
import os
from pathlib import Path

from journal import Journal, Turn, never

journal = Journal("sqlite:journal.db")


@never
def pay(number: int) -> int:
    """What it does can be counted."""
    with open("paid", "a") as paid:
        paid.write(f"{number}\\n")
    if number == 1:
        print("in the call", flush=True)
        if Path("gate").exists():
            Path("gate").read_text()
    return number


@journal.agent
async def buyer(turn: Turn, first: int) -> list[int]:
    return [(await turn.tool(pay, number)).value for number in range(first, first + 3)]
'''


@pytest.fixture
def workplace(home: Path) -> Path:
    (home / "app.py").write_text(APP)
    return home


def in_world(url: str, act: Any) -> Any:
    async def main() -> Any:
        async with open_world(url) as world:
            return await act(world)

    return asyncio.run(main())


async def _finished(world: World, run: str) -> None:
    await begin(world, run)
    await (await hold(world, run)).finish()


# Copying -----------------------------------------------------------------------------------------------


def test_runs_are_copied_and_then_there(cli: Cli, home: Path) -> None:
    cli("submit", "support", "x", "--run", "one")
    cli("worker", "--until-idle")
    cli("submit", "support", "y", "--run", "two")
    copied = cli("copy", "sqlite:journal.db", "sqlite:other.db", app=None)
    assert copied.exit_code == 0, copied.output
    assert [line.split()[:2] for line in copied.stdout.splitlines()] == [["copied", "one"], ["copied", "two"]]
    assert "held back there: it goes on where it is" in copied.stdout
    assert "2 copied" in copied.stderr
    again = objects(cli("copy", "sqlite:journal.db", "sqlite:other.db", "--json", app=None))
    assert [(found["run"], found["result"]) for found in again] == [("one", "present"), ("two", "present")]
    cli("worker", "--until-idle", "--world", "sqlite:other.db")
    assert cli("show", "two", "--world", "sqlite:other.db", "--exit-status").exit_code == 3
    sent_on = cli("retry", "two", "--world", "sqlite:other.db")
    assert sent_on.exit_code == 0, sent_on.output
    cli("worker", "--until-idle", "--world", "sqlite:other.db")
    assert "succeeded" in cli("show", "two", "--world", "sqlite:other.db").stdout
    assert "succeeded" in cli("show", "one", "--world", "sqlite:other.db").stdout
    (found,) = [r for r in objects(cli("runs", "--json")) if r["run"] == "two"]
    assert (found["status"], found["moved_to"]) == ("pending", None)


def test_waiting_for_a_copy_that_is_held_back_says_so(cli: Cli, home: Path) -> None:
    cli("submit", "support", "y", "--run", "two")
    cli("copy", "sqlite:journal.db", "sqlite:other.db", app=None)
    waited = cli("submit", "support", "y", "--run", "two", "--wait", "--world", "sqlite:other.db")
    assert waited.exit_code == 3
    assert "journal retry --world sqlite:" in waited.stderr


def test_what_is_held_back_says_why(cli: Cli, home: Path) -> None:
    other = ("--world", "sqlite:other.db")
    cli("submit", "support", "y", "--run", "held")
    for n in range(60):  # more than one page of records after the turn's
        cli("submit", "support", "y", "--run", "held", "--key", f"k{n}")
    cli("copy", "sqlite:journal.db", "sqlite:other.db", app=None)
    in_world("sqlite:other.db", _blocked)
    shown = cli("show", "held", *other)
    assert "held back: it was copied from another store" in shown.stderr
    assert "--freeze" in shown.stderr
    assert "journal retry --world sqlite:other.db held only if" in shown.stderr
    assert "gives up" not in shown.stderr
    assert "journal retry --world sqlite:other.db blocked" in cli("show", "blocked", *other).stderr
    assert json.loads(cli("show", "held", "--json", *other).stdout)["info"]["held_back"] is True
    listed = cli("runs", "--status", "blocked", *other)
    standing = {line.split()[0]: "held back" in line for line in listed.stdout.splitlines()[1:]}
    assert standing == {"held": True, "blocked": False}
    assert "held back: copied from another store" in listed.stderr
    found = objects(cli("runs", "--json", *other))
    assert {r["run"]: r["held_back"] for r in found} == {"held": True, "blocked": False}
    assert not any(r["held_back"] for r in objects(cli("runs", "--json")))
    cli("retry", "held", *other)
    assert "held back" not in cli("runs", *other).output


async def _blocked(world: World) -> None:
    await begin(world, "blocked")
    await (await hold(world, "blocked")).block()


def test_what_goes_on_after_a_copy_is_moved_by_the_next(cli: Cli, home: Path) -> None:
    """The procedure of docs/operations.md, with what is submitted to the old store until the last."""
    old, new = "sqlite:journal.db", "sqlite:other.db"
    cli("submit", "support", "x", "--run", "one")
    cli("submit", "support", "y", "--run", "two", "--delay", "3600")
    assert cli("copy", old, new, app=None).exit_code == 0
    cli("worker", "--until-idle")
    cli("submit", "support", "z", "--run", "three")
    for results in (
        [["moved", "one"], ["moved", "two"], ["moved", "three"]],
        [["present", "one"], ["present", "two"], ["present", "three"], ["moved", "late"]],
        [["present", "one"], ["present", "two"], ["present", "three"], ["present", "late"]],
    ):
        moved = cli("copy", old, new, "--freeze", app=None)
        assert (moved.exit_code, [line.split()[:2] for line in moved.stdout.splitlines()]) == (0, results)
        if len(results) == 3:
            cli("submit", "support", "late", "--run", "late")
    refused = cli("submit", "support", "z", "--run", "three")
    assert (refused.exit_code, "other.db" in refused.stderr) == (4, True)
    cli("worker", "--until-idle", "--world", new)
    found = {
        r["run"]: (r["status"], r["due_at"] is None) for r in objects(cli("runs", "--json", "--world", new))
    }
    ended = ("succeeded", True)
    assert found == {"one": ended, "two": ("pending", False), "three": ended, "late": ended}


def test_named_runs_are_copied_and_the_others_go_on(cli: Cli, home: Path) -> None:
    for run in ("one", "two", "three"):
        cli("submit", "support", "x", "--run", run)
    cli("submit", "support", "another", "--run", "two", "--world", "sqlite:other.db")
    asked = ("--run", "three", "--run", "two", "--run", "absent", "--run", "three")
    copied = cli("copy", "sqlite:journal.db", "sqlite:other.db", *asked, "--json", app=None)
    assert copied.exit_code == 1
    found = objects(copied)
    assert [(f["run"], f["result"]) for f in found] == [
        ("three", "copied"), ("two", "failed"), ("absent", "failed"),
    ]  # fmt: skip
    assert [f["error"]["type"] for f in found[1:]] == ["RunDiffers", "RunNotFound"]
    assert "another store" in found[1]["error"]["message"]
    assert "--namespace" not in found[1]["error"]["message"], "both stores are of one"
    assert "1 copied, 2 failed" in copied.stderr


def test_a_reader_that_has_seen_enough_does_not_cut_a_move_short(cli: Cli, home: Path) -> None:
    runs = [f"r{n}" for n in range(5)]
    for run in runs:
        cli("submit", "support", "x", "--run", run)
    with running(home, "copy", "sqlite:journal.db", "sqlite:other.db", "--freeze") as copying:
        assert copying.popen.stdout is not None
        assert copying.popen.stderr is not None
        copying.popen.stdout.close()
        said = copying.popen.stderr.read()
        assert copying.wait() == 0
        copying.popen.stdout = None
    assert "5 moved" in said
    assert "BrokenPipe" not in said
    found = objects(cli("runs", "--json", "--world", "sqlite:other.db", app=None))
    assert sorted(r["run"] for r in found) == runs


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("sqlite:typo.db", "sqlite:other.db"), "there is no store here"),
        (("sqlite:journal.db", "sqlite:journal.db"), "one and the same store"),
        (("sqlite:journal.db", "nonsense"), "not a store URL"),
        (("sqlite:journal.db", "memory:", "--freeze"), "log.persistent"),
        (("sqlite:journal.db",), "Missing argument 'DST'"),
        (("sqlite:journal.db", "sqlite:other.db", "--wait", "-1"), "--wait"),
    ],
)
def test_bad_input_says_what_to_do(cli: Cli, home: Path, arguments: tuple[str, ...], says: str) -> None:
    cli("submit", "support", "x", "--run", "one")
    refused = cli("copy", *arguments, app=None)
    assert refused.exit_code in (2, 6)
    assert says in refused.stderr
    assert not (home / "typo.db").exists()


# Moving, while workers are at it -----------------------------------------------------------------------


def _paid(home: Path) -> list[int]:
    return sorted(map(int, (home / "paid").read_text().split()))


def test_what_workers_are_at_is_carried_on_in_the_other_store(cli: Cli, workplace: Path) -> None:
    """A worker on each store, and runs that are moved under the first: nothing lost, nothing doubled."""
    os.mkfifo(workplace / "gate")
    runs = [f"r{first:03d}" for first in range(1, 200, 10)]
    for run in runs:
        assert cli("submit", "buyer", str(int(run[1:])), "--input-json", "--run", run).exit_code == 0
    with (
        running(workplace, "worker", "app:journal", "--concurrency", "3") as old,
        running(workplace, "worker", "app:journal", "--world", "sqlite:new.db") as new,
    ):
        assert old.line() == "in the call"
        copying = Process(workplace, "copy", "sqlite:journal.db", "sqlite:new.db", "--freeze", "--wait", "60")
        (workplace / "gate").write_text("go")  # only now does the first run end
        out, err = copying.popen.communicate(timeout=100)
        assert copying.wait() == 0, err
        assert sorted(line.split()[:2] for line in out.splitlines()) == [["moved", run] for run in runs]
        until = time.monotonic() + 60
        while any(r["turn"] for r in objects(cli("runs", "--json", "--world", "sqlite:new.db"))):
            assert time.monotonic() < until, "a run is not carried on"
            time.sleep(0.1)
        assert old.popen.poll() is new.popen.poll() is None
    assert _paid(workplace) == [number for run in runs for number in range(int(run[1:]), int(run[1:]) + 3)]
    found = objects(cli("runs", "--json", "--world", "sqlite:new.db"))
    assert {(r["status"], r["moved_to"], r["closed"]) for r in found} == {("succeeded", None, False)}
    (home_url,) = {r["moved_to"] for r in objects(cli("runs", "--json"))}
    assert home_url == f"sqlite:{workplace / 'new.db'}"
    refused = cli("submit", "buyer", "1", "--input-json", "--run", "r001")
    assert (refused.exit_code, home_url in refused.stderr) == (4, True)
    assert "moved to" in cli("show", "r001").stderr


def test_a_run_in_somebodys_hands_is_skipped(cli: Cli, workplace: Path) -> None:
    os.mkfifo(workplace / "gate")
    cli("submit", "buyer", "1", "--input-json", "--run", "busy")
    cli("submit", "buyer", "11", "--input-json", "--run", "idle")
    with running(workplace, "worker", "app:journal", "--concurrency", "1") as worker:
        assert worker.line() == "in the call"
        moved = cli("copy", "sqlite:journal.db", "sqlite:new.db", "--freeze", "--wait", "0", app=None)
        assert moved.exit_code == 1
        assert [line.split()[:2] for line in moved.stdout.splitlines()] == [
            ["skipped", "busy"], ["moved", "idle"],
        ]  # fmt: skip
        assert "stop its workers" in moved.stdout


# Killed ------------------------------------------------------------------------------------------------


async def _long(world: World, run: str) -> None:
    await begin(world, run)
    holder = await hold(world, run)
    for _ in range(30):
        committed(await holder.offer(holder.batch(*[holder.outcome() for _ in range(200)])))
    await holder.release()


@pytest.fixture
def target(request: pytest.FixtureRequest, home: Path) -> Iterator[str]:
    """URL of an empty store of the kind that is asked for."""
    match request.param:
        case "postgres":
            url = f"{request.getfixturevalue('postgres_server')}?schema=killed_{uuid4().hex[:12]}"
            yield url
            asyncio.run(drop_schema(url))
        case "redis":
            url = f"{request.getfixturevalue('redis_server')}?prefix=killed-{uuid4().hex[:12]}"
            yield url
            asyncio.run(drop_prefix(url))
        case _:
            yield "sqlite:other.db"


@pytest.mark.parametrize("freeze", [("--freeze",), ()], ids=["move", "copy"])
@pytest.mark.parametrize("target", ["sqlite", "postgres", "redis"], indirect=True)
def test_a_copier_that_is_killed_is_finished_by_the_next(
    cli: Cli, home: Path, target: str, freeze: tuple[str, ...]
) -> None:
    runs = [f"r{n}" for n in range(4)]

    async def fill(world: World) -> None:
        for run in runs:
            await _long(world, run)

    in_world("sqlite:journal.db", fill)
    command = ("copy", "sqlite:journal.db", target, *freeze)
    in_world(target, lambda world: world.runs(RunQuery()))  # the store is made
    with running(home, *command) as copier:
        in_world(target, lambda world: _until_half_way(world, "r2"))
        copier.popen.kill()
        copier.wait()
    found = {r["run"]: r for r in objects(cli("runs", "--json", "--world", target, app=None))}
    assert found["r2"]["building"]
    assert not found["r0"]["building"]
    refused = cli("retry", "r2", "--world", target, app=None)
    assert (refused.exit_code, "journal copy" in refused.stderr) == (2, True)
    assert "being copied here" in cli("show", "r2", "--world", target, app=None).stderr
    done = cli(*command, app=None)
    assert done.exit_code == 0, done.output
    results = {line.split()[1]: line.split()[0] for line in done.stdout.splitlines()}
    assert results["r2"] == results["r3"] == ("moved" if freeze else "copied")
    assert results["r0"] == "present"

    async def logs(world: World) -> dict[str, Any]:
        return {run: await world.read(run, limit=10_000) for run in runs}

    assert in_world("sqlite:journal.db", logs) == in_world(target, logs)

    async def due(world: World) -> int:
        return len((await world.claim(worker="w", limit=9, lease_seconds=5, agents=None, reads=1)).claimed)

    counts = [in_world(url, due) for url in ("sqlite:journal.db", target)]
    assert counts == ([0, 4] if freeze else [4, 0])


async def _until_half_way(world: World, run: str) -> None:
    """Until that copy has some records."""
    with anyio.fail_after(60):
        while (info := await world.run(run)) is None or not (info.building and info.head):
            await anyio.sleep(0.002)


# Archiving ---------------------------------------------------------------------------------------------


def test_what_is_done_and_old_leaves_its_address(cli: Cli, home: Path) -> None:
    async def fill(world: World) -> None:
        await _finished(world, "old")
        await worked_on(world, "open")

    in_world("sqlite:journal.db", fill)
    young = cli("archive", "--older", "1h", "--to", "sqlite:cold.db")
    assert (young.exit_code, young.stdout) == (0, "")
    assert "no runs; 0 swept" in young.stderr
    time.sleep(0.05)
    archived = cli("archive", "--older", "0.01s", "--to", "sqlite:cold.db", "--json")
    assert archived.exit_code == 0, archived.output
    cold = f"sqlite:{home / 'cold.db'}"
    moved, count = objects(archived)
    assert (moved["run"], moved["result"]) == ("old", "moved")
    assert count == {"archived": 1, "to": cold}
    assert [r["run"] for r in objects(cli("runs", "--json"))] == ["open"], "an unfinished one stays"
    for verb in (("show", "old"), ("log", "old"), ("cancel", "old"), ("retry", "old")):
        told = cli(*verb)
        assert told.exit_code == 4, told.output
        assert cold in told.stderr
    assert "succeeded" in cli("show", "old", "--world", "sqlite:cold.db").stdout
    again = cli("archive", "--older", "0s", "--to", "sqlite:cold.db")
    assert (again.exit_code, "0 swept" in again.stderr) == (0, True)


def test_an_archiver_that_died_before_the_sweep_is_finished_by_the_next(cli: Cli, home: Path) -> None:
    in_world("sqlite:journal.db", lambda world: _finished(world, "old"))
    assert cli("copy", "sqlite:journal.db", "sqlite:cold.db", "--freeze").exit_code == 0
    assert [r["run"] for r in objects(cli("runs", "--json"))] == ["old"]
    assert "1 swept" in cli("archive", "--older", "7d", "--to", "sqlite:cold.db").stderr
    assert objects(cli("runs", "--json")) == []
    in_world("sqlite:cold.db", lambda world: info_of(world, "old"))


@pytest.mark.parametrize("age", ["", "7", "d", "7w", "-1d", "seven"])
def test_an_age_has_a_unit(cli: Cli, home: Path, age: str) -> None:
    refused = cli("archive", f"--older={age}", "--to", "sqlite:cold.db")
    assert refused.exit_code == 2
    assert "7d" in refused.stderr


def test_what_is_archived_from_redis_leaves_its_memory(cli: Cli, home: Path, redis_server: str) -> None:
    """Logs need not stay in memory for ever: what is left is a hash of a few fields."""
    url = f"{redis_server}?prefix=archived-{os.getpid()}-{time.monotonic_ns()}"

    async def fill(world: World) -> None:
        await begin(world, "old")
        holder = await hold(world, "old")
        committed(await holder.offer(holder.batch(*[holder.outcome() for _ in range(500)])))
        await holder.finish()

    in_world(url, fill)
    archived = cli("archive", "--older", "0s", "--to", "sqlite:cold.db", "--world", url, "--json")
    assert archived.exit_code == 0, archived.output
    assert json.loads(archived.stdout.splitlines()[-1])["archived"] == 1
    told = cli("show", "old", "--world", url)
    assert (told.exit_code, f"sqlite:{home / 'cold.db'}" in told.stderr) == (4, True)
    assert len(in_world("sqlite:cold.db", lambda world: world.read("old", limit=10_000))) == 503
