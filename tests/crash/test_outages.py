"""Workers in processes of their own, while their store is killed and restarted, or their connections are cut."""

import random
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.crash.conftest import LEASE_SECONDS
from tests.crash.stage import Process, Stage
from tests.crash.test_holders import living, until
from tests.crash.test_random import all_done
from tests.stores import Store

pytestmark = pytest.mark.anyio

TURNS = 150


@pytest.fixture
def outage(own_store: Store, tmp_path: Path) -> tuple[Store, Stage]:
    return own_store, Stage(tmp_path, own_store.url, lease=LEASE_SECONDS)


def work_on(stage: Stage, stack: ExitStack) -> list[Process]:
    return [stack.enter_context(living(stage.start("finish", slots=3))) for _ in range(2)]


async def test_the_store_is_killed_and_restarted_under_workers(outage: tuple[Store, Stage]) -> None:
    """FAULTS 11."""
    store, stage = outage
    assert stage.run("submit", str(TURNS)) == 0
    with ExitStack() as stack:
        workers = work_on(stage, stack)
        for number in range(3):
            wait_for(stage, TURNS * (number + 1) // 5)
            store.restart(store.servers[number % len(store.servers)])
        assert [worker.wait(120) for worker in workers] == [0, 0]
    await all_done(stage, TURNS)


async def test_connections_are_cut_under_workers(outage: tuple[Store, Stage]) -> None:
    """FAULTS 11."""
    store, stage = outage
    rng = random.Random(7)
    assert stage.run("submit", str(TURNS)) == 0
    with ExitStack() as stack:
        workers = work_on(stage, stack)
        await until(stage, "opened", 2)
        deadline = time.monotonic() + 6
        while time.monotonic() < deadline and any(worker.poll() is None for worker in workers):
            proxy = rng.choice(store.proxies)
            rng.choice((proxy.cut, lambda: proxy.cut_after(down=rng.randrange(200)), proxy.drop))()  # noqa: B023
            time.sleep(rng.uniform(0.05, 0.2))
            store.heal()
        assert [worker.wait(120) for worker in workers] == [0, 0]
    await all_done(stage, TURNS)


def wait_for(stage: Stage, notes: int) -> None:
    """Until so many turns have come to their last step."""
    deadline = time.monotonic() + 60
    while sum(times for effect, times in stage.effects().items() if effect.startswith("note")) < notes:
        assert time.monotonic() < deadline
        time.sleep(0.02)
