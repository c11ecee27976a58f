"""What SIGTERM and SIGINT mean to a worker: the first stops it, the second ends it."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from journal.engine.log import logger
from journal.engine.worker import Worker

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """What has come so far. Made in the task that runs the worker."""

    def __init__(self, worker: Worker) -> None:
        self.first: signal.Signals | None = None
        self.is_second = False
        self._worker = worker
        self._task = asyncio.current_task()

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle them within the block."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._came, number)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    def _came(self, number: signal.Signals) -> None:
        if self.first is None:
            self.first = number
            seconds = self._worker.grace_seconds
            logger().info("stopping", signal=number.name, grace_seconds=seconds, busy=self._worker.busy)
            self._worker.stop()
        elif not self.is_second and self._task is not None:
            self.is_second = True
            logger().warning("stopping at once", signal=number.name, busy=self._worker.busy)
            self._task.cancel()


def end_within(seconds: float, code: int) -> None:
    """End the process with `code` if it has not ended by then.

    A function that hangs on a thread cannot be cancelled, and Python waits for it for ever. Its run is with somebody
    else by now: only this process would stay.
    """

    def end() -> None:
        logger().warning("calls on threads are left behind", seconds=seconds)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    timer = threading.Timer(seconds, end)
    timer.daemon = True  # a process that ends in time ends
    timer.start()
