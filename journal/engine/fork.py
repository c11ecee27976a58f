"""A new run that begins as another did, up to one of its calls: what `journal fork` does.

Built up in pieces like a copy from another store, and *building* until it is whole: nobody can claim it before. The
first record that is written says what it is forked from, and how far that was read; the rest follows from the
origin's log alone. So whoever gives the same command again goes on with it, also where two do at once. Next:
`replay/prefix.py`, which decides what is taken over.
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from journal.core import values
from journal.core.clock import Clock
from journal.core.codec import Blob, open_record, pack
from journal.core.errors import (
    CallNotFound,
    InvalidOptions,
    InvalidValue,
    RunBuilding,
    RunExists,
    RunGone,
    RunNotBuilding,
    RunNotFound,
    RunTooNew,
)
from journal.core.ids import check_id, new_token
from journal.core.ports import RunImage, World
from journal.core.records import MIN_READER, Origin, Record, RunCreated
from journal.core.typed import PLAIN
from journal.engine.bringing import POLL_SECONDS, bring
from journal.engine.bundles import BundleSource
from journal.engine.digest import PIECE_ROWS, Source
from journal.engine.importing import check_bundle
from journal.replay.bundle import Bundle
from journal.replay.prefix import Fork, Given, NoSuchCall, Part, Prefix

if TYPE_CHECKING:
    from journal.engine.journal import Journal

_TRIES = 5
"""How often it is gone on with where others build or settle the same fork meanwhile."""


class Forked(msgspec.Struct, frozen=True, kw_only=True):
    """A fork that is there."""

    run: str
    turn: str
    """The turn that it carries on."""
    is_new: bool
    """Whether this call completed it; it may have been there."""
    pinned: int
    """How many calls of the turn it took over."""
    unknown: tuple[int, ...]
    """Numbers of those that are in doubt in the origin, and unknown here."""
    repeats: tuple[str, ...]
    """Keys of `never` calls that the origin has started, and that the fork may start in its own name."""


async def fork_run(
    journal: "Journal",
    run_id: str,
    *,
    at: int,
    new_id: str | None = None,
    input: Any = msgspec.UNSET,  # noqa: A002 - the field's name everywhere
) -> Forked:
    """See `Journal.fork`."""
    world = (await journal.runtime()).world
    info = await world.run(check_id(run_id, "run id"))
    if info is None:
        raise RunNotFound(run_id=run_id, world=world.url)
    if info.moved_to is not None:
        raise RunGone(run_id=run_id, to=info.moved_to)
    if info.building:
        raise RunBuilding(run_id=run_id)
    data = _encoded(journal, info.agent, input)
    maker = Forking(world, world, run_id, at=at, new_id=new_id, data=data, clock=journal.clock)
    return await maker.carry_out()


async def fork_bundle(
    journal: "Journal",
    bundle: Bundle,
    *,
    at: int,
    new_id: str | None = None,
    input: Any = msgspec.UNSET,  # noqa: A002 - the field's name everywhere
) -> Forked:
    """The same of an exported run, in the journal's store: what the fork takes over is copied there, and nothing else.

    Raises `BundleDamaged` before anything is written, `InvalidOptions` for another namespace, and as `fork_run` does.
    """
    world = (await journal.runtime()).world
    await check_bundle(bundle, world.namespace)
    data = _encoded(journal, bundle.image.agent, input)
    source = BundleSource(bundle)
    maker = Forking(source, world, bundle.run, at=at, new_id=new_id, data=data, clock=journal.clock)
    return await maker.carry_out()


async def check_fork(
    journal: "Journal",
    bundle: Bundle,
    *,
    at: int,
    new_id: str | None = None,
    input: Any = msgspec.UNSET,  # noqa: A002 - the field's name everywhere
) -> None:
    """Raise what `fork_bundle` would, as far as the file itself speaks against it: no store is opened for that."""
    await check_bundle(bundle, journal.namespace)
    given, _ = _given(_encoded(journal, bundle.image.agent, input))
    _fork_id(bundle.run, at, given, new_id)
    await _part_of(BundleSource(bundle), bundle.run, at, given, None)


def _encoded(journal: "Journal", agent_name: str, given: Any) -> bytes | None:
    """The input that the turn begins anew with; None: none was given."""
    if given is msgspec.UNSET:
        return None
    agent = journal.agents.get(agent_name)
    what = f"the input of agent {agent_name!r}"
    return PLAIN.encode(given, what=what) if agent is None else agent.encode_input(given)


class Forking:
    """Makes one fork in `target`, of a run that `source` holds: the same store, or a file."""

    def __init__(
        self,
        source: Source,
        target: World,
        run_id: str,
        *,
        at: int,
        new_id: str | None,
        data: bytes | None,
        clock: Clock,
    ) -> None:
        self._source = source
        self._target = target
        self._origin_id = run_id
        self._at = at
        self._clock = clock
        self._given, self._blob = _given(data)
        self.run = _fork_id(run_id, at, self._given, new_id)

    async def carry_out(self) -> Forked:
        """Make it, or go on with it. Raises `CallNotFound`, `RunExists`, and what the stores raise."""
        tries = _TRIES
        while True:
            known = await self._known()
            if known is None:
                await self._begin()
                continue
            fork, is_building = known
            if not is_building:
                return _forked(fork, is_new=False)
            try:
                await self._build_up(fork)
            except (RunNotBuilding, InvalidValue):
                # Another, who makes the same fork, was quicker, or has begun it anew in between.
                tries -= 1
                if not tries:
                    raise
                await anyio.sleep(POLL_SECONDS)
            else:
                return _forked(fork, is_new=True)

    async def _known(self) -> tuple[Fork, bool] | None:
        """The fork as it was begun, and whether it is still building."""
        info = await self._target.run(self.run)
        if info is None:
            return None
        (first,) = await self._target.read(self.run, limit=1)
        created = open_record(first)
        assert isinstance(created, RunCreated)
        origin = created.origin
        digest = None if self._given is None else self._given.digest
        if origin is None or (origin.run, origin.at, origin.input_digest) != (
            self._origin_id,
            self._at,
            digest,
        ):
            raise self._exists("it is not this fork")
        part, seen = await self._part(origin.seq)
        if seen < origin.seq:
            raise self._exists(f"it was made when run {self._origin_id} had {origin.seq} records, not {seen}")
        fork = Fork(self.run, origin, created.nonce, first.time, part, self._given)
        await self._check_same(fork, info.head)
        return fork, info.building

    async def _check_same(self, fork: Fork, head: int) -> None:
        """Raise `RunExists` if what is there was taken over from another run of the origin's id."""
        copy, after, upto = _Copy(self._source, fork, self._blob), 0, min(head, fork.part.head)
        while after < upto:
            limit = min(PIECE_ROWS, upto - after)
            there = await self._target.read(self.run, after=after, limit=limit)
            if there != await copy.read(self.run, after=after, limit=limit):
                raise self._exists(f"it is forked from another run that was called {self._origin_id}")
            after += limit

    def _exists(self, why: str) -> RunExists:
        return RunExists(run_id=self.run, advice=f"{why}: choose another id (--as)")

    async def _begin(self) -> None:
        """Write the first record, unless another has: what it says decides what the fork consists of."""
        part, head = await self._part(None)
        digest = None if self._given is None else self._given.digest
        origin = Origin(run=self._origin_id, seq=head, at=self._at, input_digest=digest)
        fork = Fork(self.run, origin, new_token(), self._clock.time(), part, self._given)
        image = msgspec.structs.replace(_image(fork), turns=(), keys=(), head=part.head + 1)
        first = await _Copy(self._source, fork, self._blob).read(self.run, limit=1)
        try:
            await self._target.build(image, first, ())
        except RunNotBuilding:
            return  # by another, who has completed it by now

    async def _part(self, upto: int | None) -> tuple[Part, int]:
        """What the fork takes over of the origin up to that seq or its end, and where that was."""
        return await _part_of(self._source, self._origin_id, self._at, self._given, upto)

    async def _build_up(self, fork: Fork) -> None:
        image = _image(fork)
        copy = _Copy(self._source, fork, self._blob)
        await bring(copy, self._target, image, await self._target.run(self.run), _ignore)
        await self._target.settle(self.run, is_live=True)


