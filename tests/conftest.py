"""What all tests share."""

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from journal.testing import cluster, servers
from tests.containers import Containers, check_engine, postgres_images, redis_images
from tests.stores import KINDS, Store, start_store

ROOT = Path(__file__).parent.parent

# An example opens real stores, so its time says nothing; the database keeps what failed before.
settings.register_profile(
    "default", max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("soak", settings.get_profile("default"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

pytest.register_assert_rewrite("journal.worlds.contract")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--containers",
        action="store_true",
        help="Postgres, Redis and Valkey from container images instead of from wheels (see tests/containers.py)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Better no test than hundreds that fail for want of an engine."""
    if config.getoption("containers"):
        check_engine()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """With `--containers`, what needs a server runs on each image."""
    if metafunc.config.getoption("containers"):
        for name, images in (("postgres_server", postgres_images()), ("redis_server", redis_images())):
            if name in metafunc.fixturenames and f"JOURNAL_TEST_{name[:-7].upper()}_URL" not in os.environ:
                metafunc.parametrize(name, images, indirect=True, scope="session")


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """The command line says where log lines go; who ran it in this process must not say so for the tests behind."""
    yield
    if "structlog" in sys.modules:
        sys.modules["structlog"].reset_defaults()


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sdist, and the wheel that was built from it."""
    out = tmp_path_factory.mktemp("dist")
    # The build must not pick up, nor leave, anything in the checkout: it works on an exported copy.
    source = tmp_path_factory.mktemp("source")
    files = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    for name in filter(None, files):
        origin, copy = ROOT / name, source / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if origin.is_symlink():
            copy.symlink_to(origin.readlink())
        elif origin.is_file():
            copy.write_bytes(origin.read_bytes())
    command = [sys.executable, "-m", "build", "--outdir", str(out), str(source)]
    if int(version("setuptools").partition(".")[0]) >= 77:
        command.insert(3, "--no-isolation")
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return out


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    return next(dist.glob("*.whl"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """`-n auto` is more than there are cores: half of the time a test waits, for a disk, a lease, another process."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None  # xdist's own answer
    return len(os.sched_getaffinity(0)) + 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each test goes to whoever is free, but one worker plays a suite of an adapter: it imports a harness for it."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # no hints there

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # the same
        def _split_scope(self, nodeid: str) -> str:
            name = nodeid.partition("[")[0]
            return name.rpartition("::")[0] if "_suite.py::Test" in name else nodeid

    return Scheduling(config, log)


@pytest.fixture
def anyio_backend() -> str:
    """Tests marked `anyio` run on asyncio, the loop that the engine is made for."""
    return "asyncio"


@pytest.fixture(scope="session")
def postgres_programs() -> Path:
    """Where Postgres's programs are: `$JOURNAL_TEST_POSTGRES_PROGRAMS`, or the wheel's."""
    given = os.environ.get("JOURNAL_TEST_POSTGRES_PROGRAMS")
    return Path(given) if given else servers.postgres_programs()


@pytest.fixture(scope="session")
def containers() -> Iterator[Containers]:
    """With `--containers`: where servers come from."""
    found = Containers()
    yield found
    found.close()


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest, postgres_programs: Path) -> Iterator[str]:
    """URL of a Postgres: `$JOURNAL_TEST_POSTGRES_URL`, or one of our own, as long as this process lives."""
    if given := os.environ.get("JOURNAL_TEST_POSTGRES_URL"):
        yield given
        return
    if request.config.getoption("containers"):
        image = getattr(request, "param", postgres_images()[-1])
        yield request.getfixturevalue("containers").postgres(image)
        return
    with servers.start_postgres(binaries=postgres_programs, settings=["max_connections=200"]) as server:
        yield servers.postgres_url(server)


@pytest.fixture(scope="session")
def redis_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """URL of a Redis or Valkey: `$JOURNAL_TEST_REDIS_URL`, or one of our own, as long as this process lives."""
    if given := os.environ.get("JOURNAL_TEST_REDIS_URL"):
        yield given
        return
    if request.config.getoption("containers"):
        image = getattr(request, "param", redis_images()[-1])
        yield request.getfixturevalue("containers").redis(image)
        return
    with servers.start_valkey() as server:
        yield servers.redis_url(server)


@pytest.fixture(scope="session")
def cluster_server() -> Iterator[str]:
    """URL of a cluster: `$JOURNAL_TEST_CLUSTER_URL`, or one of our own with three nodes, for this process."""
    if given := os.environ.get("JOURNAL_TEST_CLUSTER_URL"):
        yield given
        return
    with cluster.start_cluster() as nodes:
        yield nodes.url


@pytest.fixture(params=KINDS)
def own_store(request: pytest.FixtureRequest, postgres_programs: Path) -> Iterator[Store]:
    """A store on servers that the test may kill, of each kind."""
    with start_store(request.param, postgres_programs) as store:
        yield store


def pytest_collection_finish() -> None:
    """What is here by now stays: full collections, of which hypothesis makes one an example, pass over it."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Soak tests run when they are asked for, by `-m` or by name."""
    if config.getoption("markexpr") or any("::" in arg for arg in config.args):
        return
    soak = [item for item in items if item.get_closest_marker("soak")]
    if soak:
        config.hook.pytest_deselected(items=soak)
        items[:] = [item for item in items if item not in soak]
