"""Worlds: the stores a journal can live in, opened by URL.

`open_world(url)` finds who serves the scheme (we do, or what is installed says so: entry points of the group
`journal.worlds`) and opens it; nothing of a store is imported before. Without a URL, `$JOURNAL_WORLD`; without that,
SQLite at `.journal/journal.db` of the project. Next: `journal.core.ports` for what a world promises,
`journal.worlds.contract` for how that is judged.
"""

from journal.worlds.opening import (
    default_url,
    open_to_read,
    open_world,
    pending_sql,
    redact_url,
    resolve_url,
    world_exists,
)

__all__ = [
    "default_url",
    "open_to_read",
    "open_world",
    "pending_sql",
    "redact_url",
    "resolve_url",
    "world_exists",
]
