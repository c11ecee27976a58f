"""What is measured. A case yields its results as soon as they stand; `CASES` names them all."""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import msgspec

from benchmarks import door, footprint, replaying, restoring, resuming
from benchmarks import files as changing
from benchmarks.conversation import log_ratio
from benchmarks.engine import Engine, engine
from benchmarks.latency import follow_ms, wake_ms
from benchmarks.peers.peer import Peer, recovered
from benchmarks.raw import RawSqlite
from benchmarks.report import Result
from benchmarks.stores import Store

RUNS_AT_ONCE = 50
LONG_RUN = 100_000
FEW_RUNS, MANY_RUNS = 10, 1_000_000
REPLAYED_CALLS = 2_000
RESUMED_TIMES = 3
RECOVERED_STEPS = 200
SNAPSHOT_SECONDS = 60.0
WORK_SECONDS = 150e-6
"""About what a step computes between two commits."""


class Setting(msgspec.Struct, frozen=True):
    """Where and how long to measure."""

    directory: Path
    """On the disk in question; emptied by whoever made it."""
    seconds: float = 1.0
    """Length of one window."""
    rounds: int = 7
    """How many windows of ours."""


Rate = Callable[[float], Awaitable[float]]
Case = Callable[[Setting, Store], Iterator[Result]]


async def beside_raw(setting: Setting, store: Store, ours: Rate) -> tuple[float, float]:
    """Our rate, and its ratio to the raw one: medians over windows that alternate with raw ones.

    Each of our windows is compared with the two raw windows around it, since the disk of a shared machine may be
    several times slower a few seconds later.
    """
    rates: list[float] = []
    ratios: list[float] = []
    with store.raw() as raw:
        before = raw.rate(setting.seconds)
        for _ in range(setting.rounds):
            rates.append(await ours(setting.seconds))
            after = raw.rate(setting.seconds)
            ratios.append(rates[-1] * 2 / (before + after))
            before = after
    return median(rates), median(ratios)


def _door(setting: Setting, store: Store, name: str, count: int) -> Result:
    async def measure() -> tuple[float, float]:
        async with door.holders(store.fresh_url(), count) as team:
            return await beside_raw(setting, store, lambda seconds: door.append_rate(team, seconds))

    rate, ratio = asyncio.run(measure())
    return Result(name, store.world, rate, "appends/s", "raw", ratio)


def door_one(setting: Setting, store: Store) -> Iterator[Result]:
    """The door, one run: a durable commit an append."""
    yield _door(setting, store, "door", 1)


def door_many(setting: Setting, store: Store) -> Iterator[Result]:
    """The door, fifty runs at once: they share their commits."""
    yield _door(setting, store, "door_concurrent", RUNS_AT_ONCE)


def _steps(setting: Setting, store: Store, name: str, runs: int) -> Result:
    async def measure() -> tuple[float, float]:
        async with engine(store.fresh_url()) as opened:
            return await beside_raw(setting, store, lambda seconds: opened.rate(seconds, runs))

    rate, ratio = asyncio.run(measure())
    return Result(name, store.world, rate, "steps/s", "raw", ratio)


def sequential(setting: Setting, store: Store) -> Iterator[Result]:
    """One run, one safe step after another."""
    yield _steps(setting, store, "sequential", 1)


def concurrent(setting: Setting, store: Store) -> Iterator[Result]:
    """Fifty runs at once: they share their commits."""
    yield _steps(setting, store, "concurrent", RUNS_AT_ONCE)


