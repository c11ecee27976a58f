"""The parameters of a store URL: one that nobody knows is refused, since it may be a safety that was misspelt."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

from journal.core.errors import WorldUnknown


def check_parameters(
    given: Iterable[str], known: Collection[str], *, world: str, more: Collection[str] = (), others: str = ""
) -> None:
    """Raise `WorldUnknown` for a name in `given` that is neither in `known` nor in `more`.

    `known` are named in the error, `more` (the driver's own, say) only by `others`; `world` is the URL as printed.
    """
    for name in given:
        if name in known or name in more:
            continue
        near = get_close_matches(name, [*known, *more], n=1)
        hint = f": is it {near[0]}=?" if near else ""
        have = ", ".join(sorted(known)) if known else "none"
        also = f", and {others}" if others else ""
        raise WorldUnknown(f"it has no parameter {name!r}{hint} (there are: {have}{also})", world=world)