def _given(data: bytes | None) -> tuple[Given | None, Blob | None]:
    """The input that the turn begins anew with, and the blob that it lies in."""
    if data is None:
        return None, None
    value, blob = pack(data)
    return Given(value, values.digest(data)), blob


def _fork_id(origin: str, at: int, given: Given | None, new_id: str | None) -> str:
    """The one asked for, else the same for the same fork, so that the same command finishes it."""
    anew = f"+{given.digest.hex()[:8]}" if given is not None else ""
    run = check_id(new_id or f"{origin}@{at}{anew}")
    if run == origin:
        raise InvalidOptions(f"a fork of run {origin!r} needs another id than that (--as)")
    return run


async def _part_of(
    source: Source, run: str, at: int, given: Given | None, upto: int | None
) -> tuple[Part, int]:
    """What a fork takes over of the run up to that seq or its end, and where that was."""
    prefix = Prefix(at, given)
    after = 0
    while upto is None or after < upto:
        limit = PIECE_ROWS if upto is None else min(PIECE_ROWS, upto - after)
        page = await source.read(run, after=after, limit=limit)
        for record in page:
            prefix.add(record)
            after = record.seq
        if len(page) < limit:
            break
    try:
        part = prefix.part()
    except NoSuchCall as error:
        raise CallNotFound(run_id=run, call=at, calls=error.calls) from None
    if part.created.min_reader > MIN_READER:
        raise RunTooNew(run_id=run, min_reader=part.created.min_reader, reads=MIN_READER)
    return part, after


