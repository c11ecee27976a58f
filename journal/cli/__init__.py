"""The command `journal`: one module a verb, loaded when it is called.

Start with `root.py`; `exits.py` has the exit codes, `opening.py` finds the journal that is meant.
"""

from journal.cli.root import main

__all__ = ["main"]
