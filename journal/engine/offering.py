"""Offering a batch from outside a run until the door answers, and what whoever asked is told if it does not.

A submission that nobody answered may have been stored. It is done once, however often it is repeated, as long as it is
repeated under the same ids; so the error names them.
"""

import asyncio

from journal.core.clock import Clock
from journal.core.errors import (
    RunBuilding,
    RunClosed,
    RunGone,
    RunNotFound,
    WorldError,
    WorldUnavailable,
)
from journal.core.ports import Answer, Batch, Building, Closed, Committed, Gone, NoRun, Unknown, World
from journal.core.records import Record

OFFER_SECONDS = 30.0
_FIRST_DELAY, _LONGEST_DELAY = 0.01, 1.0


async def offer(world: World, batch: Batch, clock: Clock) -> Answer:
    """The door's answer; refusals that need no thought are raised.

    Raises `WorldUnavailable` if the batch may have been stored and nobody says so within `OFFER_SECONDS`, or within
    what the store itself takes to give up.
    """
    deadline = clock.boottime() + OFFER_SECONDS
    delay = _FIRST_DELAY
    unsure: str | None = None
    while True:
        try:
            answer = await world.append(batch)
        except WorldError as error:
            if unsure is None or isinstance(error, WorldUnavailable):
                raise
            # This try stored nothing. What became of the one before is as unknown as it was.
            raise WorldUnavailable(f"no answer ({unsure}), then {error.reason}", world=world.url) from error
        match answer:
            case NoRun():
                raise RunNotFound(run_id=batch.run, world=world.url)
            case Closed():
                raise RunClosed(run_id=batch.run)
            case Gone(to=to):
                raise RunGone(run_id=batch.run, to=to)
            case Building():
                raise RunBuilding(run_id=batch.run)
            case Unknown(reason=reason):
                unsure = reason
                if clock.boottime() > deadline:
                    raise WorldUnavailable(f"no answer for {OFFER_SECONDS:g} s ({reason})", world=world.url)
                await asyncio.sleep(delay)
                delay = min(delay * 2, _LONGEST_DELAY)
            case _:
                return answer


def written_by(batch: Batch, landed: Committed) -> tuple[Record, ...]:
    """The records that the batch of an author outside all claims has put into the log."""
    new = batch.records
    if batch.create is not None and landed.first == 1:
        new = (batch.create.record, *new)
    return tuple(
        Record(
            batch.run,
            seq,
            landed.time,
            record.type,
            record.turn,
            record.key,
            0,
            batch.id,
            record.body,
            record.checksum,
            record.key_id,
        )
        for seq, record in enumerate(new, landed.first)
    )


def maybe_submitted(error: WorldUnavailable, run: str, turn: str | None, *, is_new: bool) -> WorldUnavailable:
    """`error` with what to do about it: the ids under which the turn may be stored, if `is_new` ones of ours."""
    if is_new:
        key = "" if turn is None else f" and key={turn!r}"
        option = "" if turn is None else f" --key {turn}"
        advice = (
            f"run {run!r} may have been submitted all the same: repeat it with run_id={run!r}{key} "
            f"(--run {run}{option}), which submits it once; without them it would be a second run"
        )
    else:
        advice = (
            f"run {run!r} may have been submitted all the same: repeat it as it was, which submits it once"
        )
    return WorldUnavailable(f"{error.reason}; {advice}", world=error.world, run_id=run)


def submitted(error: WorldError, run: str, turn: str) -> WorldError:
    """`error`, which came while somebody waited for a turn that is stored: it is not to be submitted anew."""
    advice = f"turn {turn!r} of run {run!r} is submitted: ask for it by that id, or journal show {run}"
    return type(error)(f"{error.reason}; {advice}", world=error.world, run_id=run)
