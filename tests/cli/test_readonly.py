"""Verbs that only look, on a store that may only be read."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import disks
from tests.cli.conftest import Cli


@pytest.fixture
def world(cli: Cli, tmp_path: Path) -> Iterator[str]:
    """The URL of a store with a run of which nothing can be written any more."""
    with disks.small_disk(tmp_path / "disk", "8m") as disk:
        url = f"sqlite:{disk}/journal.db"
        assert cli("submit", "support", "x", "--run", "r", "--world", url).exit_code == 0
        assert cli("worker", "--until-idle", "--world", url).exit_code == 0
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        yield url


def test_whoever_only_looks_is_shown_it(cli: Cli, home: Path, world: str) -> None:
    looks = [
        (verb, *more, "r")
        for verb, *more in (
            ("show", "--values"), ("log",), ("docs",), ("files",), ("checkpoints",), ("verify",), ("replay",)
        )
    ]  # fmt: skip
    looks += [("runs",), ("stats",), ("workers",), ("diff", "r", "r"), ("export", "r", "-o", "r.jsonl")]
    for look in looks:
        seen = cli(*look, "--world", world)
        assert seen.exit_code == 0, (look, seen.output)
    copied = cli("copy", world, "sqlite:copy.db", app=None)
    assert (copied.exit_code, copied.stdout.split()[:2]) == (0, ["copied", "r"])
    assert sorted(file.name for file in Path(world.removeprefix("sqlite:")).parent.iterdir()) == [
        "journal.db", "journal.db-holders", "journal.db-main", "journal.db-next"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "verb", [("cancel", "r"), ("retry", "r"), ("submit", "support", "x"), ("worker", "--until-idle")]
)
def test_whoever_would_write_is_refused(cli: Cli, world: str, verb: tuple[str, ...]) -> None:
    refused = cli(*verb, "--world", world)
    assert (refused.exit_code, "writable for this user" in refused.stderr) == (6, True), refused.output


def test_whoever_would_move_from_it_is_refused(cli: Cli, home: Path, world: str) -> None:
    refused = cli("copy", world, "sqlite:moved.db", "--freeze", app=None)
    assert (refused.exit_code, "writable for this user" in refused.stderr) == (6, True), refused.output
    assert list(home.glob("moved.db*")) == []
