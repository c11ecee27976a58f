"""Any handler, killed anywhere, several times: the property behind all crash tests.

Hypothesis makes handlers (`programs.py`), runs each without a kill, then kills it up to three times at whatever
moment, and lets it end. Then: what `never` forbids did not happen twice, what is safe happened, no recorded call acted
again, and the turn came to what it comes to without a kill.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from journal import Journal, Turn
from journal.core import values
from journal.testing.effects import Effects
from journal.testing.judge import Story, judge, read_log, repeated
from journal.testing.life import LaterClock, live_here
from journal.testing.mortal import Act, Watch
from journal.worlds.opening import Opener
from tests.crash.anywhere import Anywhere, kills, memory, normal, sqlite
from tests.crash.programs import Program, Stand, is_pausing, is_racing, programs

SECONDS = 20.0


def play(program: Program, opener: Opener, url: str, kills: list[tuple[int, int]]) -> tuple[Story, Stand]:
    """Run `program` to its end; each of `kills` ends one life before, if it lives so long."""
    journal = Journal()
    stand = Stand(Effects(), pauses=is_pausing(program) and not is_racing(program))

    @journal.agent
    async def work(turn: Turn, _: None) -> Any:
        return await stand.run(turn, program)

    clock, acts = LaterClock(), list[list[Act]]()
    waiting = list(kills)
    while True:
        stand.lives += 1
        watch: Watch = Anywhere(*waiting.pop(0)) if waiting else Watch()
        life = live_here(work, None, opener, url, watch, clock, seconds=SECONDS)
        acts.append(watch.acts)
        if not life.is_killed:
            return Story(life.log, acts, stand.effects.all(), life.found), stand


def check(program: Program, world: Callable[[], Any], kills: list[tuple[int, int]]) -> None:
    with memory() as (opener, url):
        plain, _ = play(program, opener, url, [])
    with world() as (opener, url):
        story, stand = play(program, opener, url, kills)
    calls, model = read_log(story.log), read_log(plain.log)
    counts = stand.effects.counts()
    if is_racing(program):
        # Another may win this time. What was decided once is part of what is asked for next: it stands, or it diverges.
        assert calls.problems + repeated(story, calls, read_log(story.found)) == []
        assert calls.finished is not None
    else:
        assert judge(story, [plain]) == []
        assert calls.finished is not None
        assert model.finished is not None
        # Programs go the same way whatever becomes of their `never` calls, so even then the whole can be compared.
        assert _settled(calls.finished.output) == _settled(model.finished.output)
        assert set(calls.intents) == set(model.intents)
        assert {calls.intents[key].name for key in calls.unknown} <= {"never"}
        assert set(counts) | {name for name in stand.asked if stand.asked[name] == "never"} == set(
            stand.asked
        )
    for leaf, kind in stand.asked.items():
        if kind in ("never", "probed"):
            assert counts[leaf] <= 1
        if kind == "probed" and not is_racing(program):
            assert counts[leaf] == 1
    ok = [key for key, outcome in calls.outcomes.items() if outcome.status == "ok" and not outcome.probed]
    assert set(ok) <= {effect.call for effect in stand.effects.all()}


def _settled(output: Any) -> Any:
    """The output, with calls that became unknown as if they were known."""
    if output is None:
        return None
    assert isinstance(output, bytes)
    return values.decode(output.replace(b'"unknown"', b'"ok"').replace(b'"error"', b'"ok"'))


@normal(160)
@given(programs, kills)
def test_in_memory(program: Program, kills: list[tuple[int, int]]) -> None:
    check(program, memory, kills)


@normal(40)
@given(programs, kills)
def test_on_sqlite(program: Program, kills: list[tuple[int, int]]) -> None:
    check(program, sqlite, kills)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@normal(4500, is_search=True)
@given(programs, kills)
def test_in_memory_for_long(program: Program, kills: list[tuple[int, int]]) -> None:
    check(program, memory, kills)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@normal(500, is_search=True)
@given(programs, kills)
def test_on_sqlite_for_long(program: Program, kills: list[tuple[int, int]]) -> None:
    check(program, sqlite, kills)
