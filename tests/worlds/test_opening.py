"""Which world a URL opens, and how it is printed."""

import subprocess
import sys
from pathlib import Path

import pytest

from journal.core.clock import ManualClock
from journal.core.errors import WorldReadOnly, WorldUnknown
from journal.worlds import default_url, open_world, redact_url, resolve_url
from journal.worlds.memory import forget


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of its own, with the working directory two levels below its root."""
    (tmp_path / "pyproject.toml").touch()
    below = tmp_path / "src" / "app"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    monkeypatch.delenv("JOURNAL_WORLD", raising=False)
    return tmp_path


def test_the_default_is_a_file_of_the_project(project: Path) -> None:
    assert default_url() == f"sqlite:{project}/.journal/journal.db"
    assert resolve_url() == default_url()
    assert not (project / ".journal").exists(), "asking makes nothing"


def test_the_nearest_project_counts(project: Path) -> None:
    (project / "src" / ".git").mkdir()
    assert default_url() == f"sqlite:{project}/src/.journal/journal.db"


def test_the_environment_sets_the_default(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOURNAL_WORLD", "sqlite:data/x.db")
    assert default_url() == f"sqlite:{project}/src/app/data/x.db"
    monkeypatch.setenv("JOURNAL_WORLD", "memory:shared")
    assert resolve_url() == "memory:shared"


@pytest.mark.parametrize(
    ("url", "resolved"),
    [
        ("sqlite:x.db", "sqlite:{here}/x.db"),
        ("sqlite:./a/../x.db", "sqlite:{here}/x.db"),
        ("sqlite:/srv/x.db", "sqlite:/srv/x.db"),
        ("sqlite:///srv/x.db", "sqlite:/srv/x.db"),
        ("memory:", "memory:"),
        ("postgresql://host/db", "postgresql://host/db"),
    ],
)
def test_paths_are_made_absolute(project: Path, url: str, resolved: str) -> None:
    assert resolve_url(url) == resolved.format(here=project / "src" / "app")


@pytest.mark.parametrize("url", ["sqlite:", "sqlite://host/x.db", "sqlite://"])
def test_a_sqlite_url_names_a_file(url: str) -> None:
    with pytest.raises(WorldUnknown, match=r"sqlite:path/to/file\.db"):
        resolve_url(url)


@pytest.mark.parametrize(
    ("url", "printed"),
    [
        ("postgresql://user:secret@host:5432/db", "postgresql://host:5432/db"),
        ("postgresql://user:se/c@ret@host/db", "postgresql://host/db"),
        ("redis://:secret@host/0", "redis://host/0"),
        (
            "postgresql://host/db?password=secret&sslmode=require",
            "postgresql://host/db?password=***&sslmode=require",
        ),
        ("sqlite:/srv/a@b/x.db", "sqlite:/srv/a@b/x.db"),
        ("memory:name", "memory:name"),
    ],
)
def test_credentials_are_not_printed(url: str, printed: str) -> None:
    assert redact_url(url) == printed


@pytest.mark.anyio
async def test_the_default_world_is_invisible_to_git(project: Path) -> None:
    async with open_world() as world:
        assert world.url == f"sqlite:{project}/.journal/journal.db"
    assert (project / ".journal" / ".gitignore").read_text() == "*\n"
    assert (project / ".journal" / "journal.db").exists()


@pytest.mark.anyio
async def test_a_project_that_cannot_be_written(project: Path) -> None:
    (project / ".journal").touch()  # a file in the folder's place: refused for root, too
    with pytest.raises(WorldReadOnly, match=r"set \$JOURNAL_WORLD"):
        async with open_world():
            pass


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mongodb://user:secret@host/db", r"mongodb://host/db: nothing installed serves"),
        ("frobnicate:x", "nothing installed serves frobnicate: .*memory, .*sqlite.*install the package"),
        (
            "data/journal.db",
            "write sqlite:data/journal.db for a file, postgresql://… or redis://… for a server",
        ),
    ],
)
async def test_an_unknown_scheme_says_what_is_installed(url: str, says: str) -> None:
    with pytest.raises(WorldUnknown, match=says) as caught:
        async with open_world(url):
            pass
    assert "secret" not in str(caught.value)


@pytest.mark.anyio
async def test_options_reach_the_world() -> None:
    clock = ManualClock(time=5.0)
    async with open_world("memory:", namespace="tenant", clock=clock) as world:
        assert (world.namespace, world.url) == ("tenant", "memory:")
        assert "log.persistent" not in world.capabilities
        assert "multi_process" not in world.capabilities
    forget("never-opened")


@pytest.mark.anyio
async def test_a_scheme_of_ours_is_served_by_us_without_a_look_at_what_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That look reads the facts of every package there is: 50 ms, each time a journal was opened."""

    def looks(**_: object) -> object:
        raise AssertionError("it looked")

    monkeypatch.setattr("importlib.metadata.entry_points", looks)
    async with open_world("memory:") as world:
        assert world.url == "memory:"


def test_importing_worlds_loads_no_store() -> None:
    code = (
        "import sys, journal.worlds; "
        "print([m for m in ('sqlite3', 'journal.worlds.sqlite', 'journal.worlds.memory') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
