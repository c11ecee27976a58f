"""The picture beside the table: our rate as a multiple of the others'. Needs matplotlib (extra `bench`)."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import Result, machine

_SHOWN = {"sequential": "1 run", "concurrent": "50 runs", "recovery": "recovered steps"}


def plot(results: Sequence[Result], path: Path, place: Path) -> None:
    """Bars, one a comparison, on a logarithmic scale; the dashed line is parity."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    shown = [r for r in results if r.name in _SHOWN and r.ratio is not None]
    labels = [f"{r.world}, {_SHOWN[r.name]} vs {r.versus}" for r in shown]
    figure, axes = plt.subplots(figsize=(9, 0.4 * len(shown) + 1.6))
    bars = axes.barh(
        labels,
        [r.ratio or 0.0 for r in shown],
        color=["#888" if r.versus == "raw" else "#27c" for r in shown],
    )
    axes.bar_label(bars, fmt="%.1fx", padding=3)
    axes.axvline(1.0, linestyle="--", color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.invert_yaxis()
    axes.set_title("durable-journal, steps a second, as a multiple")
    figure.text(0.01, 0.005, machine(place), fontsize=6)
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    figure.savefig(path)
