"""The engine's log lines, on stderr: JSON where stderr is no terminal. Only the command line configures structlog."""

import os
import sys
from typing import Any

LEVELS = {"debug": 10, "info": 20, "warning": 30}


def configure_logs(level: str) -> None:
    """Send lines of `level` and above to stderr."""
    import structlog

    is_terminal = sys.stderr.isatty()
    renderer: Any
    if is_terminal:
        renderer = structlog.dev.ConsoleRenderer(colors=not os.environ.get("NO_COLOR"))
    else:
        renderer = structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
