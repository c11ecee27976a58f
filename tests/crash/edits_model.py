"""What must come of edits and changes, by hand: dictionaries, and the log read record by record. None of our folds.

A call's result says what the call saw first; what it did is known from its plan. So each outcome in the log says, with
what stands in it of edits left out, what must have become of documents and files by then.
"""

from collections.abc import Callable
from typing import Any

import msgspec

CONTENTS = [b"", b"a", bytes(range(256)), b"x" * 4096, b"y" * 4097, bytes(range(256)) * 300]
"""Some lie in their record, some in blobs; some come again, so that blobs are shared."""
PATHS = ["/a", "/b", "/d/a", "/d/b", "/d/e/a", "/d/e", "/d"]
"""Some are directories of others, where those are."""
DOCS = ["todo", "plan"]
View = dict[str, tuple[int, bool]]
"""By path: which of `CONTENTS`, and whether it is a program."""


def long(tag: str, what: int) -> str:
    """`tag`, and sometimes so much behind it that the document lies in a blob."""
    return tag + "." * (70_000 if what == 0 else 0)


def putting(tag: str, length: int = -1) -> Callable[[list[str]], list[str]]:
    """An update that puts `tag` behind a value: any, or one of just that length."""

    def update(value: list[str]) -> list[str]:
        if length not in (-1, len(value)):
            raise RuntimeError("it is another one")
        return [*value, tag]

    return update


def is_in_the_way(path: str, files: Any) -> bool:
    """Whether a file at `path` would be a directory, or lead through a file."""
    return any(path.startswith(f"{other}/") or other.startswith(f"{path}/") for other in files)


class Draft:
    """Files as a call sees them."""

    def __init__(self, base: View) -> None:
        self.base = base
        self.files = dict(base)
        self.sources: dict[str, str] = {}
        self.refused = False

    def write(self, path: str, content: int, is_executable: bool | None) -> None:
        self.refused = is_in_the_way(path, self.files)
        if not self.refused:
            before = self.files.get(path, (0, False))[1]
            self.files[path] = content, before if is_executable is None else is_executable

    def delete(self, path: str) -> None:
        self.refused = path not in self.files
        self.files.pop(path, None)
        self.sources.pop(path, None)

    def move(self, path: str, to: str) -> None:
        self.refused = path not in self.files
        if self.refused or path == to:
            return
        file = self.files.pop(path)
        self.refused = is_in_the_way(to, self.files)
        self.files[path if self.refused else to] = file
        if not self.refused:
            self.sources[to] = self.sources.pop(path, path)

    def changed(self) -> set[str]:
        return {path for path in {*self.base, *self.files} if self.base.get(path) != self.files.get(path)}

    def halves(self) -> list[tuple[str, str]]:
        """Both paths of each move that is one."""
        return [
            (path, source)
            for path, source in self.sources.items()
            if path in self.changed() and source in self.base and source not in self.files
        ]


class Seen(msgspec.Struct):
    """The result of a call: the files that it found, what it did to documents, and how it saw them last."""

    files: View
    updates: list[tuple[str, int, str]]
    """Document, the length it must have (-1: any), and what is put behind it."""
    docs: dict[str, list[str]]

    def view(self) -> Draft:
        return Draft(self.files)


class State:
    """All that there is, and a record after which it was so."""

    def __init__(self) -> None:
        self.files: View = {}
        self.docs: dict[str, list[str]] = {kind: [] for kind in DOCS}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and (self.files, self.docs) == (other.files, other.docs)

    def __repr__(self) -> str:
        return f"State({self.files}, {self.docs})"

    def copy(self) -> "State":
        other = State()
        other.files, other.docs = dict(self.files), {kind: list(value) for kind, value in self.docs.items()}
        return other

    def land(self, seen: Seen, ops: Any) -> set[str]:
        """The outcome of that call lands; documents and paths of which it is rejected."""
        return self._land_docs(seen.updates) | self._land_files(_done(seen, ops))

    def _land_docs(self, updates: list[tuple[str, int, str]]) -> set[str]:
        rejected = set()
        for kind in DOCS:
            value = self.docs[kind]
            for of, length, tag in updates:
                if of == kind:
                    if length not in (-1, len(value)):
                        rejected.add(kind)
                        break
                    value = [*value, tag]
            else:
                self.docs[kind] = value
        return rejected

    def _land_files(self, draft: Draft) -> set[str]:
        changed, halves = draft.changed(), draft.halves()
        rejected = {path for path in changed if _content(self.files, path) != _content(draft.base, path)}
        while True:
            after = dict(self.files)
            for path in changed - rejected:
                if path in draft.files:
                    after[path] = draft.files[path]
                else:
                    after.pop(path, None)
            more = {path for path in changed - rejected if path in draft.files and is_in_the_way(path, after)}
            for pair in halves:
                if rejected & {*pair}:
                    more |= {*pair}
            if more <= rejected:
                self.files = after
                return rejected
            rejected |= more


def _content(files: View, path: str) -> int | None:
    return files[path][0] if path in files else None


def _done(seen: Seen, ops: Any) -> Draft:
    """The call's changes, made once more."""
    draft = seen.view()
    for op in ops:
        path, content = PATHS[op.at], op.what % len(CONTENTS)
        match op.kind:
            case "write":
                draft.write(path, content, None)
            case "run":
                draft.write(path, content, True)
            case "delete":
                draft.delete(path)
            case "move":
                draft.move(path, PATHS[op.what])
    return draft
