"""What the engine needs to know of a function that is called through a turn, worked out once a function."""

import functools
import inspect
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from journal.core.records import Policy
from journal.core.typed import ValueCodec, result_codec
from journal.tools.policy import Marker, marker_of
from journal.tools.probe import ProbeFunction
from journal.tools.retry import Retry
from journal.tools.tool import Step, Tool


class Plan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How to call `fn`, and what to write down about it."""

    name: str
    fn: Callable[..., Any]
    is_async: bool
    codec: ValueCodec[Any]
    marked: Marker | None
    key: str | None = None
    retry: Retry | None = None
    timeout: float | None = None

    @property
    def policy(self) -> Policy | None:
        """What the marker says, if there is one."""
        return None if self.marked is None else self.marked.policy

    @property
    def probe(self) -> ProbeFunction | None:
        return None if self.marked is None else self.marked.probe

    @property
    def dedupes(self) -> bool:
        return self.marked is not None and self.marked.dedupes


_plans: WeakKeyDictionary[Any, Plan] = WeakKeyDictionary()
