"""What must come of edits and changes, by hand: dictionaries, and the log read record by record. None of our folds.

A call's result says what the call saw first; what it did is known from its plan. So each outcome in the log says, with
what stands in it of edits left out, what must have become of documents and files by then.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

CONTENTS = [b"", b"a", bytes(range(256)), b"x" * 4096, b"y" * 4097, bytes(range(256)) * 300]
"""Some lie in their record, some in blobs; some come again, so that blobs are shared."""
CONTENTS += [content[::-1].replace(b"a", b"b").replace(b"x", b"z") for content in CONTENTS[1:4]]
TWINS = {number: other for one in (1, 2, 3) for number, other in ((one, one + 5), (one + 5, one))}
"""Another content of the same length, where there is one."""
TARGETS = [b"nowhere", b"d/e", b"../../x"]
"""Of symbolic links."""
PATHS = ["/a", "/b", "/d/a", "/d/b", "/d/e/a", "/d/e", "/d"]
"""Some are directories of others, where those are."""
DOCS = ["todo", "plan"]
PIPE = "/pipe"
"""What no snapshot can keep."""
View = dict[str, tuple[int, bool]]
"""By path: which of `CONTENTS`, and whether it is a program; a link has -1, -2 or -3, by its target in `TARGETS`."""


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


def is_link(path: str, files: View) -> bool:
    return files.get(path, (0, False))[0] < 0


def empty(directories: Iterable[str], files: Iterable[str]) -> set[str]:
    """Those of `directories` in which there is nothing, nor could be."""
    every = set(directories)
    return {path for path in every if path not in files and not is_in_the_way(path, files)} - {
        other for other in every for path in every if path.startswith(f"{other}/")
    }


def bytes_of(number: int) -> bytes:
    """What is in a file, or where a link leads."""
    return CONTENTS[number] if number >= 0 else TARGETS[-1 - number]


class Draft:
    """Files as a call sees them."""

    def __init__(self, base: View) -> None:
        self.base = base
        self.files = dict(base)
        self.sources: dict[str, str] = {}
        self.brought: set[str] | None = None
        """The empty directories in the call's directory when it first had it; None: it has not."""
        self.directories: set[str] = set()
        """Those that it left there."""
        self.told: set[str] = set()
        """What it left there that cannot be kept."""
        self.refused = False

    @property
    def is_new(self) -> bool:
        """Whether it has changed nothing yet."""
        return self.brought is None and not self.changed()

    def write(self, path: str, content: int, is_executable: bool | None) -> None:
        self.refused = is_in_the_way(path, self.files) or is_link(path, self.files)
        if not self.refused:
            before = self.files.get(path, (0, False))[1]
            self.files[path] = content, before if is_executable is None else is_executable

    def delete(self, path: str) -> None:
        self.refused = path not in self.files
        self.files.pop(path, None)
        self.sources.pop(path, None)

    def move(self, path: str, to: str) -> None:
        self.refused = path not in self.files or is_link(path, self.files)
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


class Disk:
    """What a call does in its directory, between having it and leaving it."""

    def __init__(self, draft: Draft, directories: Iterable[str]) -> None:
        """`directories`: the empty ones that are there if the call has it for the first time."""
        self.brought = set(directories) if draft.brought is None else draft.brought
        self.files = dict(draft.files)
        there = directories if draft.brought is None else draft.directories
        self.directories = empty(there, self.files)
        self.told = set(draft.told)

    def do(self, op: Any) -> bool:
        """Whether it is done."""
        path, other, content = PATHS[op.at], PATHS[op.what], op.what % len(CONTENTS)
        match op.kind:
            case "put" | "put_program" | "command":
                is_done = self._is_free(path) or self._is_file(path)
                if is_done:
                    program = op.kind == "put_program" or self.files.get(path, (0, False))[1]
                    self._put(path, (content, program))
            case "twin":
                before = self.files.get(path, (0, False))
                is_done = before[0] in TWINS
                if is_done:
                    self.files[path] = TWINS[before[0]], before[1]
            case "chmod":
                is_done = self._is_file(path)
                if is_done:
                    self.files[path] = self.files[path][0], op.what % 2 == 1
            case "link":
                is_done = self._is_free(path)
                if is_done:
                    self._put(path, (-1 - op.what % len(TARGETS), False))
            case "mkdir":
                is_done = self._is_free(path)
                if is_done:
                    self.directories = empty({*self.directories, path}, self.files)
            case "remove":
                is_done = path in self.files or path in self.directories
                if is_done:
                    self._take(path)
            case "rename":
                is_done = self._rename(path, other)
            case "pipe":
                is_done = PIPE not in self.told
                self.told.add(PIPE)
            case _:
                is_done = False
        return is_done

    def _is_file(self, path: str) -> bool:
        return path in self.files and not is_link(path, self.files)

    def _is_free(self, path: str) -> bool:
        """Whether nothing is there, and something can be put there."""
        below = any(other == path or other.startswith(f"{path}/") for other in self.directories)
        return not below and path not in self.files and not is_in_the_way(path, self.files)

    def _put(self, path: str, file: tuple[int, bool]) -> None:
        self.files[path] = file
        self.directories = empty(self.directories, self.files)

    def _take(self, path: str) -> None:
        self.files.pop(path, None)
        self.directories.discard(path)
        above = path.rpartition("/")[0]
        if above:
            self.directories = empty({*self.directories, above}, self.files)

    def _rename(self, path: str, to: str) -> bool:
        if path == to or to.startswith(f"{path}/"):
            return False
        if path in self.files:
            if not (self._is_free(to) or to in self.files):
                return False
            file = self.files[path]
            self._take(path)
            self._put(to, file)
            return True
        moved = {other: to + other[len(path) :] for other in self.files if other.startswith(f"{path}/")}
        empties = {
            other: to + other[len(path) :]
            for other in self.directories
            if other == path or other.startswith(f"{path}/")
        }
        if not (moved or empties) or not self._is_free(to):
            return False
        for other, place in moved.items():
            self.files[place] = self.files.pop(other)
        self.directories = (self.directories - {*empties}) | {*empties.values()}
        above = path.rpartition("/")[0]
        self.directories = empty(self.directories | ({above} if above else set()), self.files)
        return True

    def read_back(self, draft: Draft) -> None:
        """What the call has changed by it."""
        for path in {*draft.files, *self.files}:
            if draft.files.get(path) != self.files.get(path):
                draft.sources.pop(path, None)
        draft.files, draft.directories, draft.told = self.files, self.directories, self.told
        draft.brought = self.brought


