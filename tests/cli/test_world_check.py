"""`journal world check`: any store, by its URL, without touching what is in it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

ROOT = Path(__file__).parent.parent.parent

BENT = """
from contextlib import asynccontextmanager

from journal.core.clock import SystemClock
from journal.worlds.memory_store import Store
from tests.contract.broken import ClaimBeforeIdempotency

store = Store()


@asynccontextmanager
async def open_bent(url, *, namespace="default", clock=None):
    yield ClaimBeforeIdempotency(store, url=url, namespace=namespace, clock=clock or SystemClock())
"""
"""A world of somebody else, with the claim checked before the batch id."""


def test_a_store_in_use_is_checked_and_left_as_it_was(cli: Cli, home: Path) -> None:
    cli("submit", "support", "x", "--run", "mine")
    before = json.loads(cli("runs", "--json").stdout)
    done = cli("world", "check", "sqlite:journal.db", "--only", "batch", "--json")
    assert done.exit_code == 0, done.output
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) > 5
    assert {result["status"] for result in results} == {"passed"}
    assert all(result["promise"] for result in results)
    assert json.loads(cli("runs", "--json").stdout) == before


def test_the_store_is_the_one_of_the_settings_where_none_is_named(cli: Cli) -> None:
    done = cli("world", "check", "--world", "memory:", "--only", "what_it_says")
    assert done.exit_code == 0
    assert "memory:check: 1 passed, 0 failed, 0 skipped" in done.stderr


def test_a_copy_that_was_never_complete_is_cleared_too(cli: Cli) -> None:
    done = cli("world", "check", "--world", "memory:", "--only", "a_copy_has_no_gap")
    assert "1 passed, 0 failed, 0 skipped" in done.stderr


def test_no_case_is_a_usage_error(cli: Cli) -> None:
    assert cli("world", "check", "memory:", "--only", "nothing like it").exit_code == 2


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment in which a package is installed that serves `bent:`."""
    (tmp_path / "bent.py").write_text(BENT)
    facts = tmp_path / "bent-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: bent\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[journal.worlds]\nbent = bent:open_bent\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}


def test_a_broken_store_of_somebody_else_is_told_what_it_breaks(installed: dict[str, str]) -> None:
    command = [sys.executable, "-m", "journal.cli", "world", "check", "bent:x"]
    done = subprocess.run(command, env=installed, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    broken = [line for line in done.stdout.splitlines() if line.startswith("failed")]
    assert broken, "it names the case"
    assert "promised: " in done.stdout
    assert "found: " in done.stdout
    assert f"{len(broken)} failed" in done.stderr
