"""What a provider said by an error or a header, read without knowing its client library.

Clients of OpenAI, Anthropic and whoever follows them carry `status_code`, `response.headers` and telling class names;
httpx, aiohttp and requests do so in their own ways. Nothing is imported, nothing is made up: what is not said, or
cannot be read, is absent. Times are seconds; `now` is seconds since the Unix epoch, used where a response has no Date.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any

from journal.core.errors import CallTimeout

_TRANSIENT = frozenset({408, 409, 429})
_INTERRUPTIONS = frozenset(
    {
        "APIConnectionError",  # openai, anthropic; their timeouts are among them
        "APITimeoutError",
        "TimeoutException",  # httpx
        "NetworkError",
        "RemoteProtocolError",
        "ProxyError",
        "ClientConnectionError",  # aiohttp
        "ServerTimeoutError",
        "Timeout",  # requests
        "ModelTimeoutError",  # OpenAI Agents
        "ModelConnectionError",  # Pydantic AI
        "ModelRequestTimeout",
        "gaierror",  # a name that is not resolved just now
    }
)
_SUFFIXED = re.compile(r"x-ratelimit-(limit|remaining|reset)(?:-([a-z][a-z0-9-]*))?")
_PREFIXED = re.compile(r"anthropic-(?:ratelimit|priority)-([a-z][a-z0-9-]*)-(limit|remaining|reset)")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h|d)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_EPOCH_SECONDS, _EPOCH_MILLISECONDS = 1e9, 1e12
"""From here on a reset is a point in time and not a span."""


# Errors ------------------------------------------------------------------------------------------


def status_of(error: BaseException) -> int | None:
    """The HTTP status that came back, if one did."""
    for holder in (error, _get(error, "response")):
        for name in ("status_code", "status"):
            found = _get(holder, name)
            if type(found) is int and 100 <= found < 600:
                return found
    return None


def headers_of(error: BaseException) -> dict[str, str]:
    """Headers of the response that `error` carries, by lower-case name."""
    for holder in (_get(error, "response"), error):
        if found := lower(_get(holder, "headers")):
            return found
    return {}


def is_transient(error: Exception) -> bool:
    """Whether the same request may well succeed: network, timeout, 408, 409, 429, 5xx.

    Whatever else comes with a status, or is none of these (a reply that makes no sense, a refusal), would come again.
    """
    status = status_of(error)
    if status is not None:
        return status in _TRANSIENT or status >= 500
    if isinstance(error, TimeoutError | ConnectionError | EOFError | CallTimeout):
        return True
    return not _INTERRUPTIONS.isdisjoint(cls.__name__ for cls in type(error).__mro__)


def _get(holder: object, name: str) -> Any:
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001 - a property of a foreign class
        return None


# Headers -----------------------------------------------------------------------------------------


def lower(headers: object) -> dict[str, str]:
    """Headers of any library (a mapping, httpx.Headers, …) by lower-case name; whatever is not text is left out."""
    items = _get(headers, "items")
    if not callable(items):
        return {}
    try:
        return {
            name.lower(): value for name, value in items() if isinstance(name, str) and isinstance(value, str)
        }
    except Exception:  # noqa: BLE001 - a foreign class
        return {}


def delay_asked(error: BaseException, now: float) -> float | None:
    """Seconds that the provider asks to be left alone: retry-after-ms, Retry-After, or the reset of a used-up limit."""
    headers = headers_of(error)
    if (said := retry_after(headers, now)) is not None:
        return said
    if status_of(error) != 429:
        return None
    limits = rate_limits(headers, now)
    resets = [
        seconds
        for name, seconds in limits.items()
        if name.endswith("reset_seconds") and limits.get(name[: -len("reset_seconds")] + "remaining") == 0
    ]
    return max(resets, default=None)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds, never below 0, of ``retry-after-ms`` or ``retry-after`` (seconds, or a date)."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return max(0.0, milliseconds / 1000)
    text = headers.get("retry-after")
    if (seconds := _number(text)) is not None:
        return max(0.0, seconds)
    moment = _http_date(text)
    return None if moment is None else max(0.0, moment - _sent_at(headers, now))


def rate_limits(headers: Mapping[str, str], now: float) -> dict[str, float]:
    """What is left: ``{requests,tokens,…}_{limit,remaining,reset_seconds}`` and ``retry_after_seconds``.

    Of the headers ``x-ratelimit-*`` (OpenAI and its like) and ``anthropic-ratelimit-*``. Names are lower-case.
    """
    found: dict[str, float] = {}
    for name, text in headers.items():
        if match := _SUFFIXED.fullmatch(name):
            field, of = match.groups()
        elif match := _PREFIXED.fullmatch(name):
            of, field = match.groups()
        else:
            continue
        value = _reset(text, headers, now) if field == "reset" else _number(text)
        if value is not None:
            field = "reset_seconds" if field == "reset" else field
            found[f"{of.replace('-', '_')}_{field}" if of else field] = value
    if (seconds := retry_after(headers, now)) is not None:
        found["retry_after_seconds"] = seconds
    return found


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if isfinite(value) else None


def _reset(text: str, headers: Mapping[str, str], now: float) -> float | None:
    """Seconds until a limit is whole again: a span (``6m0s``, ``1.5``), a date, or seconds since the epoch."""
    if (value := _number(text)) is not None:
        if value >= _EPOCH_MILLISECONDS:
            value = value / 1000 - now
        elif value >= _EPOCH_SECONDS:
            value -= now
        return max(0.0, value)
    parts = _PART.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text.strip():
        return sum(float(number) * _UNITS[unit] for number, unit in parts)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return max(0.0, moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - _sent_at(headers, now))


def _sent_at(headers: Mapping[str, str], now: float) -> float:
    """When the response was made, by the provider's own clock where it says so: dates beside it go by the same."""
    moment = _http_date(headers.get("date"))
    return now if moment is None else moment


def _http_date(text: str | None) -> float | None:
    try:
        return None if text is None else parsedate_to_datetime(text).replace(tzinfo=UTC).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
