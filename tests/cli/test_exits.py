"""Bad input: a clear line that says what to do, its exit code, nothing half-written."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import click
import pytest

from journal.cli import exits
from journal.core import errors
from journal.core.codec import seal
from journal.core.ids import new_batch_id
from journal.core.ports import Answer, Batch, Block, Held, Unknown
from journal.core.records import MIN_READER, TurnBlocked
from journal.engine.journal import Journal
from journal.worlds.sqlite import SqliteWorld
from tests.cli.conftest import Cli, objects

WORLD_ERRORS = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.WorldError)
]


@pytest.mark.parametrize("kind", WORLD_ERRORS)
def test_whatever_is_wrong_with_the_store_is_6(kind: type[errors.WorldError]) -> None:
    assert exits.code_of(kind("told here", world="sqlite:x")) == 6


def test_codes_of_turns_that_did_not_succeed() -> None:
    failed = errors.TurnFailed(run_id="r", turn_id="t", type="ValueError", code=None, data=None)
    blocked = errors.TurnBlocked(run_id="r", turn_id="t", reason="divergence", detail="told")
    cancelled = errors.TurnCancelled(run_id="r", turn_id="t")
    assert [exits.code_of(e) for e in (failed, blocked, cancelled)] == [1, 3, 7]
    assert exits.code_of(errors.CorruptRecord(run_id="r", seq=1, reason="told")) == 6
    assert exits.code_of(KeyboardInterrupt()) == exits.code_of(click.Abort()) == 130
    assert exits.code_of(RuntimeError("a bug")) == 70


def test_codes_of_statuses() -> None:
    assert {s: exits.code_of_status(s) for s in ("succeeded", "running", "pending")} == dict.fromkeys(
        ("succeeded", "running", "pending"), 0
    )
    assert [exits.code_of_status(s) for s in ("failed", "blocked", "parked", "cancelled")] == [1, 3, 5, 7]


def test_messages_are_one_line() -> None:
    assert exits.message_of(errors.InvalidOptions("two\n  lines")) == "two lines"


@pytest.fixture
def store(cli: Cli) -> None:
    """An empty one."""
    assert cli("migrate").exit_code == 0


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("verb", ["show", "log", "cancel", "retry"])
def test_an_unknown_run_is_4(cli: Cli, verb: str) -> None:
    refused = cli(verb, "nope")
    assert refused.exit_code == 4
    assert refused.stdout == ""
    assert refused.stderr.startswith("error: run 'nope' is not in sqlite:")
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.usefixtures("store")
def test_following_an_unknown_run_does_not_wait_for_it(cli: Cli) -> None:
    assert cli("log", "nope", "--follow").exit_code == 4


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    "args", [("show", "no such"), ("submit", "support", "x", "--run", "no such"), ("cancel", "no such")]
)
def test_a_refused_id_is_2_and_comes_with_a_suggestion(cli: Cli, args: tuple[str, ...]) -> None:
    refused = cli(*args)
    assert refused.exit_code == 2
    assert "try 'no-such'" in refused.stderr


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("text", ["{", "NaN", '{"a": 1, "a": 2}', "[1e999]", '"\\ud800"'])
def test_what_is_no_json_is_2_and_writes_nothing(cli: Cli, text: str) -> None:
    refused = cli("submit", "count", text, "--input-json", "--run", "r")
    assert refused.exit_code == 2
    assert refused.stderr.startswith("error: INPUT")
    assert cli("show", "r").exit_code == 4


def test_an_unregistered_agent_is_2_and_writes_nothing(cli: Cli) -> None:
    for app in ("app", None):
        refused = cli("submit", "suport", "x", "--run", "r", "--world", "sqlite:journal.db", app=app)
        assert refused.exit_code == 2
        assert "agent 'suport' is not registered here" in refused.stderr
        assert ("it has had no run in this store: check its name" in refused.stderr) is (app is None)
    assert cli("show", "r").exit_code == 6  # not even an empty store
    assert cli("submit", "suport", "x", "--run", "r", "--unchecked").exit_code == 0


def test_an_agent_that_has_had_runs_is_known_without_its_code(cli: Cli) -> None:
    assert cli("submit", "support", "x").exit_code == 0
    assert cli("submit", "support", "y", "--world", "sqlite:journal.db", app=None).exit_code == 0


def test_a_run_with_another_input_is_2(cli: Cli) -> None:
    cli("submit", "support", "x", "--run", "r")
    refused = cli("submit", "support", "y", "--run", "r")
    assert (refused.exit_code, "was started with another input" in refused.stderr) == (2, True)


def test_a_turn_that_cannot_be_retried_is_2(cli: Cli) -> None:
    cli("submit", "support", "x", "--run", "r")
    refused = cli("retry", "r")
    assert (refused.exit_code, "only a failed or a blocked turn" in refused.stderr) == (2, True)


def test_waiting_for_a_failed_turn_is_1(cli: Cli) -> None:
    cli("submit", "support", "fail", "--run", "r")
    cli("worker", "--until-idle")
    failed = cli("submit", "support", "fail", "--run", "r", "--wait")
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert "failed with ValueError: no (journal show --world sqlite:" in failed.stderr


def test_waiting_for_a_cancelled_turn_is_7(cli: Cli) -> None:
    cli("submit", "support", "x", "--run", "r")
    cli("cancel", "r")
    cli("worker", "--until-idle")
    assert cli("submit", "support", "x", "--run", "r", "--wait").exit_code == 7


def test_a_blocked_turn_is_3_and_says_why(cli: Cli, home: Path) -> None:
    cli("submit", "support", "x", "--run", "r")
    asyncio.run(block(f"sqlite:{home / 'journal.db'}", "r"))
    blocked = cli("submit", "support", "x", "--run", "r", "--wait")
    assert (blocked.exit_code, "is blocked (divergence): told by the test" in blocked.stderr) == (3, True)
    assert cli("show", "r", "--exit-status").exit_code == 3
    assert "blocked (divergence): told by the test" in cli("show", "r").stdout


async def block(url: str, run: str) -> None:
    """Claim the run and block its turn, as a worker does."""
    async with Journal(url) as journal:
        world = (await journal.runtime()).world
        claims = await world.claim(
            worker="w", limit=1, lease_seconds=30, agents=None, reads=MIN_READER, run=run
        )
        record = seal(run, TurnBlocked(reason="divergence", detail="told by the test"), turn="start")
        await world.append(
            Batch(run, new_batch_id(), Held(claims.claimed[0].claim, None), (record,), queue=Block())
        )


def test_a_store_of_a_newer_version_is_6(cli: Cli, home: Path) -> None:
    cli("submit", "support", "x", "--run", "r")
    with closing(sqlite3.connect(home / "journal.db")) as database, database:
        database.execute("pragma user_version = 999")
    refused = cli("show", "r")
    assert (refused.exit_code, "upgrade durable-journal" in refused.stderr) == (6, True)


def test_a_file_that_is_no_store_is_6(cli: Cli, home: Path) -> None:
    (home / "journal.db").write_bytes(b"this is no database, " * 100)
    refused = cli("runs")
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (6, 1)
    assert (home / "journal.db").read_bytes() == b"this is no database, " * 100


def test_a_store_that_cannot_be_written_is_6(cli: Cli) -> None:
    refused = cli("runs", "--world", "sqlite:/proc/journal.db")
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (6, 1)


def test_a_store_that_nobody_serves_is_6(cli: Cli) -> None:
    refused = cli("runs", "--world", "mongodb://somebody:secret@host/db")
    assert refused.exit_code == 6
    assert "secret" not in refused.stderr


def test_a_damaged_record_is_6_and_what_precedes_it_is_shown(cli: Cli, home: Path) -> None:
    cli("submit", "support", "x", "--run", "r")
    cli("worker", "--until-idle")
    with closing(sqlite3.connect(home / "journal.db")) as database, database:
        database.execute("drop trigger records_never_change")
        database.execute("update records set body = x'00' where seq = 5")
    shown = cli("show", "r")
    assert (shown.exit_code, "record 5 of run 'r' is damaged" in shown.stderr) == (6, True)
    assert "attempt 1" in shown.stdout
    logged = cli("log", "r", "--json")
    assert (logged.exit_code, [line.get("seq") for line in objects(logged)]) == (6, [1, 2, 3, 4, None])
    assert objects(logged)[-1]["error"]["type"] == "CorruptRecord"


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("nothing_here:journal", "there is no module 'nothing_here'"),
        ("app:wrong", "choose app:journal"),
        ("app:pay", "is of type function, not a Journal"),
        ("app.py", "write module:attribute, as in app:journal"),
        ("broken", "importing 'broken' raised ZeroDivisionError"),
        ("needy", "needs 'not_installed_at_all'"),
        ("two", "choose two:first or two:second"),
        ("bare", "there is no Journal in 'bare'"),
    ],
)
def test_an_application_that_cannot_be_had_is_2(cli: Cli, home: Path, spec: str, says: str) -> None:
    (home / "broken.py").write_text("1 / 0")
    (home / "needy.py").write_text("import not_installed_at_all")
    (home / "two.py").write_text("from journal import Journal\nfirst = Journal()\nsecond = Journal()")
    (home / "bare.py").write_text("x = 1")
    refused = cli("worker", spec, app=None)
    assert refused.exit_code == 2
    assert says in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_worker_needs_an_application_with_agents(cli: Cli, home: Path) -> None:
    assert "no application" in cli("worker", app=None).stderr
    (home / "idle.py").write_text("from journal import Journal\njournal = Journal()")
    assert "has no agents" in cli("worker", "idle", app=None).stderr
    refused = cli("worker", "--agents", "support,nope")
    assert (refused.exit_code, "agent 'nope' is not registered" in refused.stderr) == (2, True)


def test_no_name_is_no_run(cli: Cli) -> None:
    cli("migrate")
    refused = cli("show", "")
    assert (refused.exit_code, "run id '' is refused: it is empty" in refused.stderr) == (2, True)


def test_a_verb_of_verbs_says_that_one_is_missing(cli: Cli) -> None:
    refused = cli("world")
    assert (refused.exit_code, refused.stderr) == (
        2,
        "error: Missing command. (see journal world --help)\n",
    )


def test_wrong_options_are_2_in_one_line(cli: Cli) -> None:
    for args in (("runs", "--bogus"), ("nosuchverb",), ("show",), ("log", "r", "--after", "soon")):
        refused = cli(*args, app=None)
        assert refused.exit_code == 2
        assert refused.stderr.startswith("error: ")
        assert len(refused.stderr.splitlines()) == 1


@pytest.mark.usefixtures("store")
def test_with_json_the_error_is_an_object_too(cli: Cli) -> None:
    for args in (("show", "nope", "--json"), ("--json", "show", "nope")):
        refused = cli(*args)
        (told,) = objects(refused)
        assert told["error"]["type"] == "RunNotFound"
        assert told["error"]["exit_code"] == refused.exit_code == 4
        assert told["error"]["message"] in refused.stderr


def test_debug_shows_the_traceback(cli: Cli) -> None:
    assert "Traceback" not in cli("show", "nope").stderr
    assert "Traceback" in cli("show", "nope", "--debug").stderr


def test_an_unanswered_submission_names_the_run_to_repeat_it_under(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("journal.engine.offering.OFFER_SECONDS", 0.05)
    append = SqliteWorld.append

    async def mute(world: SqliteWorld, batch: Batch) -> Answer:
        await append(world, batch)
        return Unknown("silence")

    with monkeypatch.context() as muted:
        muted.setattr(SqliteWorld, "append", mute)
        refused = cli("submit", "support", "x", "--json")
        assert refused.exit_code == 6
        run = json.loads(refused.stdout)["error"]["run"]
        told = cli("submit", "support", "x", "--run", run).stderr
    assert f"--run {run}" in refused.stderr
    assert "repeat it as it was" in told
    assert cli("submit", "support", "x", "--run", run).stdout == f"{run}\n"
    assert len(cli("runs", "--json").stdout.splitlines()) == 1
