"""A directory workspace of 1,000 files, 50 MB: restored, against ``cp -r`` of the same; and looked through."""

import os
import shutil
import subprocess
from pathlib import Path
from statistics import median
from time import perf_counter

from journal.tools.manifest import Manifest
from journal.tools.snapshots import Snapshots
from journal.tools.working_tree import WorkingTree
from journal.tools.workspace import Quotas

FILES, SIZE = 1_000, 50_000


def measure(directory: Path, rounds: int) -> tuple[float, float, float, float]:
    """(seconds of a restore, those per second of a copy, seconds to look through it, those where one was changed)."""
    snapshots = Snapshots(str(directory / "root"))
    snapshots.prepare(snapshots.place_of("r", b""))
    place = f"{snapshots.place_of('r', b'')}/trees"
    first = WorkingTree(snapshots.objects, f"{place}/first", Quotas())
    first.bring(Manifest())
    for number in range(FILES):
        path = Path(first.path, f"d{number // 100}", f"f{number}")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(os.urandom(SIZE))
    manifest = first.scan().manifest
    os.sync()
    restored, ratios, looked, changed = [], [], [], []
    for number in range(rounds):
        tree = WorkingTree(snapshots.objects, f"{place}/{number}", Quotas())
        started = perf_counter()
        tree.bring(manifest)
        restored.append(perf_counter() - started)
        started = perf_counter()
        subprocess.run(["cp", "-r", first.path, directory / "copy"], check=True)
        ratios.append(restored[-1] / (perf_counter() - started))
        started = perf_counter()
        tree.scan()
        looked.append(perf_counter() - started)
        Path(tree.path, "d0", "f1").write_bytes(os.urandom(SIZE))
        started = perf_counter()
        snapshots.save(snapshots.place_of("r", b""), tree.scan().manifest)
        changed.append(perf_counter() - started)
        tree.remove()
        shutil.rmtree(directory / "copy")
    shutil.rmtree(directory / "root")
    return median(restored), median(ratios), median(looked), median(changed)
