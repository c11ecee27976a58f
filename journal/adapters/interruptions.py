"""What a harness's `never` tool ends in when it broke off: `journal.tools.interruption` tells whether it did."""

from journal.core.failures import register_error
from journal.tools.interruption import is_interruption

__all__ = ["ToolInterrupted", "is_interruption"]


class ToolInterrupted(ConnectionError):
    """A `never` tool broke off in a way that does not tell whether its effect took place."""


register_error(ToolInterrupted)
