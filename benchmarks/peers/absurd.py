"""absurd on Postgres: `spawn`, then `work_batch`; many runs by worker threads, each with a connection of its own.

Its schema is not in its Python package; `absurd.sql` is a copy of the one in its repository.
"""

import sys
import threading
from pathlib import Path
from time import perf_counter
from typing import Any

import psycopg
from absurd_sdk import Absurd

from benchmarks.peers.peer import REPLY, serve

STEPS_SEQUENTIAL, STEPS_CONCURRENT, WORKERS = 100, 20, 16


def open_app(url: str) -> Any:
    """A client with the task registered."""
    app: Any = Absurd(url, queue_name="bench")

    @app.register_task("steps")
    def steps(params: dict[str, int], ctx: Any) -> int:
        for number in range(params["count"]):
            ctx.step(f"s{number}", lambda: REPLY)
        return params["count"]

    return app


def main(url: str, runs: int) -> None:
    """Serve one measuring."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(Path(__file__).with_suffix(".sql").read_bytes())
    app = open_app(url)
    app.create_queue("bench")

    def sequential(seconds: float) -> float:
        done, begun = 0, perf_counter()
        while perf_counter() - begun < seconds:
            app.spawn("steps", {"count": STEPS_SEQUENTIAL})
            app.work_batch(batch_size=1)
            done += STEPS_SEQUENTIAL
        return done / (perf_counter() - begun)

    def work(worker: Any) -> None:
        while tasks := worker.claim_tasks(batch_size=1):
            for task in tasks:
                worker._execute_task(task, 120)

    workers = [] if runs == 1 else [open_app(url) for _ in range(WORKERS)]

    def concurrent(seconds: float) -> float:
        done, begun = 0, perf_counter()
        while perf_counter() - begun < seconds:
            for _ in range(runs):
                app.spawn("steps", {"count": STEPS_CONCURRENT})
            threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            done += runs * STEPS_CONCURRENT
        return done / (perf_counter() - begun)

    serve(sequential if runs == 1 else concurrent)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
