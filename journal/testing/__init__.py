"""The kit for tests: kill an agent everywhere, script its model, fake its clock, give it stores that start from wheels.

Nothing is imported before it is used. Next: `crash.py`; for servers `servers.py`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from journal.testing.clock import FakeClock
    from journal.testing.crash import Crash, CrashFailed, Report, crash_everywhere
    from journal.testing.effects import Effects
    from journal.testing.model import ScriptedModel, ScriptEnded
    from journal.testing.points import Point

__all__ = [
    "Crash",
    "CrashFailed",
    "Effects",
    "FakeClock",
    "Point",
    "Report",
    "ScriptEnded",
    "ScriptedModel",
    "crash_everywhere",
]

_HOMES = {
    "Crash": "crash",
    "CrashFailed": "crash",
    "Effects": "effects",
    "FakeClock": "clock",
    "Point": "points",
    "Report": "crash",
    "ScriptEnded": "model",
    "ScriptedModel": "model",
    "crash_everywhere": "crash",
}


def __getattr__(name: str) -> Any:
    """Load a public name from its module, once."""
    if name not in _HOMES:
        raise AttributeError(f"module 'journal.testing' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"journal.testing.{_HOMES[name]}"), name)
    return found
