"""The schema: what number the file has, and the way forward from there.

Migrations are numbered and go forward only; each is one transaction that ends by raising `user_version`, and by noting
in `versions` which older code may go on (`worlds/versions.py`). They run behind the turnstile, so that several
processes that open a new file together make one schema.
"""

import errno
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from journal.core.errors import WorldCorrupt, WorldReadOnly
from journal.worlds.sqlite.statements import migrations
from journal.worlds.versions import check_compatible, compatible_from

APPLICATION_ID = 0x4A524E4C
"""`JRNL`: what `file` and the next reader tell our databases by."""
_VERSIONS = (
    "create table if not exists versions (version integer primary key, compatible_from integer not null)"
)


def prepare_path(path: Path) -> None:
    """Make the directory and the file, for this user alone, where they are missing. Raises `OSError`."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        # Never opened if it exists: closing a descriptor would drop the locks of an open connection.
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path)) from None
        return
    os.close(fd)


def migrate(connection: sqlite3.Connection, url: str) -> None:
    """Bring the file to our schema, unless it has a newer one that we may work with. Under the turnstile.

    Raises `WorldTooNew`, and `WorldCorrupt` for a file that is no journal. One that is cut short is found by SQLite.
    """
    found: int = connection.execute("pragma user_version").fetchone()[0]
    _check_kind(connection, found, url)
    scripts = _pending(connection, found, url)
    if connection.execute("pragma journal_mode").fetchone()[0] != "wal":
        connection.execute("pragma journal_mode = wal")
    for script in scripts:
        try:
            connection.executescript(script)
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("rollback")
            raise


def refuse_strangers(path: Path, url: str) -> None:
    """Raise `WorldCorrupt` for a file that is no database of ours, before anything is made beside it.

    What cannot be told without a lock is left to `migrate`.
    """
    # Where there is a write-ahead log the database may stand in it; without one the file alone is looked at.
    how = "mode=ro" if os.path.exists(f"{path}-wal") else "immutable=1"
    with closing(sqlite3.connect(f"{path.as_uri()}?{how}", uri=True)) as connection:
        try:
            found: int = connection.execute("pragma user_version").fetchone()[0]
            _check_kind(connection, found, url)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_NOTADB:
                raise WorldCorrupt(
                    "this file is no database: give another path, or, if it was a store, restore it from a backup",
                    world=url,
                ) from error


def check_schema(connection: sqlite3.Connection, url: str) -> None:
    """Raise `WorldReadOnly` unless the schema is one that can be read as it is; else as `migrate` does."""
    found: int = connection.execute("pragma user_version").fetchone()[0]
    _check_kind(connection, found, url)
    if _pending(connection, found, url):
        raise WorldReadOnly(
            f"it cannot be written, and its schema {found} is older than ours: copy the file, with those beside it, to "
            "a directory of your own, and read it there",
            world=url,
        )


def pending_script(path: Path, url: str) -> str:
    """What `migrate` would run on that file, which need not be there; empty if its schema is ours. Raises likewise."""
    place = f"{path.as_uri()}?mode=ro" if path.exists() else "file::memory:"
    with closing(sqlite3.connect(place, uri=True)) as connection:
        found: int = connection.execute("pragma user_version").fetchone()[0]
        _check_kind(connection, found, url)
        scripts = _pending(connection, found, url)
    return "\n".join([*([] if found else ["pragma journal_mode = wal;"]), *scripts, ""]) if scripts else ""


def _pending(connection: sqlite3.Connection, found: int, url: str) -> list[str]:
    """The missing migrations, a transaction each."""
    known = migrations()
    if found > len(known):
        compatible = _compatible_from(connection, found)
        check_compatible(found=found, compatible=compatible, known=len(known), world=url)
    return [
        f"begin immediate;\n{script}\n{_VERSIONS};\n"
        f"insert into versions values ({number}, {compatible_from(number, known)});\n"
        f"pragma application_id = {APPLICATION_ID};\npragma user_version = {number};\ncommit;"
        for number, script in known[found:]
    ]


def _compatible_from(connection: sqlite3.Connection, found: int) -> int:
    """What the file says of older code; none may go on if it says nothing, as before there was `versions`."""
    if not connection.execute("select count(*) from sqlite_schema where name = 'versions'").fetchone()[0]:
        return found
    row = connection.execute("select compatible_from from versions where version = ?", (found,)).fetchone()
    return found if row is None else int(row[0])


def _check_kind(connection: sqlite3.Connection, version: int, url: str) -> None:
    kind, tables = (
        connection.execute(statement).fetchone()[0]
        for statement in ("pragma application_id", "select count(*) from sqlite_schema")
    )
    if kind != APPLICATION_ID and (kind or version or tables):
        raise WorldCorrupt("this is the database of another program: give another path", world=url)
