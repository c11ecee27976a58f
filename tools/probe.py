"""Probes: asking the service whether a call that is in doubt took place.

A probe is ``async def probe(input, io)``: `input` holds the recorded arguments by name, `io` is what the call itself
would see (`io.idempotency_key` above all). It answers with one of the three classes here, and must not act.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from journal.tools.io import CallContext


class Ran(msgspec.Struct, frozen=True):
    """It took place, and gave `value`: recorded as the call's outcome."""

    value: Any = None


class NotRun(msgspec.Struct, frozen=True):
    """It did not take place.

    `final`: and it never will, since the first attempt was made impossible (its key voided, its session closed):
    only then is the call run. Without it a request that is still under way could arrive after the probe.
    """

    final: bool = False


class CannotTell(msgspec.Struct, frozen=True):
    """The service does not say: the outcome stays unknown."""


ProbeFunction = Callable[[Any, CallContext], Awaitable[Ran | NotRun | CannotTell]]
"""``probe(input, io)``."""
