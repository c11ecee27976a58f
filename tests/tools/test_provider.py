"""What headers and errors say. Values are by hand, out of the providers' documentation."""

from typing import Any

import pytest

from journal.core.errors import CallTimeout
from journal.tools.provider import delay_asked, headers_of, is_transient, rate_limits, retry_after, status_of

NOW = 1_445_412_480.0
"""Wed, 21 Oct 2015 07:28:00 GMT, the date of RFC 9110's example; `date -u -d @1445412480` says so."""


class Response:
    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self.status_code = status
        self.headers = headers


class StatusError(Exception):
    """As the clients' errors are: a status, and the response it came in."""

    def __init__(self, status: int, **headers: str) -> None:
        super().__init__(f"HTTP {status}")
        self.status_code = status
        self.response = Response(status, {name.replace("_", "-"): text for name, text in headers.items()})


def named(name: str, *bases: type[Exception]) -> Exception:
    error: Exception = type(name, bases or (Exception,), {})("x")
    return error


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after-ms": "x", "retry-after": "2"}, 2.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT"}, 30.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:27:30 GMT"}, 0.0),
        # The provider's clock is an hour ahead of ours; what it asks for is 20 s.
        ({"retry-after": "Wed, 21 Oct 2015 08:28:20 GMT", "date": "Wed, 21 Oct 2015 08:28:00 GMT"}, 20.0),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


def test_rate_limits_of_openai() -> None:
    headers = {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-limit-tokens": "150000",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-remaining-tokens": "149984",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-reset-tokens": "6m0s",
        "x-request-id": "req_1",
    }
    assert rate_limits(headers, NOW) == {
        "requests_limit": 60.0,
        "tokens_limit": 150_000.0,
        "requests_remaining": 59.0,
        "tokens_remaining": 149_984.0,
        "requests_reset_seconds": 1.0,
        "tokens_reset_seconds": 360.0,
    }


def test_rate_limits_of_anthropic() -> None:
    headers = {
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "49",
        "anthropic-ratelimit-requests-reset": "2015-10-21T07:28:05Z",
        "anthropic-ratelimit-input-tokens-remaining": "0",
        "anthropic-ratelimit-input-tokens-reset": "2015-10-21T07:29:00Z",
        "retry-after": "60",
    }
    assert rate_limits(headers, NOW) == {
        "requests_limit": 50.0,
        "requests_remaining": 49.0,
        "requests_reset_seconds": 5.0,
        "input_tokens_remaining": 0.0,
        "input_tokens_reset_seconds": 60.0,
        "retry_after_seconds": 60.0,
    }


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120ms", 0.12),
        ("2m59.56s", 179.56),
        ("1h2m3s", 3723.0),
        ("1d", 86_400.0),
        ("10", 10.0),
        ("1445412490", 10.0),  # seconds since the epoch
        ("1445412490000", 10.0),  # milliseconds
        ("6m and more", None),
        ("", None),
    ],
)
def test_resets(text: str, seconds: float | None) -> None:
    found = rate_limits({"x-ratelimit-reset-tokens": text}, NOW).get("tokens_reset_seconds")
    assert found == (None if seconds is None else pytest.approx(seconds))


def test_a_limit_without_a_name() -> None:
    assert rate_limits({"x-ratelimit-remaining": "3", "x-ratelimit-reset": "9"}, NOW) == {
        "remaining": 3.0,
        "reset_seconds": 9.0,
    }


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (StatusError(429), None),
        (StatusError(503, retry_after="3"), 3.0),
        (StatusError(429, x_ratelimit_remaining_tokens="0", x_ratelimit_reset_tokens="4s"), 4.0),
        # What is left is not what we wait for.
        (StatusError(429, x_ratelimit_remaining_tokens="12", x_ratelimit_reset_tokens="4s"), None),
        (
            StatusError(
                429,
                x_ratelimit_remaining_requests="0",
                x_ratelimit_reset_requests="2s",
                x_ratelimit_remaining_tokens="0",
                x_ratelimit_reset_tokens="9s",
            ),
            9.0,
        ),
        (StatusError(500, x_ratelimit_remaining_tokens="0", x_ratelimit_reset_tokens="4s"), None),
        (StatusError(429, retry_after="1", x_ratelimit_remaining="0", x_ratelimit_reset="9"), 1.0),
        (ValueError("x"), None),
    ],
)
def test_how_long_a_provider_asks_to_be_left_alone(error: Exception, seconds: float | None) -> None:
    assert delay_asked(error, NOW) == seconds


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_these_statuses_may_pass(status: int) -> None:
    assert is_transient(StatusError(status))


@pytest.mark.parametrize("status", [200, 400, 401, 402, 403, 404, 413, 422])
def test_these_statuses_would_come_again(status: int) -> None:
    """Among them 200 with a body that makes no sense, 400 for a context that is too long, 401 and 403."""
    assert not is_transient(StatusError(status))


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError(),
        TimeoutError(),
        EOFError(),
        CallTimeout(call="ask#1", seconds=1),
        named("ConnectError", type("NetworkError", (Exception,), {})),
        named("ReadTimeout", type("TimeoutException", (Exception,), {})),
        named("RemoteProtocolError"),
        named("ServerDisconnectedError", type("ClientConnectionError", (Exception,), {})),
    ],
)
def test_the_network_may_pass(error: Exception) -> None:
    assert is_transient(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no JSON"),
        KeyError("choices"),
        named("ModelBehaviorError"),
        named("ModelRefusalError"),
        OSError(5),
    ],
)
def test_what_makes_no_sense_would_come_again(error: Exception) -> None:
    assert not is_transient(error)


def test_a_foreign_class_that_raises_says_nothing() -> None:
    class Hostile(Exception):
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    assert (status_of(Hostile()), headers_of(Hostile())) == (None, {})
    assert not is_transient(Hostile())
