"""`python -m benchmarks [--json] [--check] [CASE ...]`: measure, print, and fail below a target if asked to."""

import logging
import sys
import tempfile
from pathlib import Path

import click
import msgspec

from benchmarks.cases import ARE_PEERS_HERE, BY_DEFAULT, CASES, ON_SQLITE, Setting
from benchmarks.footprint import loop_ms
from benchmarks.report import Result, print_json, print_table
from benchmarks.stores import STORES


@click.command(help="Measure what durability costs, as ratios to the raw store on the same disk.")
@click.argument("cases", nargs=-1, type=click.Choice([*CASES, "all"]))
@click.option(
    "--world",
    "worlds",
    multiple=True,
    type=click.Choice(list(STORES)),
    default=["sqlite"],
    show_default=True,
    help="The store to measure; may be given more than once. Servers come from wheels.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line on stdout.")
@click.option(
    "--plot",
    "picture",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw the ratios into this file (.svg).",
)
@click.option("--check", is_flag=True, help="Exit with 1 if a target is missed.")
@click.option("--seconds", default=1.0, show_default=True, help="Length of one measuring window.")
@click.option(
    "--rounds", default=7, show_default=True, help="Windows of ours, between raw ones; medians are told."
)
@click.option(
    "--dir",
    "place",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path(),
    help="A directory on the disk to measure (default: the working directory).",
)
def main(
    cases: tuple[str, ...],
    worlds: tuple[str, ...],
    as_json: bool,
    picture: Path | None,
    check: bool,
    seconds: float,
    rounds: int,
    place: Path,
) -> None:
    """Run the cases on each store, each in a directory of its own that is removed again."""
    # `replay` and `resume` fail turns on purpose, so that they are tried again; that is no news.
    logging.getLogger("journal").setLevel(logging.ERROR)
    results: list[Result] = []
    for world in worlds:
        wanted = tuple(CASES) if "all" in cases else cases or BY_DEFAULT
        if not cases and not ARE_PEERS_HERE:
            sys.stderr.write("DBOS and LangGraph are not measured: they need the extra bench\n")
        names = [name for name in wanted if world == "sqlite" or name not in ON_SQLITE]
        for name in names:
            with (
                tempfile.TemporaryDirectory(prefix=".journal-bench-", dir=place) as directory,
                STORES[world](Path(directory)) as store,
            ):
                for found in CASES[name](Setting(Path(directory), seconds, rounds), store):
                    result = msgspec.structs.replace(found, loop_ms=found.loop_ms or loop_ms())
                    results.append(result)
                    if as_json:
                        print_json(result)
    if not as_json:
        print_table(results, place)
    if picture is not None:
        from benchmarks.plot import plot

        plot(results, picture, place)
    missed = [result for result in results if not result.is_met]
    for result in missed:
        as_line = msgspec.json.encode(result).decode()
        sys.stderr.write(f"{result.name} misses {result.target}: {as_line}\n")
    if check and missed:
        sys.exit(1)


if __name__ == "__main__":
    main()
