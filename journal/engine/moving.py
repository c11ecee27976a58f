"""Copying runs from one world to another, and moving them: what `journal copy` and `journal archive` do.

Built up there in pieces, read back and compared, then settled. A move says so in the source in between, at the very
head that was copied: from then on the run takes nothing there, and only then does it go on here. Every step may be
taken twice, so that the same call again finishes what a crash left. Long since one move is read best in one place.
Next: `Transfer` in `core/ports.py`.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Literal

import anyio
import msgspec
from msgspec.structs import replace

from journal.core import values
from journal.core.clock import Clock
from journal.core.errors import (
    InvalidOptions,
    InvalidValue,
    LogError,
    MissingCapability,
    RunBuilding,
    RunDiffers,
    RunGone,
    RunNotBuilding,
    RunNotFound,
    RunTooNew,
    WorldUnavailable,
)
from journal.core.ids import new_batch_id
from journal.core.ports import (
    Batch,
    Committed,
    Duplicate,
    Gone,
    HeadMoved,
    Keyed,
    Move,
    RunImage,
    RunInfo,
    RunQuery,
    SweepPolicy,
    Unknown,
    WorkerInfo,
    World,
)
from journal.core.records import MIN_READER
from journal.engine.bringing import POLL_SECONDS, VERIFY_TRIES, Progress, bring
from journal.engine.digest import digest

OFFER_SECONDS = 60.0
"""How long an unanswered move is offered again."""

_SENT_ON = "it was sent on there, or closed"

Result = Literal["copied", "moved", "present", "skipped"]


class Moving(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one run."""

    run: str
    result: Result
    records: int
    """How many it has."""
    held_back: bool = False
    """Whether it is blocked in the target until somebody sends it on: its source may be at work on it."""
    is_away: bool = False
    """Whether it takes nothing more in the source: it was moved, now or earlier."""
    reason: str | None = None
    """Why it was skipped."""


def _ignore(_: int) -> None:
    """Nobody wants to know."""


