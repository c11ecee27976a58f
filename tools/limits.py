"""Limits that are given as options, and text that is none; checked where they are given."""

from math import isfinite

from journal.core.errors import InvalidOptions


def checked_seconds(value: float, what: str, *, least: float) -> float:
    """`value`, a number of seconds from `least` on. Raises `InvalidOptions`."""
    if type(value) not in (int, float) or not isfinite(value) or value < least:
        raise InvalidOptions(f"{what}={value!r}: a number of seconds from {least:g} on is needed")
    return float(value)


def checked_bytes(value: int, what: str) -> int:
    """`value`, a number of bytes. Raises `InvalidOptions`."""
    if type(value) is not int or value < 1:
        raise InvalidOptions(f"{what}={value!r}: a number of bytes above 0 is needed")
    return value


def is_utf8(text: str) -> bool:
    """False for lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
