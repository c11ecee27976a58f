"""What happened outside of the run: a count of effects that no crash takes back."""

import json
import os
from collections import Counter
from pathlib import Path

import msgspec

from journal.engine.context import in_call

VARIABLE = "JOURNAL_TEST_EFFECTS"


class Effect(msgspec.Struct, frozen=True):
    """Something that happened."""

    name: str
    call: str | None
    """Key of the call in which it happened; None: in the handler itself, between calls."""


class Effects:
    """Counts effects, where the life that has them cannot lose them: in `path`, a line each, or in this object.

    Stands for the service, the mailbox or the ledger that a handler changes. Without `path` it is the file that
    ``$JOURNAL_TEST_EFFECTS`` names, if it is set: `crash_everywhere` sets it for the processes that it starts. A line
    is written at once by the operating system: whoever kills the process does not undo it.
    """

    def __init__(self, path: "str | Path | None" = None) -> None:
        self._path = path
        self._all: list[Effect] = []

    @property
    def path(self) -> Path | None:
        """The file, if there is one."""
        given = self._path or os.environ.get(VARIABLE)
        return Path(given) if given else None

    def add(self, name: str) -> None:
        """`name` happened once more."""
        call = in_call()
        effect = Effect(name, None if call is None else call.key)
        if self.path is None:
            self._all.append(effect)
            return
        line = json.dumps([effect.name, effect.call]) + "\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def all(self) -> list[Effect]:
        """Everything that happened, in order."""
        if self.path is None:
            return list(self._all)
        if not self.path.exists():
            return []
        return [Effect(*json.loads(line)) for line in self.path.read_text().splitlines()]

    def count(self, name: str) -> int:
        """How often `name` happened."""
        return sum(effect.name == name for effect in self.all())

    def counts(self) -> Counter[str]:
        """How often each effect happened."""
        return Counter(effect.name for effect in self.all())

    def clear(self) -> None:
        """Forget everything."""
        self._all.clear()
        if self.path is not None:
            self.path.unlink(missing_ok=True)
