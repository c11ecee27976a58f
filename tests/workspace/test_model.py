"""Random trees and changes, compared with plain dictionaries; globs, with regular expressions."""

import re
from fnmatch import translate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from journal.core import values
from journal.core.codec import seal
from journal.core.errors import PathRefused
from journal.core.records import (
    BlobRef,
    CallIntent,
    CallOutcome,
    FileChange,
    FilesChanged,
    Record,
    TurnRetried,
    TurnStarted,
)
from journal.replay.workspace import Tree, Workspace, digest_of, file_of
from journal.tools.workspace import VirtualWorkspace, listed, matching, settled, why_refused

names = st.sampled_from(["a", "b", "c"])
paths = st.lists(names, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))
contents = st.none() | st.binary(max_size=6)


def record(seq: int, body: Any, key: str | None = None, turn: str | None = "t") -> Record:
    sealed = seal("r", body, turn=turn, key=key)
    return Record("r", seq, 0.0, sealed.type, turn, key, 1, b"", sealed.body, sealed.checksum)


def as_dict(tree: Tree) -> dict[str, tuple[bytes, int]]:
    found = {}
    for path in tree.paths():
        file = tree.get(path)
        assert file is not None
        found[path] = (file.digest, file.size)
    return found


def expected(files: dict[str, bytes]) -> dict[str, tuple[bytes, int]]:
    return {path: (values.digest(data), len(data)) for path, data in files.items()}


def check(tree: Tree, files: dict[str, bytes]) -> None:
    assert as_dict(tree) == expected(files)
    assert (tree.count, tree.size) == (len(files), sum(map(len, files.values())))
    for directory in ("/", "/a", "/b", "/a/b", "/c/a"):
        prefix = directory.rstrip("/") + "/"
        assert tree.below_directory(directory) == sum(path.startswith(prefix) for path in files)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), paths, contents), max_size=40))
def test_trees_over_trees_are_dictionaries_over_dictionaries(
    acts: list[tuple[int, str, bytes | None]],
) -> None:
    trees, models = [Tree()], [dict[str, bytes]()]
    for _ in range(2):
        trees.append(Tree(trees[-1]))
        models.append({})
    hidden: list[dict[str, bytes | None]] = [{}, {}, {}]
    for depth, path, data in sorted(acts, key=lambda act: act[0]):  # a tree under another one does not change
        change = FileChange(path=path, content=data)
        trees[depth].put(path, file_of(change, 0))
        hidden[depth][path] = data
    seen: dict[str, bytes] = {}
    # Built again from below, since sizes of an upper tree are counted from when it was made.
    below: Tree | None = None
    for layer in hidden:
        tree = Tree(below)
        for path, data in layer.items():
            tree.put(path, file_of(FileChange(path=path, content=data), 0))
            if data is None:
                seen.pop(path, None)
            else:
                seen[path] = data
        check(tree, seen)
        check(tree.copy(), seen)
        below = tree


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.dictionaries(paths, contents, min_size=1, max_size=3)), max_size=12),
    st.integers(0, 12),
)
def test_the_fold_is_the_dictionary_of_what_counts(
    acts: list[tuple[bool, dict[str, bytes | None]]], back_to: int
) -> None:
    """Also after a retry that sets calls aside; the application's changes stay."""
    records = [record(1, TurnStarted(worker="w", attempt=1))]
    kept: list[tuple[int, bool, dict[str, bytes | None]]] = []
    for number, (is_call, files) in enumerate(acts):
        changes = tuple(FileChange(path=path, content=data) for path, data in files.items())
        changes += (FileChange(path="/rejected", rejected="so"),)
        if is_call:
            key = f"f#{number}"
            intent = CallIntent(kind="tool", name="f", input_digest=b"", policy="safe", attempt=1)
            records.append(record(len(records) + 1, intent, key))
            kept.append((len(records), True, files))
            records.append(record(len(records) + 1, CallOutcome(status="ok", files=changes, v=2), key))
        else:
            kept.append((0, False, files))
            records.append(record(len(records) + 1, FilesChanged(changes=changes), turn=None))

    def model(gone: int | None) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for began, is_call, files in kept:
            if is_call and gone is not None and began + 1 >= gone:  # its outcome
                continue
            for path, data in files.items():
                if data is None:
                    found.pop(path, None)
                else:
                    found[path] = data
        return found

    workspace = Workspace()
    for each in records:
        workspace.add(each)
    check(workspace.tree, model(None))
    before = workspace.view()
    gone = min(back_to * 2, len(records)) + 1
    calls = tuple(each.seq for each in records if each.seq >= gone and each.key is not None)
    workspace.add(record(len(records) + 1, TurnRetried(from_seq=gone, superseded=calls)))
    check(workspace.tree, model(gone))
    check(before, model(None))


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(paths, st.binary(max_size=6), max_size=5),
    st.dictionaries(paths, contents, max_size=5),
    st.dictionaries(paths, contents, max_size=5),
    st.integers(0, 6),
    st.integers(0, 20),
)
def test_changes_made_side_by_side(
    start: dict[str, bytes],
    first: dict[str, bytes | None],
    second: dict[str, bytes | None],
    max_files: int,
    max_bytes: int,
) -> None:
    """Whichever comes second: what stands is exactly what was not touched, fits, and leaves a tree."""
    limits = VirtualWorkspace(max_files=max_files, max_bytes=max_bytes)
    tree, model = Tree(), dict[str, bytes]()
    for path, data in start.items():
        if not conflicts(path, model):
            tree.put(path, file_of(FileChange(path=path, content=data), 0))
            model[path] = data
    base = Tree(tree)
    for wanted in (first, second):
        changes = [
            FileChange(path=path, base=digest_of(base.get(path)), content=data)
            for path, data in wanted.items()
        ]
        before = dict(model)
        found = settled(changes, tree, limits)
        assert [change.path for change in found] == list(wanted)
        for change in found:
            untouched = digest_of(tree.get(change.path)) == digest_of(base.get(change.path))
            assert change.rejected is None or change.content is None
            if not untouched:
                assert change.rejected == "it was changed meanwhile"
            elif wanted[change.path] is None:
                assert change.rejected is None
            if change.rejected is None:
                after = wanted[change.path]
                if after is None:
                    model.pop(change.path, None)
                else:
                    model[change.path] = after
        copied = tree.copy()
        copied.take(found)
        base, tree = tree if wanted is first else base, copied
        base = Tree(base)
        check(tree, model)
        assert not any(conflicts(path, model) for path in model)
        assert len(model) <= max(max_files, len(before))
        assert sum(map(len, model.values())) <= max(max_bytes, sum(map(len, before.values())))


