"""The SQL of this world, read from `.sql` files, with the name of the schema put in.

`statements.sql` holds one named statement each, with the reason for its shape there; `functions/` what runs in the
server, where a decision and the write that rests on it are one round trip; `migrations/` the tables.
"""

import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_FOLDER = files("journal.worlds.postgres")
_PARAMETER = re.compile(r"%\((\w+)\)s")


def _sql_files(name: str) -> list[Traversable]:
    found = [entry for entry in _FOLDER.joinpath(name).iterdir() if entry.name.endswith(".sql")]
    return sorted(found, key=lambda entry: entry.name)


def _in_schema(text: str, schema: str) -> str:
    """`schema` was checked to be a plain identifier when the URL was read."""
    return text.replace("{schema}", f'"{schema}"')


@cache
def statements(schema: str) -> dict[str, str]:
    """Statement by name."""
    found: dict[str, str] = {}
    text = _in_schema(_FOLDER.joinpath("statements.sql").read_text(encoding="utf-8"), schema)
    for part in text.split("-- name: ")[1:]:
        name, _, body = part.partition("\n")
        lines = [line for line in body.splitlines() if not line.startswith("--")]
        found[name.strip()] = "\n".join(lines).strip().rstrip(";")
    return found


def numbered(statement: str) -> str:
    """The statement with $1, $2 … in place of its named parameters, in the order in which they first come."""
    names: dict[str, str] = {}
    return _PARAMETER.sub(lambda found: names.setdefault(found[1], f"${len(names) + 1}"), statement)


def migrations(schema: str) -> list[tuple[int, str]]:
    """Number and SQL of every migration, in order."""
    return [
        (int(entry.name[:4]), _in_schema(entry.read_text(encoding="utf-8"), schema))
        for entry in _sql_files("migrations")
    ]


def functions(schema: str) -> list[str]:
    """The SQL of every file of functions."""
    return [_in_schema(entry.read_text(encoding="utf-8"), schema) for entry in _sql_files("functions")]
