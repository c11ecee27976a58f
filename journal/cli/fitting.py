"""Values that a person gives, against the types that the application declares."""

import inspect
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from journal.cli.inventory import modules_of
from journal.cli.opening import app_of
from journal.cli.output import remark
from journal.cli.settings import Settings
from journal.core import values
from journal.core.errors import InvalidValue
from journal.core.typed import check_result
from journal.engine.journal import Journal
from journal.replay.fold import RunFold
from journal.replay.state import CallState
from journal.tools.probe import NotRun
from journal.tools.tool import Step

_PAGE = 500


def parse_value(text: str, *, what: str) -> Any:
    """The JSON that a person wrote for an option. Raises `InvalidValue`, which says how text is written."""
    try:
        return values.parse(text, what=what)
    except InvalidValue as error:
        if text.lstrip()[:1] in ("", "{", "[", '"'):
            raise
        quoted = values.encode(text).decode()
        raise InvalidValue(what=what, path="", reason=f"{error.reason}; as text it is {quoted}") from None


def fit_input(journal: Journal, agent: str, value: Any, *, what: str, hint: str = "") -> Any:
    """`value` as the handler's declared type has it. Raises `InvalidValue`; what no agent here declares fits."""
    known = journal.agents.get(agent)
    if known is None:
        return value
    try:
        fitting = known.input_codec.decode(values.encode(value, what=what))
        known.encode_input(fitting)
    except InvalidValue as error:
        raise InvalidValue(what=what, path=error.path, reason=error.reason + hint) from None
    return fitting


async def check_settled(settings: Settings, journal: Journal, run: str, settle: dict[int, Any]) -> list[str]:
    """Raise `InvalidValue` for a value that the function of its call does not return; what could not be checked."""
    told = {number: value for number, value in settle.items() if not isinstance(value, NotRun)}
    if not told:
        return []
    if app_of(settings) is None:
        return [f"call {number}: no application is named (--app)" for number in told]
    unchecked = []
    for call in await _calls(journal, run):
        if call.number not in told or not _may_be_settled(call):
            continue  # the retry says why not
        functions = list(_functions(journal, call.name))
        if len(functions) != 1:
            why = "no function" if not functions else "more than one function"
            unchecked.append(
                f"call {call.number}: {why} {call.name!r} is at the top of the application's modules"
            )
            continue
        data = values.encode(told[call.number])
        check_result(*functions[0], data, what=f"--settle {call.number} (the result of {call.name!r})")
    return unchecked


def _may_be_settled(call: CallState) -> bool:
    outcome = call.outcome
    is_open = outcome is None or outcome.status == "unknown" or outcome.by_hand is not None
    return is_open and call.superseded_by is None


def say_unchecked(unchecked: list[str]) -> None:
    """Say what was taken as it is."""
    for what in unchecked:
        remark(f"the value is taken unchecked for {what}")


async def _calls(journal: Journal, run: str) -> list[CallState]:
    fold, after = RunFold(), 0
    while page := await journal.read(run, after=after, limit=_PAGE):
        fold.extend(page)
        after = page[-1].seq
    return fold.state.calls


def _functions(journal: Journal, name: str) -> Iterator[tuple[Any, Any]]:
    """The functions of that name that the application may call through a turn, and what each `returns=`."""
    seen: set[int] = set()
    for module in modules_of(journal):
        for value in list(vars(module).values()):
            is_step = isinstance(value, Step)
            if not is_step and type(value) is not FunctionType:
                continue
            plain = inspect.unwrap(value.fn if is_step else value)
            if (value.name if is_step else value.__name__) == name and id(plain) not in seen:
                seen.add(id(plain))
                yield (value.fn, value.returns) if is_step else (value, None)
