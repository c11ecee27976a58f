"""Ids: what is allowed, what is refused and what is suggested instead."""

import pytest

from journal.core.errors import InvalidId
from journal.core.ids import BatchIds, check_id, new_batch_id, new_run_id, new_token


@pytest.mark.parametrize(
    "value",
    ["a", "0", "order-42", "a.b", "...", ".a", "a/b", "A_b:@|+=~/-.z", "~", "@user", "a" * 200, "a/../b"],
)
def test_allowed(value: str) -> None:
    assert check_id(value) == value


@pytest.mark.parametrize(
    ("value", "reason", "suggestion"),
    [
        ("", "it is empty", None),
        (".", "it names a directory", None),
        ("..", "it names a directory", None),
        ("-rf", "it begins with '-'", "rf"),
        ("/etc", "it begins with '/'", "etc"),
        ("//a", "it begins with '/'", "a"),
        ("order 42", "it holds ' '", "order-42"),
        (" order ", "it holds ' '", "order"),
        ("café", "it holds 'é'", "caf"),
        ("a\x00b", "it holds '\\x00'", "a-b"),
        ("a\n", "it holds '\\n'", "a"),
        ("a\\b", "it holds '\\\\'", "a-b"),
        ("a%2e", "it holds '%'", "a-2e"),
        ("\u0664\u0662", "it holds", None),  # digits, but not ours
        ("\u212a", "it holds '\u212a'", None),  # the Kelvin sign, which folds to k
        ("\ud800", "it holds '\\ud800'", None),
        ("é", "it holds 'é'", None),
        ("- -", "it begins with '-'", None),
    ],
)
def test_refused(value: str, reason: str, suggestion: str | None) -> None:
    with pytest.raises(InvalidId) as caught:
        check_id(value, "turn key")
    error = caught.value
    assert (error.what, error.value, error.suggestion) == ("turn key", value, suggestion)
    assert error.reason.startswith(reason)
    assert str(error).startswith("turn key ")
    if suggestion is not None:
        assert check_id(suggestion) == suggestion
        assert str(error).endswith(f"; try {suggestion!r}")


def test_a_long_id_gets_a_short_one_that_stays_its_own() -> None:
    suggestions = set()
    for value in ("a" * 201, "a" * 202, "b" * 5000, "é" * 300 + "a" * 300):
        with pytest.raises(InvalidId) as caught:
            check_id(value)
        assert caught.value.reason == f"it has {len(value)} characters, 200 are allowed"
        assert caught.value.suggestion is not None
        suggestions.add(check_id(caught.value.suggestion))
        assert len(str(caught.value)) < 500
    assert len(suggestions) == 4


@pytest.mark.parametrize("value", [None, 42, b"a", ["a"]])
def test_what_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(InvalidId, match="it is not text"):
        check_id(value)


def test_new_ids_are_allowed_and_differ() -> None:
    ids = {new_run_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(check_id(value) == value and len(value) == 20 for value in ids)


def test_tokens_and_batch_ids_are_128_bits() -> None:
    assert len({new_token() for _ in range(100)} | {new_batch_id() for _ in range(100)}) == 200
    assert len(new_token()) == len(new_batch_id()) == 16


def test_batch_ids_of_one_holder_rise() -> None:
    source, other = BatchIds(), BatchIds()
    ids = [source.next() for _ in range(1000)]
    assert ids == sorted(set(ids))
    assert all(len(value) == 16 for value in ids)
    assert not set(ids) & {other.next() for _ in range(1000)}
