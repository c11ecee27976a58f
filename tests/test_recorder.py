"""The flight recorder, whole: the demo's run goes as one file to a machine with the base package alone, is replayed
there under a debugger, forked at a call, and compared with its fork.

That machine is an environment that holds the built wheel, what the wheel says it depends on, and nothing else.
"""

import json
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from journal.demo.model_server import ModelServer
from journal.demo.refund_service import URL_VARIABLE, RefundService

APP = "journal.demo.durable"
HERE = "sqlite:here.db"


class Machine:
    """The command line of an environment, in one directory."""

    def __init__(self, python: Path, where: Path) -> None:
        self._python = python
        self.where = where

    def python(
        self, *args: str, stdin: str = "", variables: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        environment = {"HOME": str(self.where), "PATH": "", **(variables or {})}
        return subprocess.run(
            [str(self._python), *args],
            cwd=self.where, env=environment, input=stdin, capture_output=True, text=True, timeout=240,
        )  # fmt: skip

    def __call__(
        self, *args: str, exit_code: int = 0, stdin: str = "", variables: dict[str, str] | None = None
    ) -> str:
        done = self.python("-m", "journal.cli", *args, stdin=stdin, variables=variables)
        assert done.returncode == exit_code, done.stdout + done.stderr
        return done.stdout


def needed(wheel: Path) -> set[str]:
    """Names of all that the wheel depends on without an extra, and that these depend on."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().split("\n\n")[0].splitlines()
    ahead = [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]
    found: set[str] = set()
    while ahead:
        requirement = Requirement(ahead.pop())
        is_wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if is_wanted and requirement.name not in found:
            found.add(requirement.name)
            ahead += distribution(requirement.name).requires or []
    return found


@pytest.fixture(scope="session")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the base package; what that depends on is linked from ours."""
    home = tmp_path_factory.mktemp("base")
    venv.create(home, symlinks=True)
    site = home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    for name in needed(wheel):
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or []} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(found.locate_file(top))).resolve())
    return home / "bin" / "python"


@pytest.fixture(scope="session")
def exported(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of `journal demo`, as a file; the store that it was played in is another machine's."""
    there = Machine(python, tmp_path_factory.mktemp("there"))
    told = json.loads(there("demo", "--json", "--world", "sqlite:there.db"))
    assert (told["attempts"], told["model_calls_paid"], told["never_tool_runs"]) == (3, 6, 1)
    run = json.loads(there("runs", "--json", "--world", "sqlite:there.db"))["run"]
    there("export", run, "-o", "demo.jsonl", "--world", "sqlite:there.db")
    return there.where / "demo.jsonl"


@pytest.fixture
def machine(python: Path, exported: Path, tmp_path: Path) -> Machine:
    (tmp_path / "demo.jsonl").write_bytes(exported.read_bytes())
    return Machine(python, tmp_path)


def test_nothing_but_the_base_package_is_there(machine: Machine) -> None:
    for extra in ("agents", "openai", "anthropic", "psycopg", "redis", "httpx", "pydantic", "pytest"):
        done = machine.python("-c", f"import {extra}")
        assert f"No module named '{extra}'" in done.stderr
    done = machine.python("-c", "import journal; print(journal.__file__)")
    assert done.stdout.startswith(str(machine.python("-c", "import sys; print(sys.prefix)").stdout.strip()))


def test_the_demo_is_replayed_under_a_debugger_to_call_4(machine: Machine) -> None:
    script = ["p arguments", "n", "p result.status", "p result.text", "c"]
    told = machine(
        "replay", "demo.jsonl", "--app", APP, "--pdb-at", "4", stdin="".join(f"{line}\n" for line in script)
    )
    before, *answers = told.split("(Pdb) ")
    # The refund, in the worker that was killed there; whoever took over did not repeat it.
    assert "   4  tool   refund#1: unknown" in before
    assert "await turn.tool(TOOLS[name], **arguments)" in before
    assert "   5  " not in before
    arguments, stepped, status, text, rest = answers
    assert arguments == "{'order_id': '42', 'amount': 30}\n"
    assert '-> messages.append({"role": "tool"' in stepped
    assert status == "'unknown'\n"
    assert "may have completed. It was not repeated" in text
    assert rest.splitlines()[-1] == "ended as recorded: succeeded"
    assert list(machine.where.iterdir()) == [machine.where / "demo.jsonl"], "and nothing was written"


def test_the_fork_of_a_file_is_carried_out_and_compared_with_it(machine: Machine) -> None:
    fork = machine("fork", "demo.jsonl", "--at", "4", "--world", HERE).strip()
    assert fork.startswith("order-42-")
    assert fork.endswith("@4")
    told = machine("diff", "demo.jsonl", fork, "--world", HERE, exit_code=1)
    assert told.splitlines() == [
        "3 calls alike, then they part", "turn start, refund#1: call",
        "  demo.jsonl call 4: tool refund#1 (refund)", f"  {fork}: nothing",
    ]  # fmt: skip
    with ModelServer() as model, RefundService() as shop:
        variables = {**model.environment(), URL_VARIABLE: shop.url}
        machine("worker", APP, "--until-idle", "--world", HERE, variables=variables)
        # By hand: three requests up to the refund are two that were taken over; then after it, and after the note.
        assert (model.model_calls, shop.refunds) == (2, 1)
    told = machine("diff", "demo.jsonl", fork, "--world", HERE, exit_code=1)
    assert told.splitlines()[:2] == ["3 calls alike, then they part", "turn start, refund#1: outcome"]
    assert "unknown" in told.splitlines()[2]
    assert 'ok "{\\"order_id\\": \\"42\\", \\"refunded\\": 30' in told.splitlines()[3]
    assert "Order 42: 30 refunded." in machine("show", fork, "--values", "--world", HERE)
    assert "whole" in machine("verify", fork, "--world", HERE)


def test_the_fork_of_an_imported_run_is_the_fork_of_its_file(machine: Machine) -> None:
    assert machine("import", "demo.jsonl", "--world", HERE).startswith("imported")
    run = json.loads(machine("runs", "--json", "--world", HERE))["run"]
    assert machine("fork", run, "--at", "4", "--world", HERE) == f"{run}@4\n"
    again = json.loads(machine("fork", "demo.jsonl", "--at", "4", "--world", HERE, "--json"))
    assert (again["run"], again["is_new"]) == (f"{run}@4", False)
    machine("fork", "demo.jsonl", "--at", "4", "--as", "other", "--world", HERE)
    assert machine("diff", f"{run}@4", "other", "--world", HERE) == "alike: 3 calls\n"
    assert machine("diff", "demo.jsonl", run, "--world", HERE) == "alike: 9 calls\n"
