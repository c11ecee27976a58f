"""Exceptions as records: the same thing on the first run as on replay, and no text of foreign classes."""

from typing import Any

import openai
import pytest

from journal.core import errors, failures
from journal.core.failures import describe, rebuild, register_error
from journal.core.records import BlobRef, ErrorInfo

SECRET = "open sesame"


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "_registered", {})


class Coded(Exception):
    def __init__(self, message: str, code: Any = None, status_code: Any = None) -> None:
        super().__init__(message)
        self.code, self.status_code = code, status_code


class Card(Exception):
    def __init__(self, reason: str, cents: int) -> None:
        super().__init__(f"{reason}: {cents}")
        self.reason, self.cents = reason, cents


class Simple(Exception): ...


class Hostile(Exception):
    @property
    def code(self) -> str:
        raise RuntimeError(SECRET)


@pytest.mark.parametrize(
    ("error", "args"),
    [
        (ValueError(), b"[]"),
        (ValueError("bad", 1, None), b'["bad",1,null]'),
        (KeyError("k"), b'["k"]'),
        (TimeoutError("slow"), b'["slow"]'),
        (ZeroDivisionError("division by zero"), b'["division by zero"]'),
        (FileNotFoundError(2, "No such file", "a.txt"), b'[2,"No such file","a.txt"]'),
        (OSError(18, "cross-device", "a", None, "b"), b'[18,"cross-device","a",null,"b"]'),
        (ConnectionResetError(104, "reset"), b'[104,"reset"]'),
        (UserWarning("careful"), b'["careful"]'),
    ],
)
def test_builtin_errors_are_rebuilt(error: Exception, args: bytes) -> None:
    info = describe(error)
    assert (info.type, info.args, info.data) == (type(error).__name__, args, None)
    again = rebuild(info, "call")
    assert type(again) is type(error)
    assert again.args == error.args
    assert str(again) == str(error)
    assert vars(again) == {}


@pytest.mark.parametrize(
    "error",
    [
        ValueError(object()),
        ValueError(float("nan")),
        ValueError("x" * 70_000),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, SECRET),
        ExceptionGroup(SECRET, [ValueError(SECRET)]),
        StopIteration(1),
        StopAsyncIteration(),
    ],
)
def test_builtin_errors_that_json_cannot_say_are_call_errors(error: Exception) -> None:
    info = describe(error)
    assert info == ErrorInfo(type=type(error).__name__)
    again = rebuild(info, "fetch#1")
    assert isinstance(again, errors.CallError)
    assert (again.call, again.type, again.code, again.data) == ("fetch#1", type(error).__name__, None, None)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Coded(SECRET), None),
        (Coded(SECRET, "rate_limit_exceeded"), "rate_limit_exceeded"),
        (Coded(SECRET, 429), "429"),
        (Coded(SECRET, None, 503), "503"),
        (Coded(SECRET, SECRET, 400), "400"),
        (Coded(SECRET, "x" * 65), None),
        (Coded(SECRET, True), None),
        (Coded(SECRET, ["429"]), None),
        (Coded(SECRET, ""), None),
        (Hostile(SECRET), None),
    ],
)
def test_of_foreign_errors_only_class_and_code_are_kept(error: Exception, code: str | None) -> None:
    info = describe(error)
    assert info == ErrorInfo(type=f"{__name__}.{type(error).__qualname__}", code=code)
    again = rebuild(info, "ask")
    assert isinstance(again, errors.CallError)
    assert (again.call, again.type, again.code) == ("ask", info.type, code)
    assert SECRET not in str(again)


def test_an_error_of_a_provider_loses_its_text() -> None:
    error = openai.OpenAIError(f"prompt was: {SECRET}")
    assert describe(error) == ErrorInfo(type="openai.OpenAIError")


