"""What a tool gave: a value, an error, or the honest word that nobody knows."""

from typing import Generic, Literal, TypeVar, cast

import msgspec

from journal.core.errors import OutcomeUnknown
from journal.core.records import CallOutcome

R = TypeVar("R")


class ToolResult(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """The outcome of `turn.tool`."""

    name: str
    status: Literal["ok", "error", "unknown"]
    result: R | None = None
    failure: Exception | None = None
    rejected: tuple[str, ...] = ()
    """Documents and paths of files that it changed in vain, since somebody else changed them meanwhile."""

    @property
    def value(self) -> R:
        """The result; raises the tool's error, or `OutcomeUnknown`."""
        if self.failure is not None:
            raise self.failure
        return cast("R", self.result)

    @property
    def text(self) -> str:
        """What a model should read."""
        if self.status == "ok":
            result = self.result
            text = result if isinstance(result, str) else msgspec.json.encode(result).decode()
            return text + rejected_text(self.rejected)
        if isinstance(self.failure, OutcomeUnknown):
            return unknown_text(self.name)
        return f"{self.name} failed: {type(self.failure).__name__}: {self.failure}"


def rejected_of(outcome: CallOutcome) -> tuple[str, ...]:
    """Documents and paths of files that the call changed in vain."""
    docs = tuple(edit.doc for edit in outcome.edits if edit.rejected is not None)
    return docs + tuple(change.path for change in outcome.files if change.rejected is not None)


def rejected_text(names: tuple[str, ...]) -> str:
    """The words for what was changed in vain; empty where nothing was."""
    if not names:
        return ""
    return f"\n(Not saved: {', '.join(names)} changed meanwhile. Read again before editing again.)"


def unknown_text(name: str, seen: str | None = None) -> str:
    """The words for a call in doubt; `seen` is output that came before the interruption."""
    text = (
        f"{name} was started before an interruption and may have completed. It was not repeated. "
        "Check whether it took effect before asking for it again."
    )
    return f"{text} Output before the interruption: {seen}" if seen else text
