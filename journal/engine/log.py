"""The engine's logger: structlog, loaded when the first journal opens, never configured by the library.

Lines carry ids, sizes and class names; never inputs, outputs or messages of exceptions.
"""

from typing import Any


def logger() -> Any:
    """A structlog logger named ``journal``."""
    import structlog

    return structlog.get_logger("journal")