@pytest.mark.parametrize(
    "error",
    [
        errors.DidNotHappen("the key was voided"),
        errors.DidNotHappen(),
        errors.CallTimeout(call="fetch", seconds=1.5),
        errors.ToolArgumentError(tool="refund", reason="amount is missing"),
        errors.OutcomeUnknown(call="c", name="refund"),
        errors.ValueLost(call="c", reason="nan", repr="nan"),
        errors.CallError(call="inner", type="m.E", code="429", data={"a": [1]}),
        errors.InvalidValue(what="x", path="a.b", reason="nan is not JSON"),
        errors.ValueTooLarge(what="x", size=9, limit=3),
        errors.UnknownType(what="x", type_name="T"),
        errors.InvalidId(what="run id", value="", reason="it is empty", suggestion=None),
        errors.InvalidOptions("both"),
        errors.NotInTurn(what="io.fence", where="a call"),
        errors.TurnFailed(run_id="r", turn_id="t", type="E", code=None, data=None),
        errors.ResultTimeout(run_id="r", turn_id="t", seconds=1),
        errors.WorldBusy("locked", world="sqlite:x"),
        errors.CorruptRecord(run_id="r", seq=3, reason="checksum"),
    ],
)
def test_our_own_errors_come_back_with_their_fields(error: errors.JournalError) -> None:
    info = describe(error)
    assert info.type == f"journal.{type(error).__name__}"
    again = rebuild(info, "other call")
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.args == error.args
    assert vars(again) == vars(error)


def test_a_registered_error_is_rebuilt_from_its_arguments() -> None:
    assert register_error(Simple) is Simple
    info = describe(Simple("a", 1))
    assert info == ErrorInfo(type=f"{__name__}.Simple", args=b'["a",1]')
    again = rebuild(info, "call")
    assert type(again) is Simple
    assert again.args == ("a", 1)


def test_a_registered_error_is_rebuilt_from_its_data() -> None:
    register_error(Card, to_data=lambda e: [e.reason, e.cents], from_data=lambda d: Card(*d))
    info = describe(Card("declined", 5))
    assert info == ErrorInfo(type=f"{__name__}.Card", data=b'["declined",5]')
    again = rebuild(info, "call")
    assert isinstance(again, Card)
    assert (again.reason, again.cents, str(again)) == ("declined", 5, "declined: 5")


def test_where_a_class_is_not_registered_its_error_is_a_call_error_with_the_data() -> None:
    info = ErrorInfo(type="shop.Card", data=b'["declined",5]', code="card")
    again = rebuild(info, "pay")
    assert isinstance(again, errors.CallError)
    assert (again.type, again.code, again.data) == ("shop.Card", "card", ["declined", 5])


def test_subclasses_are_registered_one_by_one() -> None:
    class Special(Simple): ...

    register_error(Simple)
    assert describe(Special("a")).args is None


def test_what_cannot_be_rebuilt_is_a_call_error_on_the_first_run_too() -> None:
    register_error(Card)  # its arguments are not those of __init__
    assert describe(Card("declined", 5)) == ErrorInfo(type=f"{__name__}.Card")

    def fails(_: Any) -> Any:
        raise RuntimeError(SECRET)

    register_error(Simple, to_data=fails, from_data=fails)
    assert describe(Simple("a")) == ErrorInfo(type=f"{__name__}.Simple")
    register_error(Simple, to_data=lambda e: e, from_data=lambda d: Simple(d))
    assert describe(Simple("a")) == ErrorInfo(type=f"{__name__}.Simple")


@pytest.mark.parametrize(
    "info",
    [
        ErrorInfo(type="ValueError", args=b"{"),
        ErrorInfo(type="ValueError", args=b"1"),
        ErrorInfo(type="UnicodeDecodeError", args=b'["a"]'),
        ErrorInfo(type="ValueError", args=BlobRef(blob="00", size=3)),
        ErrorInfo(type="journal.DidNotHappen"),
        ErrorInfo(type="journal.DidNotHappen", args=b"[]", data=b"[1]"),
        ErrorInfo(type="SystemExit", args=b"[1]"),
        ErrorInfo(type="journal.ClaimLost", args=b"[]", data=b"{}"),
        ErrorInfo(type="os.system", args=b'["true"]'),
        ErrorInfo(type="", data=b"nonsense"),
    ],
)
def test_a_record_that_cannot_be_rebuilt_is_a_call_error(info: ErrorInfo) -> None:
    again = rebuild(info, "call")
    assert type(again) is errors.CallError
    assert again.type == info.type


def test_registering_is_checked() -> None:
    with pytest.raises(errors.InvalidOptions, match="a subclass of Exception"):
        register_error(KeyboardInterrupt)  # type: ignore[type-var]  # what is tested
    with pytest.raises(errors.InvalidOptions, match="go together"):
        register_error(Simple, to_data=lambda e: None)