DISK = (
    "put",
    "command",
    "put_program",
    "twin",
    "chmod",
    "link",
    "mkdir",
    "remove",
    "rename",
    "pipe",
    "look",
    "leave",
)
_AMONG = (*DISK, "app_append", "app_write", "app_delete", "wait")


def blocks(ops: Sequence[Any]) -> Iterator[tuple[int, Sequence[Any]]]:
    """Those that a call does at once, and where among `ops` they begin: in its directory as many as follow."""
    place = 0
    while place < len(ops):
        end = place + 1
        if ops[place].kind in DISK:
            while end < len(ops) and ops[end].kind in _AMONG:
                end += 1
        yield place, ops[place:end]
        place = end


class Seen(msgspec.Struct):
    """The result of a call: the files that it found, what it did to documents, and how it saw them last."""

    first: View
    updates: list[tuple[str, int, str]] = []
    """Document, the length it must have (-1: any), and what is put behind it."""
    docs: dict[str, list[str]] = {}
    files: View = {}
    """What its changes are changes of: newer than `first` where it had to wait for its directory."""
    since: int = -1
    """Which of its ops was the first after it found them so; -1: they are `first`."""
    directories: list[str] = []
    """The empty ones in its directory when it first had it."""

    def view(self) -> Draft:
        return Draft(self.files)


class State:
    """All that there is, and a record after which it was so."""

    def __init__(self) -> None:
        self.files: View = {}
        self.directories: set[str] = set()
        """In which there is nothing."""
        self.docs: dict[str, list[str]] = {kind: [] for kind in DOCS}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"State({self.files}, {self.directories}, {self.docs})"

    def copy(self) -> "State":
        other = State()
        other.files, other.docs = dict(self.files), {kind: list(value) for kind, value in self.docs.items()}
        other.directories = set(self.directories)
        return other

    def has_files_of(self, other: "State") -> bool:
        return (self.files, self.directories) == (other.files, other.directories)

    def change(self, path: str, content: int | None) -> bool:
        """The application writes or deletes a file; whether it can."""
        if is_in_the_way(path, self.files) or (content is None and path not in self.files):
            return False
        before = self.files.pop(path, (0, False))
        if content is not None:
            self.files[path] = content, before[1]
        self.directories = empty(self.directories, self.files)
        return content is None or before[0] >= 0

    def land(self, seen: Seen, ops: Any) -> set[str]:
        """The outcome of that call lands; documents and paths of which it is rejected."""
        draft = done(seen, ops)
        rejected = self._land_docs(seen.updates) | self._land_files(draft) | draft.told
        if draft.brought is not None:
            self.directories -= draft.brought - draft.directories
            self.directories |= draft.directories - draft.brought
        self.directories = empty(self.directories, self.files)
        return rejected

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


def done(seen: Seen, ops: Sequence[Any]) -> Draft:
    """The call's changes, made once more."""
    draft = seen.view()
    for place, block in blocks(ops):
        if place < seen.since:
            continue
        path, content = PATHS[block[0].at], block[0].what % len(CONTENTS)
        match block[0].kind:
            case "write":
                draft.write(path, content, None)
            case "run":
                draft.write(path, content, True)
            case "delete":
                draft.delete(path)
            case "move":
                draft.move(path, PATHS[block[0].what])
            case kind if kind in DISK:
                disk = Disk(draft, seen.directories)
                for op in block:
                    disk.do(op)
                if not any(op.kind == "leave" for op in block):
                    disk.read_back(draft)
    return draft
