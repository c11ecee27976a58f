"""The SQL of this world, read from `statements.sql`: one named statement each, with the reason for its shape there."""

from importlib.resources import files

_FOLDER = files("journal.worlds.sqlite")


def _load() -> dict[str, str]:
    found: dict[str, str] = {}
    for part in _FOLDER.joinpath("statements.sql").read_text(encoding="utf-8").split("-- name: ")[1:]:
        name, _, text = part.partition("\n")
        lines = [line for line in text.splitlines() if not line.startswith("--")]
        found[name.strip()] = "\n".join(lines).strip().rstrip(";")
    return found


SQL = _load()
"""Statement by name."""


def migrations() -> list[tuple[int, str]]:
    """Number and SQL of every migration, in order."""
    folder = _FOLDER.joinpath("migrations")
    scripts = [entry for entry in folder.iterdir() if entry.name.endswith(".sql")]
    return sorted((int(entry.name[:4]), entry.read_text(encoding="utf-8")) for entry in scripts)
