"""What the command line calls for `journal demo`: play it, then print the timeline, or one JSON object."""

import sys
from importlib.util import find_spec

import msgspec
from rich.console import Console

from journal.demo.scenario import Demo, play
from journal.demo.timeline import from_counts, from_state, render


def main(*, url: str | None = None, as_json: bool = False) -> int:
    """Play it in the store of `url` (None: one that is gone afterwards).

    Returns the exit code, 0. Where the Agents SDK is not installed, the agent is a loop written by hand.

    JSON goes to stdout and nothing else does; what is for people goes to stderr.
    """
    console = Console(stderr=True)
    is_by_hand = find_spec("agents") is None
    if is_by_hand:
        console.print(
            "Without the OpenAI Agents SDK (pip install 'durable-journal[demo]') the agent is a loop written by hand.",
            markup=False,
            highlight=False,
        )
    with console.status(
        "A worker is killed inside a refund, the next inside a model call, a third carries on"
    ):
        demo = play(url, is_by_hand=is_by_hand)
    if as_json:
        sys.stdout.write(msgspec.json.encode(demo.summary()).decode() + "\n")
    else:
        show(demo, console)
    return 0


def show(demo: Demo, console: Console) -> None:
    """Both timelines, and under them what they cost."""
    left = ("With the journal", from_state(demo.run))
    right = ("The same script without it", from_counts(demo.plain.happened))
    console.print(render(left, right))
    for name, played in (("with", demo.durable), ("without", demo.plain)):
        times = "once" if played.refunds == 1 else f"{played.refunds} times"
        console.print(
            f"{name:>8} the journal: {played.model_calls_paid} model calls paid, refunded {times}",
            highlight=False,
        )
    console.print(f"Played with real processes and SIGKILL in {demo.seconds:.1f} s.", highlight=False)
    console.print("Try it by hand: examples/refunds.py says when to kill it.", highlight=False)
