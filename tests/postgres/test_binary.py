"""Arrays in Postgres's binary format, against what psycopg makes of the same values."""

from collections.abc import Sequence

import pytest
from psycopg.adapt import PyFormat, Transformer

from journal.worlds.postgres.binary import bytes_array, long_array, text_array


def by_psycopg(values: Sequence[object]) -> bytes:
    transformer = Transformer()
    found = transformer.get_dumper(list(values), PyFormat.BINARY)
    upgraded = found.upgrade(list(values), PyFormat.BINARY).dump(list(values))
    assert upgraded is not None
    return bytes(upgraded)


@pytest.mark.parametrize(
    "values",
    [[b"a"], [b"", b"\x00\xff" * 300], [b"a", None, b""], [None, b"b"]],
    ids=["one", "several", "null inside", "null first"],
)
def test_bytes(values: list[bytes | None]) -> None:
    assert bytes_array(values) == by_psycopg(values)


@pytest.mark.parametrize("values", [["a"], ["ä", "", "x" * 300], ["a", None]])
def test_text(values: list[str | None]) -> None:
    assert text_array(values) == by_psycopg(values)


def test_nothing_but_nulls() -> None:
    expected = bytes.fromhex("00000001 00000001 00000011 00000002 00000001 ffffffff ffffffff")
    assert bytes_array([None, None]) == expected


def test_none_at_all() -> None:
    assert bytes_array([]) == bytes.fromhex("00000000 00000000 00000011")


def test_longs() -> None:
    assert long_array([-1, 2**40]) == by_psycopg([-1, 2**40])
