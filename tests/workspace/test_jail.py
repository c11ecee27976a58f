"""A directory that others write into while we look: FAULTS 32. No link is followed, whatever becomes one meanwhile."""

import os
import threading
from pathlib import Path

import pytest

from journal.core.errors import SnapshotMissing, WorkspaceFailed
from journal.core.values import digest
from journal.replay.workspace import File, Tree
from journal.tools import working_tree
from journal.tools.jail import Jail
from journal.tools.manifest import Manifest, decode_manifest
from journal.tools.snapshots import Snapshots
from journal.tools.working_tree import WorkingTree
from journal.tools.workspace import Quotas

SECRET = b"not for the agent"


def tree_in(tmp_path: Path) -> tuple[Snapshots, WorkingTree]:
    snapshots = Snapshots(str(tmp_path / "root"))
    place = snapshots.place_of("r", b"")
    snapshots.prepare(place)
    working = WorkingTree(snapshots.objects, f"{place}/trees/1-a", Quotas())
    working.bring(Manifest())
    return snapshots, working


def test_a_directory_that_becomes_a_link_while_it_is_looked_through(tmp_path: Path) -> None:
    """And back again, all the time: nothing of where it leads is ever read."""
    outside = tmp_path / "outside"
    outside.mkdir()
    for number in range(20):
        (outside / f"{number}").write_bytes(SECRET)
    snapshots, working = tree_in(tmp_path)
    inside, kept = Path(working.path, "d"), Path(working.path, "kept")
    inside.mkdir()
    for number in range(20):
        (inside / f"{number}").write_text("inside")
    stop = threading.Event()

    def flip() -> None:
        while not stop.is_set():
            os.rename(inside, kept)
            os.symlink(outside, inside)
            os.unlink(inside)
            os.rename(kept, inside)

    flipping = threading.Thread(target=flip)
    flipping.start()
    try:
        for _ in range(60):
            scan = working.scan()
            for path in scan.manifest.tree.paths():
                file = scan.manifest.tree.get(path)
                assert file is not None
                assert file.digest != digest(SECRET)
    finally:
        stop.set()
        flipping.join()
    assert not os.path.exists(snapshots.objects.path(digest(SECRET)))


