"""`journal export`, `import` and `verify`, and an exported run in place of a run id, without any store."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import Result

from journal.cli import exits
from tests.cli.conftest import Cli, objects

ROOT = Path(__file__).parent.parent.parent
WITHOUT_EXTRAS = """
import sys

class Absent:
    NAMES = {"agents", "openai", "psycopg", "psycopg_pool", "redis", "hiredis", "pydantic", "mcp", "sqlite3"}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.NAMES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from journal.cli import main
main()
"""


@pytest.fixture
def file(cli: Cli, home: Path) -> Path:
    """An exported run, with a value in a blob; no store beside it."""
    away = home / "away"
    away.mkdir()
    cli("submit", "support", "x" * 70_000, "--run", "r")
    assert cli("worker", "--until-idle").exit_code == 0
    assert cli("export", "r", "-o", "away/r.jsonl").exit_code == 0
    return away / "r.jsonl"


def without_extras(where: Path, *args: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JOURNAL_")} | {
        "PYTHONPATH": str(ROOT)
    }
    command = [sys.executable, "-c", WITHOUT_EXTRAS, *args]
    return subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True)


# In place of a run id ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [("show",), ("show", "--values"), ("show", "--upto", "3"), ("log",), ("log", "--values", "--json"),
     ("log", "--after", "4"), ("verify",), ("verify", "--json")],
)  # fmt: skip
def test_a_file_is_read_as_its_run_without_extras_and_without_a_store(
    cli: Cli, file: Path, args: tuple[str, ...]
) -> None:
    verb, *options = args
    of_run = cli(verb, "r", *options)
    of_file = without_extras(file.parent, verb, "r.jsonl", *options)
    assert (of_file.returncode, of_run.exit_code) == (0, 0), of_file.stderr
    assert of_file.stdout == of_run.stdout
    assert [path.name for path in file.parent.iterdir()] == ["r.jsonl"], "no store was made"


def test_show_says_how_it_stood(cli: Cli, file: Path) -> None:
    shown = cli("show", str(file), "--json", app=None)
    (of_file,), (of_run,) = objects(shown), objects(cli("show", "r", "--json"))
    assert of_file["state"] == of_run["state"]
    assert of_file["info"] | {"position": 0} == of_run["info"] | {"position": 0}
    assert cli("show", str(file), "--exit-status", app=None).exit_code == 0
    assert "journal import" in cli("show", str(file), app=None).stderr


def test_it_says_how_a_run_stood_that_was_not_done(cli: Cli) -> None:
    cli("submit", "support", "fail", "--run", "failed")
    cli("worker", "--until-idle")
    cli("submit", "support", "x", "--run", "waits")
    for run, status, code in (("failed", "failed", 1), ("waits", "pending", 0)):
        cli("export", run, "-o", f"{run}.jsonl")
        shown = cli("show", f"{run}.jsonl", "--exit-status", "--json", app=None)
        assert (objects(shown)[0]["info"]["status"], shown.exit_code) == (status, code)


def test_nothing_comes_to_a_file(cli: Cli, file: Path) -> None:
    followed = cli("log", str(file), "--follow", app=None)
    assert (followed.exit_code, "leave --follow out" in followed.stderr) == (exits.USAGE, True)


def test_a_file_that_has_the_name_of_a_run_does_not_get_in_the_way(cli: Cli, file: Path, home: Path) -> None:
    (home / "r").write_text("what the run printed")
    assert "run r · agent support" in cli("show", "r").stdout
    named = cli("show", "./r")
    assert (named.exit_code, "./r: it is no exported run" in named.stderr) == (exits.WORLD, True)
    (home / "r").write_bytes(file.read_bytes())
    assert "exported, as it stood then" in cli("show", "r", app=None).stderr


@pytest.mark.parametrize("name", ["./none.jsonl", "/none.jsonl", "../none"])
def test_a_path_that_is_not_there(cli: Cli, name: str) -> None:
    for verb in ("show", "log", "verify", "import"):
        result = cli(verb, name, app=None)
        assert (result.exit_code, f"{name}: it cannot be read" in result.stderr) == (exits.WORLD, True)


@pytest.mark.parametrize("verb", ["show", "log", "verify", "import"])
def test_a_damaged_file_is_refused_by_line(cli: Cli, file: Path, verb: str) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:3], lines[3].replace(b'"seq":3', b'"seq":4'), *lines[4:]]))
    result = cli("--world", "sqlite:none.db", verb, str(file), "--json", app=None)
    assert result.exit_code == exits.WORLD
    assert f"error: {file}, line 4: its crc does not match" in result.stderr
    assert objects(result)[-1]["error"]["type"] == "BundleDamaged"
    assert not Path("none.db").exists(), "and nothing was made for it"


# Exporting -----------------------------------------------------------------------------------------------


def test_an_export_goes_to_stdout_or_to_a_file(cli: Cli, file: Path) -> None:
    printed = cli("export", "r")
    assert printed.stdout_bytes == file.read_bytes()
    done = cli("export", "r", "-o", "again.jsonl", "--json")
    header = json.loads(file.read_bytes().splitlines()[0])
    records, blobs = header["image"]["head"], len(header["image"]["blobs"])
    assert objects(done) == [
        {"run": "r", "records": records, "blobs": blobs, "digest": header["digest"], "file": "again.jsonl"}
    ]
    assert blobs >= 2


def test_what_is_not_there_is_not_exported(cli: Cli, home: Path) -> None:
    cli("submit", "support", "x", "--run", "r")
    for args, code in ((("none",), exits.NOT_FOUND), (("r", "-o", "no/where.jsonl"), exits.WORLD)):
        assert cli("export", *args).exit_code == code
    assert cli("--world", "sqlite:none.db", "export", "r", app=None).exit_code == exits.WORLD


@pytest.mark.parametrize("verb", ["export", "show"])
def test_a_full_disk_behind_stdout_is_the_operators(file: Path, verb: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "journal.cli", "--world", "sqlite:journal.db", verb, "r"],
            stdout=full, stderr=subprocess.PIPE, text=True,
            env=dict(os.environ) | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    assert (done.returncode, done.stderr.startswith("error: what was to be written does not fit")) == (
        6,
        True,
    )


def test_an_export_replaces_nothing_but_a_file(cli: Cli, file: Path, home: Path) -> None:
    os.mkfifo(home / "pipe")
    (home / "link").symlink_to("pipe")
    for name in ("pipe", "link", "away"):
        refused = cli("export", "r", "-o", name)
        assert (refused.exit_code, f"{name}: it is a device, a pipe or a directory" in refused.stderr) == (
            6,
            True,
        )
    assert (home / "pipe").is_fifo()


def test_whoever_has_seen_enough_of_an_export_is_no_failure(file: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "journal.cli", "--world", "sqlite:journal.db", "export", "r"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ) | {"PYTHONPATH": str(ROOT)},
    ) as done:  # fmt: skip
        assert done.stdout is not None
        assert done.stderr is not None
        assert done.stdout.read(10) == b'{"journal"'
        done.stdout.close()
        assert done.stderr.read() == b""
    assert done.returncode == 0


# Forking -------------------------------------------------------------------------------------------------


def test_a_file_is_forked_into_a_store(cli: Cli, file: Path) -> None:
    def into(*args: str) -> Result:
        return cli("--world", "sqlite:other.db", *args, app=None)

    made = into("fork", str(file), "--at", "2")
    assert (made.exit_code, made.stdout) == (0, "r@2\n"), made.output
    assert cli("--world", "sqlite:other.db", "worker", "--until-idle").exit_code == 0
    alike = into("diff", str(file), "r@2")
    assert (alike.exit_code, alike.stdout) == (0, "alike: 3 calls\n")
    assert into("verify", "r@2").exit_code == 0
    assert into("show", "r").exit_code == exits.NOT_FOUND, "the run itself does not come along"
    again = into("fork", str(file), "--at", "2", "--json")
    assert objects(again)[0]["is_new"] is False
    of_fork = into("fork", "r@2", "--at", "3")
    assert (of_fork.exit_code, of_fork.stdout) == (0, "r@2@3\n")


def test_a_fork_of_another_run_of_that_id_is_not_taken_for_it(cli: Cli, file: Path) -> None:
    cli("--world", "sqlite:other.db", "submit", "support", "another", "--run", "r")
    cli("--world", "sqlite:other.db", "worker", "--until-idle")
    assert cli("--world", "sqlite:other.db", "fork", "r", "--at", "2").exit_code == 0
    refused = cli("--world", "sqlite:other.db", "fork", str(file), "--at", "2", app=None)
    assert (refused.exit_code, "forked from another run" in refused.stderr) == (exits.USAGE, True), (
        refused.output
    )
    named = cli("--world", "sqlite:other.db", "fork", str(file), "--at", "2", "--as", "mine", app=None)
    assert (named.exit_code, named.stdout) == (0, "mine\n")


def test_a_fork_of_a_file_says_what_is_wrong_before_it_writes(cli: Cli, file: Path) -> None:
    for args, code, says in (
        (("--namespace", "eu", "fork", str(file), "--at", "2"), exits.USAGE, "give --namespace default"),
        (("fork", "./none.jsonl", "--at", "2"), exits.WORLD, "cannot be read"),
        (("fork", str(file), "--at", "9"), exits.USAGE, "has no call 9; it has 3"),
    ):
        refused = cli("--world", "sqlite:other.db", *args, app=None)
        assert (refused.exit_code, says in refused.stderr) == (code, True), refused.output


# Importing -----------------------------------------------------------------------------------------------


def test_a_run_comes_from_a_file(cli: Cli, file: Path) -> None:
    def into(*args: str) -> Result:
        return cli("--world", "sqlite:other.db", *args, app=None)

    done = into("import", str(file))
    assert (done.exit_code, done.stdout.split()[:2]) == (0, ["imported", "r"])
    again = into("import", str(file), "--json")
    assert (again.exit_code, objects(again)[0]["result"]) == (0, "present")
    assert into("show", "r").stdout == cli("show", "r").stdout
    assert into("verify", "r").stdout == cli("verify", "r").stdout == cli("verify", str(file)).stdout
    refused = cli("--namespace", "eu", "--world", "sqlite:other.db", "import", str(file), app=None)
    assert (refused.exit_code, "give --namespace default" in refused.stderr) == (exits.USAGE, True)


def test_what_is_unfinished_is_held_back(cli: Cli, home: Path) -> None:
    cli("submit", "support", "x", "--run", "waits")
    cli("export", "waits", "-o", "waits.jsonl")
    done = cli("--world", "sqlite:other.db", "import", "waits.jsonl", app=None)
    assert (done.exit_code, "journal retry --world sqlite:other.db waits" in done.stderr) == (0, True)
    assert "held back" in cli("--world", "sqlite:other.db", "runs", app=None).stdout
    assert cli("--world", "sqlite:other.db", "retry", "waits", app=None).exit_code == 0
    assert cli("--world", "sqlite:other.db", "worker", "--until-idle").exit_code == 0
    assert "succeeded" in cli("--world", "sqlite:other.db", "show", "waits", app=None).stdout


def test_another_run_of_that_id_is_refused(cli: Cli, file: Path) -> None:
    cli("--world", "sqlite:other.db", "submit", "support", "x" * 70_000, "--run", "r")
    refused = cli("--world", "sqlite:other.db", "import", str(file), app=None)
    assert (refused.exit_code, "differs there" in refused.stderr) == (exits.USAGE, True)


# Verifying -----------------------------------------------------------------------------------------------


def test_what_is_wrong_in_a_store_is_told_by_record(cli: Cli, file: Path) -> None:
    whole = cli("verify", "r")
    assert (whole.exit_code, "· whole · digest " in whole.stdout) == (0, True)
    with closing(sqlite3.connect("journal.db")) as db:
        table = next(
            name
            for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if "record" in name
        )
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {name}")
        db.execute(f"UPDATE {table} SET body = zeroblob(9) WHERE seq = 4")
        db.execute(f"UPDATE {table} SET epoch = 0 WHERE seq = 6")
        db.execute(f"UPDATE {table} SET epoch = 9 WHERE seq = 7")
        db.commit()
    found = cli("verify", "r")
    assert found.exit_code == exits.WORLD
    lines = found.stdout.splitlines()
    assert lines[0].startswith("record 4 of run r: ")
    assert any(
        line.startswith("record 8 of run r: its holder had lost the claim: epoch 1 after 9") for line in lines
    )
    assert "problems · digest" in lines[-1]
    assert "restore the store from a backup" in found.stderr
    (told,) = objects(cli("verify", "r", "--json"))
    assert told["problems"][0]["seq"] == 4
