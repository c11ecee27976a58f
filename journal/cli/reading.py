"""A run's records, page by page, up to the end or to the first that is damaged."""

from collections.abc import AsyncIterator

from journal.core.errors import LogError
from journal.core.records import Record
from journal.engine.journal import Journal

PAGE = 500


async def records(
    journal: Journal, run_id: str, *, after: int = 0, upto: int | None = None
) -> AsyncIterator[Record]:
    """Records with seq > `after`, up to `upto` or the end.

    A store refuses a page for one damaged record; what precedes it is given before the `LogError` is raised.
    """
    limit = PAGE
    while upto is None or after < upto:
        wanted = limit if upto is None else min(limit, upto - after)
        try:
            page = await journal.read(run_id, after=after, limit=wanted)
        except LogError as damage:
            before = damage.seq - 1 - after
            if not 0 < before < wanted:
                raise
            limit = before
            continue
        for record in page:
            yield record
        if len(page) < wanted:
            return
        after = page[-1].seq
