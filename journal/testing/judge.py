"""Whether a run that was killed and carried on came to what it comes to without a kill. Pure.

Where two runs without a kill differ (a value drawn at random, a time of day), nothing is compared. After a `never`
call of unknown outcome the handler may go another way: then what was recorded before the kill must still stand,
and the rest is left to the caller's own check. So it is where a race or a timeout went the other way, since its sides
end together and the kill changed which was first. What lost a race may have ended, been given up, or not begun.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from journal.core.codec import open_record
from journal.core.records import CallIntent, CallOutcome, Observed, Record, TurnBlocked, TurnFinished
from journal.testing.effects import Effect
from journal.testing.mortal import Act

_RACED_BY_HAND = " (if the code races it against another by itself: turn.race records who won)"


class Calls(msgspec.Struct):
    """What a log says of one turn."""

    intents: dict[str, CallIntent]
    outcomes: dict[str, CallOutcome]
    finished: TurnFinished | None
    problems: list[str]
    timed: dict[str, bytes] = {}
    """Which branch won, by key of the race; and which timeouts ran out."""

    @property
    def unknown(self) -> list[str]:
        """Calls whose outcome nobody knows."""
        return [key for key, outcome in self.outcomes.items() if outcome.status == "unknown"]


class Story(msgspec.Struct):
    """A run from its first life to its end."""

    log: Sequence[Record]
    acts: Sequence[Sequence[Act]]
    """By life."""
    effects: Sequence[Effect] = ()
    found: Sequence[Record] = ()
    """The log as the last life found it."""


def read_log(log: Sequence[Record]) -> Calls:
    """The calls of a log; what no log may hold is told in `problems`."""
    calls = Calls({}, {}, None, [])
    if [record.seq for record in log] != list(range(1, len(log) + 1)):
        calls.problems.append("the log has gaps")
    for record in log:
        key = record.key or ""
        match open_record(record):
            case CallIntent() as intent:
                calls.intents.setdefault(key, intent)
            case CallOutcome() as outcome:
                if key in calls.outcomes:
                    calls.problems.append(f"{key} has two outcomes")
                calls.outcomes[key] = outcome
            case TurnFinished() as finished:
                if calls.finished is not None:
                    calls.problems.append("the turn ended twice")
                calls.finished = finished
            case Observed(value=value) if _is_timed(key):
                calls.timed[key] = value
            case TurnBlocked() as blocked:
                calls.problems.append(f"the turn was blocked: {blocked.reason}: {blocked.detail}")
            case _:
                pass
    return calls


def judge(story: Story, plain: Sequence[Story]) -> list[str]:
    """What went wrong in `story`, in words. `plain`: runs of the same without a kill."""
    calls, found, models = (
        read_log(story.log),
        read_log(story.found),
        [read_log(one.log) for one in plain],
    )
    problems = list(calls.problems)
    problems += repeated(story, calls, found)
    if calls.finished is None:
        return [*problems, "the turn did not end"]
    is_open = bool(set(calls.unknown).difference(*(model.unknown for model in models)))
    is_open = is_open or bool(raced(story, plain))
    if not is_open:
        problems += _compare_calls(calls, models)
        problems += _compare_ends(calls, models)
    problems += _compare_effects(story, calls, plain, is_open=is_open)
    return problems


def raced(story: Story, plain: Sequence[Story]) -> list[str]:
    """Keys of the races and timeouts that went another way than in every run without a kill."""
    now, models = read_log(story.log).timed, [read_log(one.log).timed for one in plain]
    known = dict.fromkeys([*now, *(key for model in models for key in model)])
    return [key for key in known if now.get(key) not in {model.get(key) for model in models}]


def _is_timed(key: str) -> bool:
    return key.rpartition("/")[2].startswith(("@race#", "@timeout#"))


def _has_lost(key: str, calls: Calls) -> bool:
    """Whether the call is in a branch that lost its race."""
    for race, winner in calls.timed.items():
        if key.startswith(f"{race}/") and key[len(race) + 1 :].partition("/")[0] != winner.decode():
            return True
    return False


def _is_given_up(key: str, calls: Calls) -> bool:
    """Whether the code began the call and did not wait for its end: it lost a race that the code made by itself."""
    intent, outcome = calls.intents.get(key), calls.outcomes.get(key)
    is_safe = intent is not None and intent.policy == "safe"
    return is_safe and (outcome is None or outcome.status == "cancelled")


def repeated(story: Story, calls: Calls, found: Calls) -> list[str]:
    """Calls that acted again although they must not."""
    problems = []
    acts = Counter(act.call for life in story.acts for act in life if act.number)
    probed = {act.call for life in story.acts for act in life if not act.number}
    for key, times in acts.items():
        intent = calls.intents.get(key)
        if intent is not None and intent.policy == "never" and times > 1 and key not in probed:
            problems.append(f"{key} is never to be repeated, and was started {times} times")
    problems += [
        f"{act.call} was recorded, and acted again" for act in story.acts[-1] if act.call in found.outcomes
    ]
    for key, outcome in found.outcomes.items():
        if calls.outcomes.get(key) != outcome:
            problems.append(f"the recorded outcome of {key} changed")
    return problems


def _compare_calls(calls: Calls, models: list[Calls]) -> list[str]:
    problems = []
    model = models[0]
    steady = [key for key in model.intents if all(key in other.intents for other in models)]
    for key in steady:
        if key not in calls.intents:
            if not _has_lost(key, calls):
                problems.append(f"{key} is missing{_RACED_BY_HAND if '/' in key else ''}")
            continue
        problems += [
            f"{key} had another {field}: {_short(now)} instead of {_short(was)}"
            for field, was, now in _differences(key, calls, models)
        ]
    known = {key for other in models for key in other.intents}
    if len(steady) == len(known):
        new = (key for key in calls.intents if key not in known)
        problems += [f"{key} is new" for key in new if not _has_lost(key, calls)]
    return problems


def _differences(key: str, calls: Calls, models: list[Calls]) -> list[tuple[str, object, object]]:
    found = []
    for field in ("kind", "name", "policy", "input"):
        was = {getattr(model.intents[key], field) for model in models}
        now = getattr(calls.intents[key], field)
        if len(was) == 1 and now not in was:
            found.append((field, *was, now))
    if _has_lost(key, calls) or any(_is_given_up(key, one) for one in (calls, *models)):
        return found  # whether it came to an end is chance
    outcomes = [model.outcomes.get(key) for model in models]
    now_outcome = calls.outcomes.get(key)
    for field in ("status", "value", "error"):
        ends = [getattr(outcome, field, None) for outcome in outcomes]
        now = getattr(now_outcome, field, None)
        if all(end == ends[0] for end in ends) and now != ends[0]:
            found.append((field, ends[0], now))
    return found


def _compare_ends(calls: Calls, models: list[Calls]) -> list[str]:
    problems = []
    for field in ("status", "output", "error"):
        was = [getattr(model.finished, field, None) for model in models]
        now = getattr(calls.finished, field)
        if all(end == was[0] for end in was) and now != was[0]:
            what = {"status": "end", "output": "result", "error": "error"}[field]
            problems.append(f"another {what}: {_short(now)} instead of {_short(was[0])}")
    return problems


def _compare_effects(story: Story, calls: Calls, plain: Sequence[Story], *, is_open: bool) -> list[str]:
    """A `never` effect at most as often as without a kill, a safe one at least as often, one of no call as often."""
    problems = []
    runs = [Counter((effect.name, effect.call) for effect in one.effects) for one in plain]
    now = Counter((effect.name, effect.call) for effect in story.effects)
    for name, key in sorted(set(now).union(*runs), key=str):
        was, times = {run[name, key] for run in runs}, now[name, key]
        if len(was) != 1:
            continue
        (usual,) = was
        if key is None:
            if times > usual:
                problems.append(
                    f"{name!r} happened {times} times instead of {usual}, between calls: "
                    "that code runs again on resume, so it belongs in a step or a tool"
                )
        elif (intent := calls.intents.get(key)) is not None and intent.policy == "never":
            if times > usual:
                problems.append(f"{name!r} happened {times} times instead of {usual}, in {key} (never)")
        elif times < usual and not is_open and not _has_lost(key, calls) and not _is_given_up(key, calls):
            problems.append(f"{name!r} happened {times} times instead of {usual}, in {key}")
    return problems


def _short(value: object) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else repr(value)
    return text if len(text) <= 200 else text[:200] + "…"
