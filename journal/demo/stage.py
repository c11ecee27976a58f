"""Processes that are killed on cue: one script, run three times, dying inside a refund and inside a model call.

The processes are real, and so is SIGKILL. They come from a fork server that has imported the Agents SDK once, since
its import alone takes seconds. What they do is said by an `Act`, so the script with the journal and the one without
are killed at the same two points by the same code.
"""

import multiprocessing
import time
from collections.abc import Callable, Mapping
from multiprocessing.context import ForkServerContext, ForkServerProcess
from threading import Event

import msgspec

from journal.demo.loopback import Tally
from journal.demo.model_server import ModelServer
from journal.demo.refund_service import URL_VARIABLE, RefundService
from journal.demo.timeline import KILLED, STARTED

Act = Callable[[Mapping[str, str]], None]
"""What one process does, given variables for its environment. A module's function: it is found by name there."""

_PATIENCE_SECONDS = 60.0


class Performance(msgspec.Struct, frozen=True):
    """What really happened, as the model server and the shop counted it."""

    happened: tuple[str, ...]
    """Names of the tally in order; `started` and `killed` mark the processes."""
    seconds: float

    @property
    def model_calls_paid(self) -> int:
        """Requests that the model server received whole."""
        return self.happened.count("model_calls")

    @property
    def refunds(self) -> int:
        """How often money left."""
        return self.happened.count("refunds")

    @property
    def safe_tool_runs(self) -> int:
        """How often the tools that may be repeated had their effect."""
        return self.happened.count("orders_read") + self.happened.count("notes_posted")

    @property
    def attempts(self) -> int:
        """How many processes it took."""
        return self.happened.count(STARTED)


class PlayFailed(Exception):
    """A process of the demo did something else than it was expected to."""


class Stage:
    """Where the processes come from."""

    def __init__(self, rehearsal: str = "journal.demo.rehearsal") -> None:
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([rehearsal])

    def perform(self, act: Act, *, model_hang_on: int, environment: Mapping[str, str]) -> Performance:
        """Run `act` three times: killed inside its first refund, killed in a model call, and to its end.

        `model_hang_on` counts all requests to the model from the first process on.
        """
        begun = time.monotonic()
        tally = Tally()
        with (
            ModelServer(tally=tally, hang_on=model_hang_on) as model,
            RefundService(tally=tally, hang_on=1) as shop,
        ):
            variables = {**environment, **model.environment(), URL_VARIABLE: shop.url}
            for reached in (shop.hold.reached, model.hold.reached):
                process = self._start(act, variables, tally)
                self._wait(process, reached)
                process.kill()
                process.join()
                process.close()
                tally.add(KILLED)
                shop.hold.release()
            model.hold.release()
            process = self._start(act, variables, tally)
            process.join(_PATIENCE_SECONDS)
            if process.exitcode != 0:
                process.kill()
                raise PlayFailed(f"the last process did not end well (exit code {process.exitcode})")
            process.close()
        return Performance(tuple(tally.names()), time.monotonic() - begun)

    def _start(self, act: Act, environment: Mapping[str, str], tally: Tally) -> ForkServerProcess:
        process = self._context.Process(target=act, args=(dict(environment),), daemon=True)
        tally.add(STARTED)
        process.start()
        return process

    def _wait(self, process: ForkServerProcess, reached: Event) -> None:
        """Until the process is where it is to be killed."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not reached.wait(0.02):
            if process.exitcode is not None:
                raise PlayFailed(f"a process ended before it was killed (exit code {process.exitcode})")
            if time.monotonic() > deadline:
                process.kill()
                raise PlayFailed(f"a process did not get to its killing within {_PATIENCE_SECONDS:g} s")