@pytest.mark.parametrize("target", ["outside", "nowhere", "/", ".."])
def test_nothing_is_made_or_read_through_a_link(tmp_path: Path, target: str) -> None:
    """Neither at the end of a path nor on the way, dangling or not."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f").write_bytes(SECRET)
    place = tmp_path / "jail"
    place.mkdir()
    (place / "d").symlink_to(tmp_path / target if target in ("outside", "nowhere") else target)
    (place / "f").symlink_to(tmp_path / "outside" / "f")
    before = sorted(tmp_path.rglob("*"))
    jail = Jail(str(place))
    try:
        for path in ("/d", "/d/f", "/f"):
            with pytest.raises(OSError):
                jail.create(path, 0o600)
            with pytest.raises(OSError), jail.reading(path):
                pass
        with pytest.raises(OSError):
            jail.remove("/d/f")
        with pytest.raises(OSError):
            jail.make_directory("/d/new")
        assert jail.remove_directory("/d") is False
        jail.remove("/d")
        assert sorted(jail.walk().files) == ["/f"]
    finally:
        jail.close()
    assert sorted(tmp_path.rglob("*")) == [path for path in before if path != place / "d"]
    assert (tmp_path / "outside" / "f").read_bytes() == SECRET


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    jail = Jail(str(tmp_path))
    try:
        with pytest.raises(OSError, match="no regular file"), jail.reading("/pipe"):
            pass
        assert list(jail.walk().refused) == ["/pipe"]
    finally:
        jail.close()


def test_a_list_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    """Whoever can write under the root gets nobody to write outside of it."""
    for path in ("/../x", "x", "/a//b", "/a\0b"):
        tree = Tree()
        tree.files[path] = File(digest(b""), 0, 0, False)
        data = Manifest(tree).encode()
        with pytest.raises(SnapshotMissing, match="names what cannot be"):
            decode_manifest(data, digest(data).hex(), "/root")
    snapshots, working = tree_in(tmp_path)
    (tmp_path / "outside").mkdir()
    with snapshots.objects.staging() as staging:
        target = staging.put(str(tmp_path / "outside").encode())
        content = staging.put(b"x")
    tree = Tree()
    tree.put("/d", File(target, len(str(tmp_path / "outside")), 0, False, is_link=True))
    tree.put("/d/f", File(content, 1, 0, False))
    with pytest.raises(WorkspaceFailed):
        working.bring(Manifest(tree))
    assert list((tmp_path / "outside").iterdir()) == []


def test_contents_that_were_changed_or_cut_under_the_root(tmp_path: Path) -> None:
    snapshots, working = tree_in(tmp_path)
    Path(working.path, "a").write_text("whole")
    manifest = working.scan().manifest
    place = Path(snapshots.objects.path(digest(b"whole")))
    place.write_text("other")
    with pytest.raises(SnapshotMissing, match="other bytes"):
        snapshots.objects.read(digest(b"whole"))
    place.write_text("who")
    working.spoil()
    with pytest.raises(SnapshotMissing, match="3 bytes instead of 5"):
        working.bring(manifest)
    place.unlink()
    with pytest.raises(SnapshotMissing):
        working.bring(manifest)
    place.write_text("whole")
    working.bring(manifest)
    assert Path(working.path, "a").read_text() == "whole"


def test_a_directory_that_is_removed_while_it_is_looked_through(tmp_path: Path) -> None:
    """By the next holder: what was seen of it is no result."""
    _, working = tree_in(tmp_path)
    Path(working.path, "a").write_text("x")
    inner = Jail.walk

    def walk(jail: Jail) -> object:
        seen = inner(jail)
        os.rename(working.path, f"{working.path}-gone")
        return seen

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Jail, "walk", walk)
        with pytest.raises(WorkspaceFailed, match="removed meanwhile"):
            working.scan()


def test_what_is_written_and_deleted_in_place_of_the_tree(tmp_path: Path) -> None:
    """One directory through many states: each is just what was wanted, by the plainest look at it."""
    snapshots, working = tree_in(tmp_path)
    with snapshots.objects.staging() as staging:
        known = {text: staging.put(text.encode()) for text in ("a", "bb", "/etc/passwd")}
    states: list[tuple[dict[str, str], set[str]]] = [
        ({"/f": "a", "/d/e/f": "bb"}, {"/empty"}),
        ({"/f": "bb", "/d": "a"}, set()),
        ({"/f/g": "a", "/empty": "bb"}, {"/d/x"}),
        ({}, {"/f/g/h"}),
        ({"/f": "a"}, set()),
    ]
    for files, empty in states:
        tree = Tree()
        for path, text in files.items():
            tree.put(path, File(known[text], len(text), 0, False, is_executable=text == "bb"))
        working.bring(Manifest(tree, empty))
        place = Path(working.path)
        found = {
            f"/{path.relative_to(place)}"
            for path in place.rglob("*")
            if path.is_dir() and not any(path.iterdir())
        }
        assert found == empty
        written = {f"/{path.relative_to(place)}": path for path in place.rglob("*") if path.is_file()}
        assert {path: at.read_text() for path, at in written.items()} == files
        assert {
            path for path, at in written.items() if os.access(at, os.X_OK) and at.stat().st_mode & 0o100
        } == {path for path, text in files.items() if text == "bb"}


def test_the_clock_of_the_file_system_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes after us does so at a later time; and what no clock tells apart is read again.

    File systems differ in how fine their clock is, so here it is one that stands still for a while.
    """
    _, working = tree_in(tmp_path)
    Path(working.path, "a").write_text("x")
    manifest = working.scan().manifest
    looks: list[int] = []

    def clock(_: WorkingTree) -> int:
        looks.append(1)
        return 10**20 if len(looks) > 3 else 0

    monkeypatch.setattr(WorkingTree, "_clock", clock)
    working.spoil()
    working.bring(manifest)
    assert len(looks) == 4
    monkeypatch.setattr(WorkingTree, "_clock", lambda _: 0)
    monkeypatch.setattr(working_tree, "_TICK_SECONDS", 0.01)
    working.spoil()
    working.bring(manifest)
    assert [working.scan().read for _ in range(2)] == [1, 1]
    monkeypatch.setattr(WorkingTree, "_clock", lambda _: 10**20)
    assert [working.scan().read for _ in range(2)] == [1, 0]
