"""Which versions of this package may work side by side on one store.

A migration that only adds ("expand") lets code of older schemas go on; one that takes away or changes a meaning
("contract") ends that. Each states it in a line of its own, ``-- compatible from: 2``: the oldest schema whose code may
still work with the store. One that states nothing ends it for all before. Where it is kept: `sqlite/migrate.py`,
`postgres/schema.py`, `redis/server.py`.
"""

import re
from collections.abc import Iterable

from journal.core.errors import WorldTooNew

_STATEMENT = re.compile(r"^-- compatible from: (\d+)$", re.MULTILINE)


def stated(script: str) -> int | None:
    """What a migration says of older code."""
    found = _STATEMENT.search(script)
    return None if found is None else int(found[1])


def compatible_from(number: int, migrations: Iterable[tuple[int, str]]) -> int:
    """The oldest schema whose code may work with a store that has been carried to `number`."""
    return max(stated(script) or own for own, script in migrations if own <= number)


def check_compatible(*, found: int, compatible: int, known: int, world: str) -> None:
    """Raise `WorldTooNew` if code that knows schemas up to `known` may not work with a store of schema `found`."""
    if found > known and compatible > known:
        raise WorldTooNew(
            f"it has schema {found}, which is for versions that know schema {compatible} or newer; "
            f"this one knows up to {known}: upgrade durable-journal here",
            world=world,
        )
