"""The engine's logger: structlog, loaded when the first journal opens.

Where the application has configured structlog, that is used. Elsewhere lines go to the standard library's logger
``journal``, so that a library never prints: warnings reach stderr, the rest waits for `logging` to be set up.
Lines carry ids, sizes and class names; never inputs, outputs or messages of exceptions
other than our own.
"""

import logging
from typing import Any


def logger() -> Any:
    """A structlog logger named ``journal``."""
    import structlog

    if structlog.is_configured():
        return structlog.get_logger("journal")
    return structlog.wrap_logger(
        logging.getLogger("journal"),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.add_log_level,
            structlog.processors.KeyValueRenderer(key_order=["level", "event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        context_class=dict,
    )