class Mover:
    """Copies runs from `source` to `target`, worlds of one namespace. `check` first.

    With `older_seconds` only runs that are done, and have been for longer than that: others are skipped.
    """

    def __init__(
        self,
        source: World,
        target: World,
        *,
        clock: Clock,
        freeze: bool = False,
        wait_seconds: float = 0.0,
        older_seconds: float | None = None,
        on_progress: Progress = _ignore,
    ) -> None:
        self.source = source
        self.target = target
        self._clock = clock
        self._freeze = freeze
        self._wait_seconds = wait_seconds
        self._before = None if older_seconds is None else clock.time() - older_seconds
        self._on_progress = on_progress
        self._started = 0.0
        self._key = f"move:{target.url}"

    async def check(self) -> None:
        """Raise `InvalidOptions` where both are one store, and `MissingCapability` where a moved run would not last."""
        if self._freeze and "log.persistent" not in self.target.capabilities:
            raise MissingCapability(
                "it does not keep what it has acknowledged (log.persistent), so that nothing is moved there: "
                "change its configuration (journal check says what it lacks), or copy without --freeze",
                world=self.target.url,
            )
        if await self._is_one_store():
            raise InvalidOptions(
                f"{self.source.url} and {self.target.url} are one and the same store: name another one to copy to"
            )

    async def _is_one_store(self) -> bool:
        """By whatever names they go: what one is told, the other knows."""
        if self.source.url == self.target.url:
            return True
        mark = f"copy:{new_batch_id().hex()}"
        await self.target.beat(WorkerInfo(worker=mark, slots=0, started=self._clock.time()))
        try:
            return any(worker.worker == mark for worker in await self.source.workers())
        finally:
            await self.target.leave(mark)

    async def carry(self, run: str) -> Moving:
        """Copy that run, or move it.

        Raises `RunNotFound`, `RunGone`, `RunTooNew`, `RunDiffers`, `RunBuilding`, and what the stores raise.
        """
        self._started = self._clock.boottime()
        seen: list[RunImage] = []
        try:
            return await self._carry_seen(run, seen)
        except RunGone as gone:
            # Another was quicker, and has swept it here as well.
            if gone.to != self.target.url or (not seen and self._before is None):
                raise
            for image in seen:
                await self._settle_anew(image)
            return _away(seen[0] if seen else await self.target.image(run))

    async def _settle_anew(self, image: RunImage) -> None:
        """What another has settled was begun anew here: it is whole, and its source is no more."""
        copied = await self.target.image(image.run)
        if image.moved_to is None and copied.building and copied.head == image.head:
            with suppress(RunNotBuilding, InvalidValue):  # another does it, or blobs are under way
                await self.target.build(image, (), ())
                await self.target.settle(image.run, is_live=True)

    async def _carry_seen(self, run: str, seen: list[RunImage]) -> Moving:
        tries = VERIFY_TRIES
        while True:
            image = await self.source.image(run)
            seen[:] = [image]
            if image.min_reader > MIN_READER:
                raise RunTooNew(run_id=run, min_reader=image.min_reader, reads=MIN_READER)
            if image.building:
                raise RunBuilding(run_id=run)
            if image.moved_to is not None:
                return await self._finish(image)
            there = await self._look(run)
            try:
                found = await self._carry(image, there)
            except (RunNotBuilding, RunDiffers, InvalidValue):
                # Perhaps of what another made of it meanwhile, who copies or moves it too.
                tries -= 1
                if not tries:
                    raise
                if (await self.source.image(run), await self._look(run)) == (image, there):
                    if there is None or not there.building:
                        raise
                    # How far another is with the same copy cannot be seen.
                    await anyio.sleep(POLL_SECONDS)
            else:
                if found is not None:
                    return found

    async def _carry(self, image: RunImage, there: RunInfo | None) -> Moving | None:
        """Try it with that image; None: the run has gone on in the source meanwhile."""
        run = image.run
        if there is not None and not there.building:
            copied = await self.target.image(run)
            await self._check_copy(copied, image)
            if copied.head == image.head:
                if not self._freeze:
                    return Moving(run=run, result="present", records=image.head)
                if not _is_held_back(image):
                    return await self._move_as_it_is(image)
            if _is_touched(copied, image):
                raise RunDiffers(run_id=run, world=self.target.url, reason=_SENT_ON)
        if self._freeze:
            free = await self._until_free(image)
            if free is None:
                return _skipped(image)
            image = free
        if not await self._is_wanted(image):
            return _skipped(image, _TAKEN_UP)
        await bring(self.source, self.target, image, await self._look(run), self._on_progress)
        if not self._freeze:
            await self.target.settle(run, is_live=False)
            return Moving(run=run, result="copied", records=image.head, held_back=_is_held_back(image))
        return None if await self._move(image) is None else await self._go_on(image)

    async def _until_free(self, image: RunImage) -> RunImage | None:
        """The image once nobody holds the run; None: somebody does for longer than is to be waited."""
        until = self._started + self._wait_seconds
        while image.held:
            if self._clock.boottime() >= until:
                return None
            await anyio.sleep(POLL_SECONDS)
            image = await self.source.image(image.run)
        return image

    async def _look(self, run: str) -> RunInfo | None:
        """The run in the target; None also where only the address of the source is left: then it comes back."""
        home = self.source.url
        try:
            there = await self.target.run(run)
        except RunGone as gone:
            if gone.to != home:
                raise
            return None
        if there is None or there.moved_to is None:
            return there
        if there.moved_to != home:
            raise RunGone(run_id=run, to=there.moved_to)
        await self.target.sweep(SweepPolicy(closed_older_than_seconds=0, moved=(run,)))
        return None

    # What is there already

    async def _check_copy(self, copied: RunImage, image: RunImage) -> None:
        """Raise `RunDiffers` unless what is in the target is the run as it is, or was."""
        reason = None
        if copied.head > image.head:
            reason = f"it ends at seq {copied.head}, and at {image.head} in {self.source.url}"
        elif not set(copied.blobs) <= set(image.blobs) or (
            await digest(self.source, copied) != await digest(self.target, copied)
        ):
            reason = f"in its records or blobs up to seq {copied.head}"
        elif not set(copied.keys) <= set(image.keys):
            reason = "in its keys"
        if reason is not None:
            raise RunDiffers(run_id=image.run, world=self.target.url, reason=reason)

    async def _move_as_it_is(self, image: RunImage) -> Moving | None:
        """The copy is whole, and nothing of it is held back."""
        if await self._until_free(image) is None:
            return _skipped(image)
        if not await self._is_wanted(image):
            return _skipped(image, _TAKEN_UP)
        result = await self._move(image)
        return None if result is None else _away(image, result)

    # Moving

    async def _move(self, image: RunImage) -> Result | None:
        """Say in the source that the run lives in the target now.

        `present`: another has said so. None: the run has gone on since it was copied.
        """
        to, run = self.target.url, image.run
        author = Keyed(self._key, values.digest(self._key.encode()))
        batch = Batch(run, new_batch_id(), author, at_head=image.head, queue=Move(to))
        until = self._clock.boottime() + OFFER_SECONDS
        result: Result = "present"
        while True:
            match await self.source.append(batch):
                case Committed():
                    return "moved"
                case Duplicate():
                    return result
                case Gone(to=other):
                    # An answer that was lost, or another mover.
                    if other != to:
                        raise RunGone(run_id=run, to=other)
                    return result
                case HeadMoved():
                    return None
                case Unknown(reason=reason):
                    if self._clock.boottime() > until:
                        raise WorldUnavailable(
                            f"no answer for {OFFER_SECONDS:g} s ({reason}); run the same command again",
                            world=self.source.url,
                        )
                    result = "moved"
                    await anyio.sleep(POLL_SECONDS)
                case refusal:
                    raise RunDiffers(run_id=run, world=to, reason=f"the source answered {refusal}")

    async def _finish(self, image: RunImage) -> Moving:
        """The run was moved by an earlier call, which may have died before the run went on."""
        if image.moved_to != self.target.url:
            raise RunGone(run_id=image.run, to=image.moved_to)
        return await self._go_on(image)

    async def _go_on(self, image: RunImage) -> Moving:
        """Let it go on in the target; `present` if another has done so, or an earlier call.

        Whoever else copies or moves it may have begun to build it up anew there since, or have held it back.
        """
        run, tries, is_whole = image.run, VERIFY_TRIES, True
        while True:
            there = await self.target.run(run)
            if there is None:
                raise RunNotFound(run_id=run, world=self.target.url)
            if not there.building:
                if there.status != "blocked" or not await self._is_held_back_there(image):
                    return _away(image)
                is_whole = False
            try:
                if not is_whole:
                    whole = await self._as_it_was(image)
                    await bring(self.source, self.target, whole, there, self._on_progress)
                await self.target.settle(run, is_live=True)
            except (RunNotBuilding, RunDiffers, InvalidValue):
                tries -= 1
                if not tries:
                    raise
                is_whole = False
                await anyio.sleep(POLL_SECONDS)
            else:
                return _away(image, "moved")

    async def _is_held_back_there(self, image: RunImage) -> bool:
        image, copied = await self._as_it_was(image), await self.target.image(image.run)
        is_the_same = copied.head == image.head and image.status != "blocked" and _is_held_back(image)
        return is_the_same and not _is_touched(copied, image)

    async def _as_it_was(self, image: RunImage) -> RunImage:
        """Before it was moved. When it was due is lost by then, if not to whoever moved it: now."""
        if image.moved_to is None:
            return image
        (last,) = await self.source.read(image.run, after=image.head - 1, limit=1)
        closed = last.time if last.type == "run.closed" else None
        keys = tuple(key for key in image.keys if key.key != self._key)
        before = replace(image, moved_to=None, closed=closed, keys=keys)
        is_due = _is_held_back(before) and before.status == "pending"
        return replace(before, due_at=self._clock.time() if is_due else None)

    # Archiving

    async def archive(self) -> AsyncIterator[str]:
        """The runs that are done and old enough, oldest first.

        Those that were moved to the target already are among them: they wait to be swept.
        """
        for info in await all_runs(self.source):
            if info.moved_to is not None:
                if info.moved_to == self.target.url:
                    yield info.run
            elif info.turn is None and not info.building:
                try:
                    is_old = await self._is_old(info.run, info.head)
                except RunGone:
                    continue  # another archiver was quicker
                except LogError:
                    is_old = True  # it is damaged: its copy will fail by name, and the others go on
                if is_old:
                    yield info.run

    async def _is_wanted(self, image: RunImage) -> bool:
        """Whether the run is still what is asked for: a turn may have come since it was found."""
        return self._before is None or (not image.is_unfinished and await self._is_old(image.run, image.head))

    async def _is_old(self, run: str, head: int) -> bool:
        last = await self.source.read(run, after=head - 1, limit=1)
        return bool(last) and (self._before is None or last[0].time <= self._before)

    async def sweep(self, runs: Sequence[str]) -> int:
        """Remove these from the source, which were moved: what is left is the address."""
        gone = 0
        for start in range(0, len(runs), _SWEPT):
            some = tuple(runs[start : start + _SWEPT])
            gone += await self.source.sweep(
                SweepPolicy(closed_older_than_seconds=0, moved=some, limit=_SWEPT)
            )
        return gone


