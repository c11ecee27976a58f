"""Offering a batch from outside a run until the door answers, and what whoever asked is told if it does not.

A submission that nobody answered may have been stored. It is done once, however often it is repeated, as long as it is
repeated under the same ids; so the error names them.
"""

import asyncio

from msgspec.structs import replace

from journal.core.clock import Clock
from journal.core.errors import (
    InvalidOptions,
    RunBuilding,
    RunBusy,
    RunClosed,
    RunGone,
    RunNotFound,
    WorldError,
    WorldUnavailable,
)
from journal.core.ports import (
    Answer,
    Batch,
    Building,
    Closed,
    Committed,
    Duplicate,
    Gone,
    HeadMoved,
    KeyConflict,
    NoRun,
    RunInfo,
    Submit,
    Unknown,
    World,
)
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


async def offer_turn(
    world: World, batch: Batch, clock: Clock, *, is_new: bool = False, reject_busy: bool = False
) -> Committed | Duplicate | KeyConflict:
    """Submit the turn of `batch`, which creates its run if there is none; `is_new`: nobody else knows of that run.

    Raises as `offer`, and `InvalidOptions` if the run is another agent's; `RunBusy` if another turn of it has not
    ended and `reject_busy` says so.
    """
    assert batch.create is not None
    assert isinstance(batch.queue, Submit)
    agent, turn = batch.create.agent, batch.queue.turn
    while True:
        info = None if is_new else await world.run(batch.run)
        at_head = None if is_new else 0  # a run that somebody creates meanwhile may be another agent's
        if info is not None:
            _check_agent(info, agent)
            at_head = None
            if reject_busy and await world.turn(batch.run, turn) is None:
                if info.turn is not None:
                    raise RunBusy(run_id=batch.run)
                at_head = info.head
        answer = await offer(world, replace(batch, at_head=at_head), clock)
        if isinstance(answer, Committed):
            return answer
        if info is None and (info := await world.run(batch.run)) is not None:
            _check_agent(info, agent)
        if isinstance(answer, Duplicate | KeyConflict):
            return answer
        assert isinstance(answer, HeadMoved), f"no other refusal is left: {answer}"


def _check_agent(info: RunInfo, agent: str) -> None:
    if info.agent != agent:
        raise InvalidOptions(f"run {info.run!r} belongs to agent {info.agent!r}, not to {agent!r}")


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
