"""Whether an exception leaves it open if the effect took place."""

from collections.abc import Callable

import pytest

from journal import DidNotHappen
from journal.core.errors import CallTimeout
from journal.tools.interruption import is_interruption


def named(name: str) -> Exception:
    """An error of a client library, as far as its class tells."""
    found: Exception = type(name, (OSError,), {})("it broke")
    return found


def raised(act: Callable[[], None]) -> BaseException:
    try:
        act()
    except BaseException as error:
        return error
    raise AssertionError


def over_a_timeout() -> None:
    try:
        raise TimeoutError
    except TimeoutError as error:
        raise RuntimeError("the refund failed") from error


def while_one_is_handled() -> None:
    try:
        raise ConnectionResetError
    except ConnectionResetError:
        raise RuntimeError("the refund failed")  # noqa: B904 - as much code does


def said_to_have_nothing_to_do_with_it() -> None:
    try:
        raise ConnectionResetError
    except ConnectionResetError:
        raise RuntimeError("declined") from None


def certainly_not() -> None:
    try:
        raise TimeoutError
    except TimeoutError as error:
        raise DidNotHappen from error


def told_by_a_harness() -> None:
    try:
        certainly_not()
    except DidNotHappen as error:
        raise RuntimeError("the tool failed") from error


OPEN = [
    TimeoutError(),
    TimeoutError(),
    BrokenPipeError(),
    EOFError(),
    CallTimeout(call="refund#1", seconds=1),
    *map(named, ["ConnectionError", "ChunkedEncodingError", "ProtocolError", "IncompleteRead"]),
    *map(named, ["ClientPayloadError", "ConnectionClosedError", "APIConnectionError", "NetworkError"]),
    ExceptionGroup("several", [ValueError(), ConnectionResetError()]),
    ExceptionGroup("several", [ExceptionGroup("more", [TimeoutError()])]),
    raised(over_a_timeout),
    raised(while_one_is_handled),
]
TOLD = [
    ValueError(),
    OSError("no such file"),
    ExceptionGroup("several", [ValueError(), KeyError()]),
    raised(said_to_have_nothing_to_do_with_it),
    raised(certainly_not),
    raised(told_by_a_harness),
]


@pytest.mark.parametrize("error", OPEN, ids=repr)
def test_it_may_have_happened(error: BaseException) -> None:
    assert is_interruption(error)


@pytest.mark.parametrize("error", TOLD, ids=repr)
def test_it_is_an_error(error: BaseException) -> None:
    assert not is_interruption(error)


def test_what_was_being_handled_when_the_act_began_has_nothing_to_do_with_it() -> None:
    outer, error = TimeoutError("of another call"), ValueError()
    error.__context__ = outer
    assert is_interruption(error)
    assert not is_interruption(error, outer)


def test_one_that_comes_from_itself_ends() -> None:
    first, second = ValueError(), KeyError()
    first.__context__, second.__context__ = second, first
    assert not is_interruption(first)
