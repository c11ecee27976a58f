"""What a tool gave: a value, an error, or the honest word that nobody knows."""

from typing import Generic, Literal, TypeVar, cast

import msgspec

from journal.core.errors import OutcomeUnknown
from journal.core.records import CallOutcome
from journal.replay.documents import EDITED_MEANWHILE
from journal.replay.workspace import MEANWHILE

R = TypeVar("R")


class ToolResult(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """The outcome of `turn.tool`."""

    name: str
    status: Literal["ok", "error", "unknown"]
    result: R | None = None
    failure: Exception | None = None
    rejected: tuple[str, ...] = ()
    """Documents and paths of files that it changed in vain, since somebody else changed them meanwhile."""

    note: str = ""
    """What a model is told of those."""

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
            return text + self.note
        if isinstance(self.failure, OutcomeUnknown):
            return unknown_text(self.name)
        return f"{self.name} failed: {type(self.failure).__name__}: {self.failure}"


def rejected_of(outcome: CallOutcome) -> tuple[str, ...]:
    """Documents and paths of files that the call changed in vain."""
    docs = tuple(edit.doc for edit in outcome.edits if edit.rejected is not None)
    return docs + tuple(change.path for change in outcome.files if change.rejected is not None)


def rejected_text(outcome: CallOutcome) -> str:
    """What a model is told of what the call changed in vain; empty where nothing was."""
    changed = [edit.doc for edit in outcome.edits if edit.rejected == EDITED_MEANWHILE]
    failed = [
        f"{edit.doc}: {edit.rejected}"
        for edit in outcome.edits
        if edit.rejected not in (None, EDITED_MEANWHILE)
    ]
    changed += [change.path for change in outcome.files if change.rejected == MEANWHILE]
    others = [
        f"{change.path}: {change.rejected}"
        for change in outcome.files
        if change.rejected not in (None, MEANWHILE)
    ]
    text = ""
    if changed:
        text += f"\n(Not saved: {', '.join(changed)} changed meanwhile. Read again before editing again.)"
    if failed:
        text += f"\n(Not saved: {'; '.join(failed)}. Read again before editing again.)"
    if others:
        text += f"\n(Not saved: {'; '.join(others)}.)"
    return text


def unknown_text(name: str, seen: str | None = None) -> str:
    """The words for a call in doubt; `seen` is output that came before the interruption."""
    text = (
        f"{name} was started before an interruption and may have completed. It was not repeated. "
        "Check whether it took effect before asking for it again."
    )
    return f"{text} Output before the interruption: {seen}" if seen else text
