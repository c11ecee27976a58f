from journal.adapters.langgraph.saver import JournalSaver
__all__ = ["JournalSaver"]