def _peers(setting: Setting, store: Store, name: str, runs: int) -> Iterator[Result]:
    """Ours and the peers' in windows that alternate; each peer in its own process and its own store."""

    async def measure(peers: dict[str, Peer]) -> dict[str, tuple[float, float]]:
        async with engine(store.fresh_url()) as opened:
            await opened.rate(setting.seconds / 2, runs)
            found: dict[str, tuple[float, float]] = {}
            for peer, process in peers.items():
                rates: list[float] = []
                ratios: list[float] = []
                before = await opened.rate(setting.seconds, runs)
                for _ in range(setting.rounds):
                    rates.append(process.rate(setting.seconds))
                    # Of ours before and behind: the processor changes its pace within seconds.
                    behind = await opened.rate(setting.seconds, runs)
                    ratios.append((before + behind) / 2 / rates[-1])
                    before = behind
                found[peer] = median(rates), median(ratios)
            return found

    with tempfile.TemporaryDirectory(dir=setting.directory) as place, ExitStack() as stack:
        peers = {
            peer: stack.enter_context(Peer(peer.partition("-")[0], url, runs))
            for peer, url in store.peers(runs, Path(place)).items()
        }
        for peer in peers.values():
            peer.rate(0.1)
        for versus, (rate, ratio) in asyncio.run(measure(peers)).items():
            yield Result(name, store.world, rate, "steps/s of it", versus, ratio)


def peers_sequential(setting: Setting, store: Store) -> Iterator[Result]:
    """One run, beside DBOS, absurd and LangGraph on the same kind of store."""
    yield from _peers(setting, store, "sequential", 1)


def peers_concurrent(setting: Setting, store: Store) -> Iterator[Result]:
    """Fifty runs at once, beside DBOS and absurd."""
    yield from _peers(setting, store, "concurrent", RUNS_AT_ONCE)