def conflicts(path: str, files: dict[str, bytes]) -> bool:
    return any(path.startswith(f"{other}/") or other.startswith(f"{path}/") for other in files)


def regular(pattern: str) -> str:
    """The same pattern as a regular expression, by way of the standard library's for each name."""
    parts = []
    wanted = pattern[1:].split("/")
    for place, part in enumerate(wanted):
        is_last = place == len(wanted) - 1
        if part == "**":
            parts.append("(?:/[^/]+)*" if not is_last else "(?:/[^/]+)+")
        else:
            parts.append(
                "/" + translate(part)[len("(?s:") : -len(r")\Z")].replace(".*", "[^/]*").replace(".", "[^/]")
            )
    return "".join(parts)


patterns = st.lists(st.sampled_from(["a", "b", "*", "?", "**", "[ab]"]), min_size=1, max_size=4)


@settings(max_examples=300, deadline=None)
@given(patterns, st.sets(paths, max_size=10))
def test_globs_match_as_regular_expressions_do(pattern: list[str], tree: set[str]) -> None:
    text = "/" + "/".join(pattern)
    assert matching(text, tree) == sorted(path for path in tree if re.fullmatch(regular(text), path))


def test_a_hostile_glob_takes_no_time() -> None:
    path = "/" + "/".join("a" * 50)
    assert matching("/" + "/".join(["**", "a"] * 40) + "/b", [path]) == []
    assert matching("/**/" + "*a" * 30 + "b", ["/" + "a" * 200]) == []


def test_directories_list_what_is_in_them() -> None:
    tree = Tree()
    for path in ("/a/b/c", "/a/x", "/ab", "/z"):
        tree.put(path, file_of(FileChange(path=path, content=BlobRef("00" * 16, 5)), 0))
    assert [(each.path, each.is_directory, each.size) for each in listed("/", tree)] == [
        ("/a", True, 10),
        ("/ab", False, 5),
        ("/z", False, 5),
    ]
    assert [each.path for each in listed("/a", tree)] == ["/a/b", "/a/x"]


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("book/ch2.md", "/book/ch2.md"),
        ("./a", "/a"),
        ("src/", "/src"),
        ("../x", None),
        ("", None),
        ("a//b", None),
        ("x" * 100, None),
    ],
)
def test_what_is_proposed_for_a_relative_path_is_itself_a_path(path: str, hint: str | None) -> None:
    why = why_refused(path)
    assert why == (
        "it is relative: paths begin at the root, with a /"
        if hint is None
        else f"it is relative: give it from the root, as in {hint!r}"
    )
    assert hint is None or why_refused(hint) is None


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("*.py", "/**/*.py"),
        ("./*.py", "/**/*.py"),
        ("**/*.py", "/**/*.py"),
        ("src/*.py", "/src/*.py"),
        ("**", "/**"),
        ("src/", "/**/src"),
        ("../*", None),
        ("", None),
        ("a//*", None),
        ("*" * 100, None),
    ],
)
def test_what_is_proposed_for_a_relative_pattern_begins_at_the_root(pattern: str, hint: str | None) -> None:
    with pytest.raises(PathRefused) as refused:
        matching(pattern, ["/src/a.py"])
    assert (
        refused.value.why
        == f"patterns begin at the root, {'with a /' if hint is None else f'as in {hint!r}'}"
    )
