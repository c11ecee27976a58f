"""What is kept of a program's output: beginning and end, and how much lies between."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.tools.output import Output


def output(limit: int, *parts: bytes) -> Output:
    made = Output(limit)
    for part in parts:
        made.add(part)
    return made


def test_all_of_it_where_there_is_room() -> None:
    whole = output(10, b"01234", b"", b"56789")
    assert whole.text() == "0123456789"
    assert not whole.is_cut


def test_the_beginning_the_end_and_what_was_left_out() -> None:
    cut = output(10, b"0123456789" * 200)
    assert cut.text() == "01234\n[... 1,990 bytes left out ...]\n56789"
    assert cut.is_cut
    assert output(1, b"ab").text() == "a\n[... 1 bytes left out ...]\n"


def test_no_character_is_cut_in_two() -> None:
    text = "éééééééé".encode()
    assert output(10, text).text() == "éé\n[... 8 bytes left out ...]\néé"
    face = "\U0001f600".encode()
    assert output(10, face * 4).text() == "\U0001f600\n[... 8 bytes left out ...]\n\U0001f600"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\xffb", "a\\xffb"),
        (b"\xc3", "\\xc3"),
        (b"\0\x1b[1m", "\0\x1b[1m"),
        (b"\x80" * 3, "\\x80\\x80\\x80"),
    ],
)
def test_bytes_that_are_no_text_stay_visible(data: bytes, text: str) -> None:
    assert output(10, data).text() == text


def test_a_gigabyte_takes_no_more_room_than_the_limit() -> None:
    big = Output(1000)
    chunk = bytes(1024 * 1024)
    for _ in range(1024):
        big.add(chunk)
        assert len(big._head) + len(big._tail) <= 1500
    assert "[... 1,073,740,824 bytes left out ...]" in big.text()


@given(st.integers(1, 12), st.lists(st.binary(max_size=9)))
def test_however_it_comes_in(limit: int, parts: list[bytes]) -> None:
    data = b"".join(parts)
    assert output(limit, *parts).text() == output(limit, data).text()
    assert output(limit, data).is_cut == (len(data) > limit)
