"""DBOS: sync steps in a workflow; many runs by `start_workflow`. `sqlite:` as installed, `sqlite-wal:` in WAL mode."""

import sqlite3
import sys
from time import perf_counter
from typing import Any

from dbos import DBOS, DBOSConfig

from benchmarks.peers.peer import REPLY, serve

STEPS_SEQUENTIAL, STEPS_CONCURRENT = 100, 20


def configure(url: str) -> None:
    """DBOS on that store, with nothing registered and not launched yet."""
    scheme, _, place = url.partition(":")
    if scheme == "sqlite-wal":
        database = sqlite3.connect(place)
        database.execute("pragma journal_mode = wal")
        database.close()
    store = f"sqlite:///{place}" if scheme.startswith("sqlite") else url
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": store,
        "log_level": "ERROR",
        "application_version": "v1",
        "executor_id": "local",
        "run_admin_server": False,
    }
    DBOS(config=config)


def main(url: str, runs: int) -> None:
    """Serve one measuring."""
    configure(url)

    @DBOS.step()
    def step(_: int) -> dict[str, str]:
        return REPLY

    @DBOS.workflow()
    def workflow(count: int) -> int:
        for number in range(count):
            step(number)
        return count

    DBOS.launch()

    def rate(seconds: float) -> float:
        done, begun = 0, perf_counter()
        while perf_counter() - begun < seconds:
            if runs == 1:
                done += workflow(STEPS_SEQUENTIAL)
            else:
                handles: list[Any] = [DBOS.start_workflow(workflow, STEPS_CONCURRENT) for _ in range(runs)]
                done += sum(handle.get_result() for handle in handles)
        return done / (perf_counter() - begun)

    serve(rate)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