def peers_recovery(setting: Setting, store: Store) -> Iterator[Result]:
    """A recorded step served again after the process was lost: beside DBOS, in windows that alternate.

    LangGraph goes on from its last checkpoint and runs no code before it again, so there is nothing to compare.
    """
    rounds = max(1, setting.rounds // 2)
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(dir=setting.directory) as place:
        for number in range(rounds):
            own = Path(place) / str(number)
            own.mkdir()
            for peer, url in store.peers(RUNS_AT_ONCE, own).items():
                if peer.startswith("dbos"):
                    ours, _ = asyncio.run(replaying.replayed(store.fresh_url(), REPLAYED_CALLS))
                    theirs = recovered(url, RECOVERED_STEPS)
                    found.setdefault(peer, []).append((theirs, theirs / ours.per_call))
    for peer, pairs in found.items():
        value, ratio = median(seconds for seconds, _ in pairs), median(ratio for _, ratio in pairs)
        yield Result("recovery", store.world, value * 1e6, "µs a step of it", peer, ratio)


def latency(setting: Setting, store: Store) -> Iterator[Result]:
    """From a submit to the start of its work in an idle worker, and from a record to its follower, across processes."""
    count = max(20, int(setting.rounds * setting.seconds * 30))
    half, most = wake_ms(store.fresh_url(), count)
    yield Result("wake", store.world, half, "ms p50", "p99, ms", most)
    half, most = follow_ms(store.fresh_url(), count)
    yield Result("follow", store.world, half, "ms p50", "p99, ms", most)


def length(setting: Setting, store: Store) -> Iterator[Result]:
    """An append to a run of a hundred thousand records, against one to a short run: a step must not become dearer."""

    async def measure() -> tuple[float, float]:
        rates: list[float] = []
        ratios: list[float] = []
        async with door.holders(store.fresh_url(), 2) as (short, long):
            await long.fill(LONG_RUN)
            for _ in range(setting.rounds):
                before = await door.append_rate([short], setting.seconds)
                rates.append(await door.append_rate([long], setting.seconds))
                ratios.append(rates[-1] / before)
        return median(rates), median(ratios)

    rate, ratio = asyncio.run(measure())
    yield Result("length", store.world, rate, "appends/s", "a short run", ratio)


def runs(setting: Setting, store: Store) -> Iterator[Result]:
    """Steps, and new runs of one step each, beside a million runs that wait, against a store with ten of them."""
    few, many = store.fresh_url(), store.fresh_url()
    asyncio.run(door.let_wait(few, FEW_RUNS))
    asyncio.run(door.let_wait(many, MANY_RUNS))
    store.settle()

    async def measure(rate: Callable[[Engine], Awaitable[float]]) -> tuple[float, float]:
        rates: list[float] = []
        ratios: list[float] = []
        async with engine(few) as small, engine(many) as large:
            before = await rate(small)
            for _ in range(setting.rounds):
                rates.append(await rate(large))
                behind = await rate(small)
                ratios.append(rates[-1] * 2 / (before + behind))
                before = behind
        return median(rates), median(ratios)

    versus = f"{FEW_RUNS} runs"
    rate, ratio = asyncio.run(measure(lambda found: found.rate(setting.seconds, 1)))
    yield Result("runs", store.world, rate, "steps/s", versus, ratio)
    rate, ratio = asyncio.run(measure(lambda found: found.rate(setting.seconds, RUNS_AT_ONCE)))
    yield Result("runs_concurrent", store.world, rate, "steps/s", versus, ratio)
    rate, ratio = asyncio.run(measure(lambda found: found.turn_rate(setting.seconds, RUNS_AT_ONCE)))
    yield Result("runs_turns", store.world, rate, "new runs/s", versus, ratio)


def snapshot(setting: Setting, store: Store) -> Iterator[Result]:
    """Fifty runs at once while somebody holds a snapshot open for a minute: the last quarter against the first."""
    if store.hold_snapshot is None:
        return
    hold = store.hold_snapshot

    async def measure() -> tuple[float, float]:
        async with engine(store.fresh_url()) as opened:
            await opened.rate(setting.seconds, RUNS_AT_ONCE)
            with hold():
                rates = [await opened.rate(SNAPSHOT_SECONDS / 4, RUNS_AT_ONCE) for _ in range(4)]
        return rates[-1], rates[-1] / rates[0]

    rate, ratio = asyncio.run(measure())
    yield Result("snapshot", store.world, rate, "steps/s", "its first 15 s", ratio)


def paced(setting: Setting, _: Store) -> Iterator[Result]:
    """The raw SQLite where its caller computes between commits, as every program does.

    A disk that was left alone for a moment answers later than one that is kept busy.
    """
    rates: list[float] = []
    ratios: list[float] = []
    with RawSqlite(setting.directory) as store:
        for _round in range(setting.rounds):
            tight = store.rate(setting.seconds)
            rates.append(store.paced_rate(setting.seconds, WORK_SECONDS))
            ratios.append(rates[-1] / tight)
    yield Result("paced", "raw", median(rates), "commits/s", "raw", median(ratios))


def memory(setting: Setting, _: Store) -> Iterator[Result]:
    """What one run's process takes on between its 10,000th and its 100,000th step."""
    command = [sys.executable, "-m", "benchmarks.engine", f"sqlite:{setting.directory}/memory.db"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    growth, total = map(int, done.stdout.split())
    versus = f"after {footprint.FEW:,} steps"
    yield Result("memory", "sqlite", growth / footprint.MIB, "MiB", versus, total / (total - growth))


def conversation(_: Setting, store: Store) -> Iterator[Result]:
    """The log of 500 model calls whose conversation grows, against the conversation as it ended."""
    size, ratio = asyncio.run(log_ratio(store.fresh_url()))
    yield Result("conversation", store.world, size / 1024, "KiB", "its transcript", ratio)


def replay(setting: Setting, store: Store) -> Iterator[Result]:
    """A recorded call served again, what is observed, the fold, and the resume of a turn of 100,000 records.

    What only computes is told of the quickest round: other processes on the machine can only add to it.
    """
    times: dict[str, list[tuple[float, float]]] = {}
    folds: list[tuple[float, float]] = []
    for _round in range(setting.rounds):
        found, records = asyncio.run(replaying.replayed(store.fresh_url(), REPLAYED_CALLS))
        for name, seconds in {"replay": found.per_call, **found.observed}.items():
            times.setdefault(name, []).append((seconds, found.loop_ms))
        folds.append(replaying.fold_rates(records))
    for name, found_times in times.items():
        seconds, loop = min(found_times)
        yield Result(name, store.world, seconds * 1e6, "µs a call", "", None, loop)
    ours, bare = (max(rates) for rates in zip(*folds, strict=True))
    yield Result("fold", store.world, ours, "records/s", "msgspec alone", ours / bare)
    resumed = [
        asyncio.run(replaying.replayed(store.fresh_url(), LONG_RUN // 2))[0]
        for _round in range(min(setting.rounds, RESUMED_TIMES))
    ]
    seconds, loop = min((found.first_live - found.started, found.loop_ms) for found in resumed)
    yield Result("resume", store.world, seconds, "s to the first live call", "", None, loop)


def resume_turns(_: Setting, store: Store) -> Iterator[Result]:
    """Going on with a run of a hundred thousand records in many turns, whose documents and files they changed."""
    seconds = asyncio.run(resuming.resumed(store.fresh_url(), LONG_RUN))
    yield Result("resume_turns", store.world, seconds * 1e3, "ms to the first live call", "", None)


def files(setting: Setting, store: Store) -> Iterator[Result]:
    """A step that changes one of 10,000 files, against one that changes none; a turn that begins on it; the fold.

    Beside the time that elapses, most of which is the disk's, the processor's.
    """
    found, start = asyncio.run(changing.measure(store.fresh_url(), setting.rounds * 3))
    yield Result("files", store.world, found.elapsed * 1e6, "µs", "a step without", found.elapsed_ratio)
    yield Result("files_cpu", store.world, found.cpu * 1e6, "µs of cpu", "a step without", found.cpu_ratio)
    yield Result("files_fold", store.world, changing.fold_rate(), "records/s of cpu", "", None)
    yield Result("files_start", store.world, start * 1e3, "ms to the turn", "", None)


def restore(setting: Setting, _: Store) -> Iterator[Result]:
    """A directory workspace of 1,000 files and 50 MB restored, against `cp -r`; a look through it; one file changed."""
    seconds, ratio, looked, changed = restoring.measure(setting.directory, setting.rounds * 3)
    yield Result("restore", "-", seconds * 1e3, "ms", "cp -r", ratio)
    yield Result("restore_look", "-", looked * 1e3, "ms", "", None)
    yield Result("restore_changed", "-", changed * 1e3, "ms to the snapshot", "", None)


def import_time(_: Setting, _store: Store) -> Iterator[Result]:
    """`import journal`, over bare Python."""
    bare, full = footprint.import_ms("journal")
    yield Result("import", "-", full - bare, "ms", "bare python", full / bare)


CASES: dict[str, Case] = {
    "sequential": sequential,
    "concurrent": concurrent,
    "door": door_one,
    "door_concurrent": door_many,
    "latency": latency,
    "length": length,
    "runs": runs,
    "snapshot": snapshot,
    "peers_sequential": peers_sequential,
    "peers_concurrent": peers_concurrent,
    "peers_recovery": peers_recovery,
    "replay": replay,
    "resume_turns": resume_turns,
    "paced": paced,
    "memory": memory,
    "conversation": conversation,
    "files": files,
    "restore": restore,
    "import": import_time,
}
ON_SQLITE = frozenset(
    {"replay", "resume_turns", "paced", "memory", "conversation", "files", "restore", "import"}
)
"""Those that are measured once, with the embedded default."""
ARE_PEERS_HERE = all(find_spec(name) is not None for name in ("dbos", "langgraph"))
"""Whether the extra `bench` is installed."""
_LONG = frozenset({"runs", "snapshot"})
"""A minute, and several to make a million runs: `python -m benchmarks all`."""
BY_DEFAULT = tuple(
    name for name in CASES if name not in _LONG and (ARE_PEERS_HERE or not name.startswith("peers_"))
)