_SWEPT = 100
_TAKEN_UP = "it was taken up again meanwhile, and stays"


async def all_runs(world: World) -> list[RunInfo]:
    """All runs of the world, oldest first."""
    found: list[RunInfo] = []
    before: int | None = None
    while page := await world.runs(RunQuery(before=before, limit=500)):
        found += page
        before = page[-1].position
    return found[::-1]


def _is_held_back(image: RunImage) -> bool:
    """Whether a copy that is not live is blocked, until somebody sends it on."""
    return image.is_unfinished and image.closed is None


def _is_touched(copied: RunImage, image: RunImage) -> bool:
    """Whether somebody has sent a settled copy on; the store has the last word (`Transfer.build`)."""
    return (
        copied.held
        or copied.due_at is not None
        or copied.closed is not None
        or copied.epoch > image.epoch
        or (copied.is_unfinished and copied.status != "blocked")
    )


def _away(image: RunImage, result: Result = "present") -> Moving:
    """It was moved, by another or earlier if nothing else is said."""
    return Moving(run=image.run, result=result, records=image.head, is_away=True)


def _skipped(
    image: RunImage, reason: str = "somebody is working on it: stop its workers, or wait longer (--wait)"
) -> Moving:
    return Moving(run=image.run, result="skipped", records=image.head, reason=reason)