class _Copy:
    """The fork as if it were a run of a store, to be copied from."""

    def __init__(self, source: Source, fork: Fork, blob: Blob | None) -> None:
        self._source = source
        self._fork = fork
        self._blob = blob

    async def read(self, run: str, *, after: int = 0, limit: int = 500) -> list[Record]:
        """See `Log.read`."""
        del run
        fork, part = self._fork, self._fork.part
        records = [fork.copied(record) async for record in self._originals(part.seqs[after : after + limit])]
        first = max(after, len(part.seqs)) - len(part.seqs)
        last = min(after + limit, part.head) - len(part.seqs)
        return records + [fork.settlement(number) for number in range(first, last)]

    async def _originals(self, seqs: list[int]) -> AsyncIterator[Record]:
        wanted = set(seqs)
        after, upto = (seqs[0] - 1, seqs[-1]) if seqs else (0, 0)
        while after < upto:
            page = await self._source.read(
                self._fork.origin.run, after=after, limit=min(PIECE_ROWS, upto - after)
            )
            for record in page:
                if record.seq in wanted:
                    yield record
            after = page[-1].seq

    async def get_blob(self, run: str, blob: str) -> bytes:
        """See `Log.get_blob`."""
        del run
        if self._blob is not None and blob == self._blob.id:
            return self._blob.data
        return await self._source.get_blob(self._fork.origin.run, blob)


def _image(fork: Fork) -> RunImage:
    created, part = fork.part.created, fork.part
    return RunImage(
        run=fork.run,
        agent=created.agent,
        created=fork.time,
        min_reader=created.min_reader,
        closed=None,
        epoch=part.epoch,
        head=part.head,
        turns=part.turns,
        keys=part.keys,
        blobs=tuple(sorted(part.blobs)),
        status="pending",
        priority=0,
        due_at=fork.time,
        takeovers=0,
    )


def _forked(fork: Fork, *, is_new: bool) -> Forked:
    part = fork.part
    return Forked(
        run=fork.run,
        turn=part.turn,
        is_new=is_new,
        pinned=part.pinned,
        unknown=part.unknown,
        repeats=part.repeats,
    )


def _ignore(_: int) -> None:
    """Nobody wants to know."""
