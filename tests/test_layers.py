"""Arrows run down only: the contract in pyproject.toml holds, and would notice if it did not."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LINT = "import sys; from importlinter.cli import lint_imports_command as lint; sys.exit(lint())"


def lint(where: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LINT, "--no-cache", "--no-logo"]
    # An editable install would win over the directory: isolated from the environment, the directory comes first.
    return subprocess.run(command, cwd=where, env={"PYTHONPATH": str(where)}, capture_output=True, text=True)


def test_the_floors_hold() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("core", "import journal.worlds"),
        ("worlds", "import journal.engine"),
        ("replay", "import journal.worlds"),
    ],
)
def test_an_arrow_that_runs_up_is_noticed(tmp_path: Path, module: str, line: str) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    for floor in settings["contracts"][0]["layers"]:
        for name in floor.split(" | "):
            package = tmp_path.joinpath(*name.split("."))
            package.mkdir(parents=True)
            (package / "__init__.py").write_text("")
    (tmp_path / "journal" / "__init__.py").write_text("")
    (tmp_path / "pyproject.toml").write_text(
        (ROOT / "pyproject.toml").read_text()  # the contract itself, on a house of empty rooms
    )
    assert lint(tmp_path).returncode == 0
    (tmp_path / "journal" / module / "__init__.py").write_text(f"{line}\n")
    done = lint(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"journal.{module}" in done.stdout
