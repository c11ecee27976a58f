"""FAULTS 14: two workers on two hosts, one of which loses the store for longer than its lease.

The other takes over; once the network is whole again the first is refused, what it did is kept as evidence, and it
works on. Opt-in by nature: without root there are no network namespaces, and the tests are skipped.
"""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import redis

from journal.core.codec import open_record
from journal.core.records import CallEvidence, TurnStarted
from journal.testing import servers
from journal.testing.cluster import start_cluster
from tests.crash.hosts import Network, missing, start_network
from tests.crash.stage import Stage
from tests.crash.test_holders import living, until

REASON = missing()
pytestmark = [pytest.mark.anyio, pytest.mark.skipif(REASON is not None, reason=str(REASON))]

LEASE_SECONDS = 3.0
OTHERS = 12


@contextmanager
def start_store(kind: str, address: str, postgres_programs: Path) -> Iterator[str]:
    """A store that is reached under that address; its URL."""
    open_to_all = ["bind", "0.0.0.0", "protected-mode", "no"]
    with ExitStack() as stack:
        match kind:
            case "postgres":
                settings = ["listen_addresses=*"]
                server = stack.enter_context(
                    servers.start_postgres(binaries=postgres_programs, settings=settings)
                )
                with open(server.directory / "data" / "pg_hba.conf", "a") as rules:
                    rules.write(f"host all all {address}/24 trust\n")
                server.restart()
                yield f"postgresql://postgres@{address}:{server.port}/postgres"
            case "redis":
                server = stack.enter_context(servers.start_valkey(settings=open_to_all))
                yield f"redis://{address}:{server.port}/0"
            case _:
                cluster = stack.enter_context(start_cluster(settings=open_to_all))
                for node in cluster.primaries:
                    with redis.Redis(port=node.port) as client:
                        client.config_set("cluster-announce-ip", address)
                cluster.wait_until_ready()
                yield f"redis+cluster://{address}:{cluster.primaries[0].port}"


@pytest.fixture(params=["postgres", "redis", "cluster"])
def network(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_programs: Path
) -> Iterator[tuple[Network, Stage]]:
    with start_network(2) as network, start_store(request.param, network.address, postgres_programs) as url:
        yield network, Stage(tmp_path, url, lease=LEASE_SECONDS)


async def test_cut_off_within_a_never_call(network: tuple[Network, Stage]) -> None:
    """Its effect took place, and its outcome finds nobody until another has settled the call."""
    (one, two), stage = network[0].hosts, network[1]
    assert stage.run("submit", "1") == 0
    with ExitStack() as stack:
        first = stack.enter_context(
            living(stage.start("finish", freeze="refund:nap", freeze_seconds=0.5, prefix=one.prefix))
        )
        await until(stage, "frozen")
        one.cut()
        await until(stage, "thawed")
        second = stack.enter_context(living(stage.start("finish", prefix=two.prefix)))
        await until(stage, "note o0")
        assert second.wait(60) == 0
        assert stage.run("submit", str(1 + OTHERS)) == 0
        one.heal()
        # It goes on with the rest, after it was told that the run is not its own any more.
        assert first.wait(120) == 0
    assert stage.effects()["refund o0"] == 1
    assert (await stage.outcomes("r0"))["refund#1"] == "unknown"
    log = await stage.log("r0")
    epochs = [record.epoch for record in log if record.epoch]
    assert epochs == sorted(epochs), "the first appended under its claim after it had lost it"
    assert [b.taken_over for r in log if isinstance(b := open_record(r), TurnStarted)] == [False, True]
    late = [(r.key, b.epoch, b.outcome.status) for r in log if isinstance(b := open_record(r), CallEvidence)]
    assert late == [("refund#1", 1, "ok")]
    for n in range(1 + OTHERS):
        assert (await stage.finished(f"r{n}")).status == "succeeded"
        assert stage.effects()[f"refund o{n}"] == 1


async def test_cut_off_it_hears_in_time_that_its_claim_is_gone(network: tuple[Network, Stage]) -> None:
    """Nobody tells it; by its own clock its lease is over, and what it had under way is stopped."""
    (one, two), stage = network[0].hosts, network[1]
    assert stage.run("submit", "1") == 0
    with ExitStack() as stack:
        first = stack.enter_context(living(stage.start("work", freeze="ask:hang", prefix=one.prefix)))
        await until(stage, "frozen")
        one.cut()
        second = stack.enter_context(living(stage.start("finish", prefix=two.prefix)))
        await until(stage, "stopped", within=LEASE_SECONDS + 4)
        assert second.wait(60) == 0
        one.heal()
        assert first.wait(120) == 0
    times = stage.effects()
    assert [times[effect] for effect in ("stopped", "ask o0", "look o0", "refund o0", "note o0")] == [1] * 5
    assert (await stage.finished("r0")).status == "succeeded"


def test_nothing_is_left_behind() -> None:
    with start_network(2) as network:
        cables = [host.cable for host in network.hosts]
        assert all(cable in _links() for cable in cables)
    assert not any(cable in _links() for cable in cables)


def _links() -> str:
    return subprocess.run(["ip", "link"], check=True, capture_output=True, text=True).stdout
