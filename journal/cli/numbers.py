"""Numbers on the command line: what is no such number is told in our words, with one that would do."""

from collections.abc import Callable
from typing import TypeVar

import click

N = TypeVar("N", int, float)


def number(
    kind: Callable[[str], N], what: str, *, least: int | None = None, most: int | None = None, such_as: int
) -> Callable[[str], N]:
    """The type of an option: an int or a float from `least` to `most`, None for no bound."""

    def read(text: str) -> N:
        try:
            found = kind(text)
            is_number = found == found
        except ValueError:
            is_number = False
        if not is_number:
            why = "no whole number" if kind is int else "no number"
        elif least is not None and found < least:
            why = f"less than {least}"
        elif most is not None and found > most:
            why = f"more than {most:,}"
        else:
            return found
        raise click.BadParameter(f"{str(text)!r} is {why}: give {what}, such as {such_as}")

    read.__name__ = "integer" if kind is int else "float"  # what --help shows where there is no metavar
    return read


call_number = number(int, "the number of a call (journal show RUN has them, from 1 on)", least=1, such_as=3)
record_number = number(
    int, "the number of a record (journal log RUN has them, from 1 on)", least=1, such_as=12
)
seconds = number(float, "seconds", least=0, such_as=30)
