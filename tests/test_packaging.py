"""What is built is whole: the three linked folders, SQL, types and licence are in wheel and sdist.

A checkout without the links would build an empty package without failing; hence this test.
"""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LINKED = ("worlds", "replay", "tools")


@pytest.fixture(scope="session")
def wheel_names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="session")
def sdist_names(dist: Path) -> set[str]:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def sources() -> set[str]:
    """Every module and data file of the package, as it is called once installed."""
    found = set()
    for folder, prefix in (("journal", "journal"), *((name, f"journal/{name}") for name in LINKED)):
        for suffix in ("*.py", "*.sql", "py.typed"):
            for path in (ROOT / folder).rglob(suffix):
                found.add(f"{prefix}/{path.relative_to(ROOT / folder).as_posix()}")
    return found


def test_the_links_are_there() -> None:
    for name in LINKED:
        assert (ROOT / "journal" / name).readlink() == Path("..", name)


def test_the_wheel_holds_every_module_and_data_file(wheel_names: set[str]) -> None:
    assert sources() - wheel_names == set()
    assert "journal/py.typed" in wheel_names
    assert any(name.endswith(".sql") for name in wheel_names)
    assert any(name.endswith("/LICENSE") for name in wheel_names)


def test_the_wheel_claims_no_name_but_journal(wheel_names: set[str]) -> None:
    tops = {name.partition("/")[0] for name in wheel_names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"journal"}


def test_the_sdist_holds_them_too(sdist_names: set[str]) -> None:
    assert sources() - sdist_names == set()
    assert {"LICENSE", "README.md", "pyproject.toml"} <= sdist_names


def test_the_wheel_works_where_it_is_installed(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    script = (
        "import journal, journal.worlds, journal.replay, journal.tools, asyncio\n"
        f"assert journal.__file__.startswith({str(target)!r}), journal.__file__\n"
        f"assert journal.worlds.__file__.startswith({str(target)!r}), journal.worlds.__file__\n"
        "async def main():\n"
        f"    async with journal.worlds.open_world('sqlite:{tmp_path}/a.db') as world:\n"
        "        assert await world.run('none') is None\n"
        "asyncio.run(main())\n"
    )
    environment = {"PYTHONPATH": str(target), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
