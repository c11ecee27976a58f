"""What verbs that only look read from: a run in a store, or an exported one in a file. And inputs, put together."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from journal.cli.logs import configure_logs
from journal.cli.opening import open_journal, run
from journal.cli.settings import Settings
from journal.core.codec import open_record
from journal.core.errors import CallNotFound, InvalidId, LogError
from journal.core.ids import check_id
from journal.core.ports import RunImage, RunInfo, World
from journal.core.records import CallIntent, Record
from journal.engine.bundles import BundleSource, info_of, open_bundle
from journal.engine.digest import Source
from journal.engine.journal import Journal
from journal.replay.bundle import START, Bundle
from journal.replay.checkpoints import Checkpoints
from journal.replay.documents import Documents
from journal.replay.fold import RunFold
from journal.replay.inputs import Inputs, blobs_of, whole
from journal.replay.workspace import Workspace
from journal.worlds import world_exists

T = TypeVar("T")
F = TypeVar("F", Documents, Workspace, Checkpoints)
PAGE = 500
SUFFIX = ".jsonl"


@dataclass(frozen=True)
class Found:
    """The run that was named: how it stands, and where to read it."""

    info: RunInfo
    source: Source
    world: World | None = None
    """None: it is a file."""
    bundle: Bundle | None = None

    async def image(self) -> RunImage:
        """See `Transfer.image`."""
        if self.bundle is not None:
            return self.bundle.image
        assert self.world is not None
        return await self.world.image(self.info.run)

    async def get_blob(self, blob: str) -> bytes:
        """See `Log.get_blob`."""
        return await self.source.get_blob(self.info.run, blob)


def is_file(name: str) -> bool:
    """Whether RUN names a file: it begins as only paths do, or what is there begins as exports do.

    A file that merely has the name of a run (say, its output) does not get in the way.
    """
    if name.startswith(("/", "./", "../")):
        return True
    if not name:
        return False  # the path of the working directory
    try:
        check_id(name)
        with Path(name).open("rb") as file:
            return name.endswith(SUFFIX) or file.read(len(START)) == START
    except InvalidId:
        return Path(name).exists() or _is_like_a_file(name)
    except OSError:
        return False


def _is_like_a_file(name: str) -> bool:
    return "/" in name or Path(name).suffix[1:].isalpha()


def no_file(name: str) -> str | None:
    """What is to be said besides of a name that is no run, where it looks like a file's."""
    if not _is_like_a_file(name):
        return None
    is_there = Path(name).is_file()
    return f"the file {name!r} is no exported run" if is_there else f"there is no file {name!r} here"


def with_found(settings: Settings, name: str, main: Callable[[Found], Awaitable[T]]) -> T:
    """Run `main` on the run of that id in the store, or on the exported one in the file of that name."""
    if not is_file(name):

        async def in_store(journal: Journal) -> T:
            info = await journal.get(name)
            world = (await journal.runtime()).world
            return await main(Found(info, world, world))

        return run(settings, in_store, only_looks=True, besides=no_file(name))

    async def in_file() -> T:
        with open_bundle(name) as bundle:
            return await main(Found(info_of(bundle), BundleSource(bundle), bundle=bundle))

    configure_logs("debug" if settings.debug else "warning")
    return asyncio.run(in_file())


def check_file(settings: Settings, name: str, check: Callable[[Journal, Bundle], Awaitable[None]]) -> None:
    """Open an exported run; where there is no store yet, `check` it too: a refusal must not leave an empty one."""
    journal = open_journal(settings)

    async def check_alone(bundle: Bundle) -> None:
        if not callable(journal.url) and not await world_exists(journal.url):
            await check(journal, bundle)

    with open_bundle(name) as bundle:
        asyncio.run(check_alone(bundle))


async def records(found: Found, *, after: int = 0, upto: int | None = None) -> AsyncIterator[Record]:
    """Records with seq > `after`, up to `upto` or the end.

    A store refuses a page for one damaged record; what precedes it is given before the `LogError` is raised.
    """
    limit = PAGE
    while upto is None or after < upto:
        wanted = limit if upto is None else min(limit, upto - after)
        try:
            page = await found.source.read(found.info.run, after=after, limit=wanted)
        except LogError as damage:
            before = damage.seq - 1 - after
            if not 0 < before < wanted:
                raise
            limit = before
            continue
        for record in page:
            yield record
        if len(page) < wanted:
            return
        after = page[-1].seq


async def as_found(found: Found, state: F, at: int | None) -> F:
    """`state`, fed all records up to where call `at` began, or all. Raises `CallNotFound`."""
    upto = None if at is None else await place(found, at)
    async for record in records(found, upto=upto):
        state.add(record)
    return state


async def before_call(found: Found, number: int) -> int:
    """The seq of the record before the one in which that call began. Raises `CallNotFound`."""
    fold = RunFold()
    async for record in records(found):
        fold.add(record)
        if len(fold.state.calls) >= number:
            return record.seq - 1
    raise CallNotFound(run_id=found.info.run, call=number, calls=len(fold.state.calls))


async def place(found: Found, number: int) -> int | None:
    """As `before_call`; None for one more than the last call, which stands for the run as it is now."""
    try:
        return await before_call(found, number)
    except CallNotFound as error:
        if number == error.calls + 1:
            return None
        raise


async def fill(found: Found, fold: RunFold) -> None:
    """Put all inputs of the run together; what lies in blobs is fetched."""
    blobs: dict[str, bytes] = {}
    for call in fold.state.calls:
        given = fold.inputs.at(call.seq)
        for ref in () if given is None else blobs_of(given):
            if ref.blob not in blobs:
                blobs[ref.blob] = await found.get_blob(ref.blob)
    fold.fill(blobs)


class WholeInputs:
    """Whole inputs of the records of one run, which are given one after the other."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self._inputs: Inputs | None = None

    async def of(self, record: Record) -> bytes | None:
        """The input of the next record, put together if it is a difference; else it stands there by itself."""
        try:
            body = open_record(record)
            if self._inputs is None:
                if not isinstance(body, CallIntent) or body.difference is None:
                    return None
                self._inputs = Inputs()  # the first: from here on what came before it matters
                async for earlier in records(self._found, upto=record.seq - 1):
                    self._inputs.add(earlier, open_record(earlier))
            self._inputs.add(record, body)
            if (given := self._inputs.at(record.seq)) is None:
                return None
            blobs = {ref.blob: await self._found.get_blob(ref.blob) for ref in blobs_of(given)}
            return whole(given, blobs)
        except LogError:
            return None  # what stands in the record is shown
