"""stub for now"""
from journal.core.records import ThreadHolder
def holder_here(thread: str) -> ThreadHolder | None:
    return None
