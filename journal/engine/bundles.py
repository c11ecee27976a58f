"""Runs to files and back: what `journal export` and `journal import` do, and `open_bundle` for whoever reads one.

An export is whole or not there. Next: `replay/bundle.py` has the format.
"""

import os
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

import msgspec
from anyio import to_thread

from journal.core.errors import BundleError, RunBuilding, RunGone, RunTooNew
from journal.core.ports import RunInfo, World
from journal.core.records import MIN_READER, Record
from journal.engine.digest import PIECE_ROWS, digest
from journal.replay.bundle import Bundle, Header, blob_line, header_line, record_line


@contextmanager
def open_bundle(path: str | os.PathLike[str]) -> Iterator[Bundle]:
    """Open an exported run, and check all of it. Raises a `BundleError` that names the file and the line."""
    name = os.fspath(path)
    with ExitStack() as stack:
        try:
            if not stat.S_ISREG(os.stat(name).st_mode):
                raise BundleError("it is no file: save it as one first", path=name)
            bundle = Bundle(stack.enter_context(Path(name).open("rb")), name)
        except (OSError, ValueError) as error:
            raise _unreadable(error, name) from error
        yield bundle


def _unreadable(error: OSError | ValueError, path: str) -> BundleError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return BundleError(f"it cannot be read ({reason}): check its name", path=path)


class BundleSource:
    """An open file as a run is read elsewhere (`digest.Source`)."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle

    async def read(self, run: str, *, after: int = 0, limit: int = 500) -> list[Record]:
        """See `Log.read`."""
        return list(self._bundle.records(after=after, upto=after + limit))

    async def get_blob(self, run: str, blob: str) -> bytes:
        """See `Log.get_blob`."""
        return self._bundle.blob(blob)


def info_of(bundle: Bundle) -> RunInfo:
    """The run as it stood in the store that it was exported from."""
    image = bundle.image
    return RunInfo(
        run=image.run,
        agent=image.agent,
        namespace=bundle.header.namespace,
        status="running" if image.held else image.status,
        closed=image.closed is not None,
        head=image.head,
        created=image.created,
        turn=next((turn.turn for turn in image.turns if turn.finished is None), None),
        turns=len(image.turns),
        epoch=image.epoch,
        takeovers=image.takeovers,
        due_at=image.due_at,
        position=0,
    )


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What was exported."""

    run: str
    records: int
    blobs: int
    digest: str
    """Of its records and blobs, in hexadecimal: the same for the same run in any store or file."""


async def header_of(world: World, run: str) -> Header:
    """The first line of an export. Raises `RunNotFound`, `RunGone`, `RunBuilding`, `RunTooNew`, as reading does."""
    image = await world.image(run)
    if image.moved_to is not None:
        raise RunGone(run_id=run, to=image.moved_to)
    if image.building:
        raise RunBuilding(run_id=run)
    if image.min_reader > MIN_READER:
        raise RunTooNew(run_id=run, min_reader=image.min_reader, reads=MIN_READER)
    return Header(namespace=world.namespace, digest=(await digest(world, image)).hex(), image=image)


async def lines(world: World, header: Header) -> AsyncIterator[bytes]:
    """The file that `header` begins, in pieces. Raises what reading raises, and `ValueTooLarge`."""
    image = header.image
    yield header_line(header)
    after = 0
    while after < image.head:
        page = await world.read(image.run, after=after, limit=min(PIECE_ROWS, image.head - after))
        yield b"".join(record_line(record) for record in page)
        after = page[-1].seq
    for blob in image.blobs:
        yield blob_line(blob, await world.get_blob(image.run, blob))


async def export_to(world: World, run: str, path: str | os.PathLike[str]) -> Exported:
    """Write the run to a file, read it back, and only then give it its name: it replaces what was there.

    Readable by its owner alone, since all that users and models said is in it. Raises what `header_of` and `lines`
    raise, and a `BundleError` if the file cannot be written.
    """
    name = os.fspath(path)
    await to_thread.run_sync(_check_replaceable, name)
    header = await header_of(world, run)
    try:
        with NamedTemporaryFile(dir=Path(name).parent, prefix=".export-", delete=False) as file:
            try:
                async for piece in lines(world, header):
                    await to_thread.run_sync(file.write, piece)
                await to_thread.run_sync(_finish, file.name, file, name)
            except BaseException:
                _drop(file.name)
                raise
    except OSError as error:
        raise BundleError(f"it cannot be written ({error.strerror or error})", path=name) from error
    image = header.image
    return Exported(run=run, records=image.head, blobs=len(image.blobs), digest=header.digest)


def _check_replaceable(name: str) -> None:
    if os.path.exists(name) and not os.path.isfile(name):
        raise BundleError(
            "it is a device, a pipe or a directory, and is not replaced: name a file", path=name
        )


def _finish(written: str, file: IO[bytes], name: str) -> None:
    file.flush()
    os.fsync(file.fileno())
    with open_bundle(written):
        pass
    os.replace(written, name)


def _drop(written: str) -> None:
    Path(written).unlink(missing_ok=True)
