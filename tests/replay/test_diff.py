"""Where two runs part, on logs made by hand."""

import pytest
from msgspec.structs import replace

from journal.core import values
from journal.core.codec import open_record, seal
from journal.core.records import (
    BlobRef,
    CallIntent,
    CallOutcome,
    DocumentEdit,
    DocumentEdited,
    FileChange,
    FilesChanged,
    FileSnapshot,
    TurnFinished,
)
from journal.replay.diff import Difference, diff, recorded
from journal.replay.fields import differences
from tests.replay.hand import Hand, refund


def compare(left: Hand, right: Hand) -> Difference:
    return diff(recorded(left.records), recorded(right.records))


def worked(*keys: str, run: str = "r", value: bytes | None = None) -> Hand:
    """A run that made these calls, the last of which gave `value`."""
    hand = Hand(run)
    hand.start(1)
    for key in keys:
        hand.intend(key)
        if value is not None and key == keys[-1]:
            hand.add(CallOutcome(status="ok", value=value), key=key)
        else:
            hand.settle(key)
    hand.finish()
    return hand


def test_runs_that_did_the_same_are_alike_in_however_many_attempts() -> None:
    once, twice = Hand("a"), Hand("b")
    once.start(1)
    once.intend("a#1")
    once.settle("a#1")
    twice.start(1)
    twice.intend("a#1")
    twice.start(2, taken_over=True)
    twice.intend("a#1", attempt=2, number=2)
    twice.settle("a#1")
    for hand in (once, twice):
        hand.finish()
    assert compare(once, twice) == Difference(1, [])
    assert compare(refund(), refund()) == Difference(4, [])


def test_they_part_at_an_outcome() -> None:
    found = compare(worked("a#1", "b#1"), worked("a#1", "b#1", value=b"7"))
    (parting,) = found.partings
    assert (found.alike, parting.how, parting.key) == (1, "outcome", "b#1")
    assert (parting.left_call, parting.right_call) == (2, 2)
    assert (parting.left, parting.right) == ('ok {"done":"b#1"}', "ok 7")


def test_they_part_at_documents_and_files() -> None:
    """Also where the result is the same."""

    def changed(*files: FileChange, edits: tuple[DocumentEdit, ...] = ()) -> Hand:
        hand = Hand()
        hand.start(1)
        hand.intend("a#1")
        hand.add(CallOutcome(status="ok", value=b"1", files=files, edits=edits, v=2), key="a#1")
        hand.finish()
        return hand

    hello = FileChange(path="/a", content=b"hello")
    same = FileChange(path="/b", content=b"")
    assert not compare(changed(hello, same), changed(hello, same)).partings
    digest = values.digest(b"hello").hex()
    for other, said in (
        (FileChange(path="/a", base=values.digest(b"hello")), "/a: deleted"),
        (
            FileChange(path="/a", rejected="it was changed meanwhile"),
            "/a: rejected: it was changed meanwhile",
        ),
        (FileChange(path="/a", snapshot=FileSnapshot(id="00ff")), "/a: snapshot 00ff"),
        (
            FileChange(path="/a", content=BlobRef(digest, 5), is_executable=True),
            f"/a: 5 bytes, digest {digest}, executable",
        ),
    ):
        (parting,) = compare(changed(hello, same), changed(other, same)).partings
        assert (parting.how, parting.left, parting.right) == ("files", f"/a: 5 bytes, digest {digest}", said)
    edit = DocumentEdit(doc="todo", version=1, value=b'["a"]')
    (parting,) = compare(changed(edits=(edit,)), changed()).partings
    assert (parting.how, parting.left, parting.right) == ("documents", 'todo: ["a"]', None)


def test_directories_differ_by_their_snapshots_in_the_end() -> None:
    """The application's too, of which no call says anything."""

    def written(name: str) -> Hand:
        hand = Hand()
        hand.start(1)
        hand.finish()
        hand.add(FilesChanged(v=2, changes=(FileChange(path="/", snapshot=FileSnapshot(id=name)),)))
        return hand

    assert compare(written("00aa"), written("00aa")).partings == []
    (parting,) = compare(written("00aa"), written("00bb")).partings
    assert (parting.how, parting.left, parting.right) == ("files", "/: snapshot 00aa", "/: snapshot 00bb")


def test_they_part_at_an_input() -> None:
    left, right = Hand(), Hand()
    for hand, said in ((left, "one"), (right, "x" * 1000)):
        hand.start(1)
        hand.intend("a#1")
        data = values.encode(said)
        intent = hand.records[-1]
        sealed = seal(hand.run, replace(open_record(intent), input=data, input_digest=values.digest(data)))
        hand.records[-1] = replace(intent, body=sealed.body)
    (parting,) = compare(left, right).partings
    assert (parting.how, parting.left) == ("input", '"one"')
    assert parting.right is not None
    assert parting.right.startswith('"xxx')
    assert values.digest(values.encode("x" * 1000)).hex() in parting.right


def test_they_part_where_another_call_is_made() -> None:
    found = compare(worked("a#1", "b#1", "c#1"), worked("a#1", "x#1", "c#1"))
    (parting,) = found.partings
    assert (found.alike, parting.how) == (1, "call")
    assert (parting.left, parting.right) == ("tool b#1 (b)", "tool x#1 (x)")


def test_one_goes_on_where_the_other_ends() -> None:
    short = worked("a#1")
    longer = worked("a#1", "b#1")
    (parting,) = compare(short, longer).partings
    assert (parting.how, parting.left_call, parting.right_call, parting.left) == ("call", None, 2, None)
    (other,) = compare(longer, short).partings
    assert (other.left_call, other.right_call, other.right) == (2, None, None)


def test_turns_and_their_ends() -> None:
    left, right = worked("a#1"), worked("a#1")
    del right.records[-1]
    right.submit("second")
    ends, second = compare(left, right).partings
    assert (ends.how, ends.left, ends.right) == ("end of the turn", 'succeeded "bye"', None)
    assert (second.turn, second.how, second.left, second.right) == ("second", "turn", None, "submitted")


def test_what_a_retry_set_aside_does_not_count() -> None:
    left, right = worked("a#1"), Hand()
    right.start(1)
    first = right.intend("a#1")
    right.settle("a#1", "error")
    right.finish(failed_by="a#1")
    right.retry(first, first + 1)
    right.start(2)
    right.intend("a#1", attempt=2)
    right.settle("a#1")
    right.finish()
    assert compare(left, right) == Difference(1, [])


LONG = "x" * 1000


@pytest.mark.parametrize("how", ["input", "outcome", "end of the turn", "documents"])
def test_long_values_are_shown_where_they_differ(how: str) -> None:
    sides = []
    for said in ("apples", "pears"):
        data = values.encode(f"{LONG}{said}{LONG}")
        hand = Hand()
        hand.start(1)
        given = data if how == "input" else b"1"
        digest = values.digest(given)
        intent = CallIntent(kind="tool", name="a", input=given, input_digest=digest, policy="safe", attempt=1)
        hand.add(intent, key="a#1")
        edits = (DocumentEdit(doc="todo", version=1, value=data),) if how == "documents" else ()
        value = data if how == "outcome" else b"1"
        hand.add(CallOutcome(status="ok", value=value, edits=edits, v=2), key="a#1")
        hand.add(TurnFinished(status="succeeded", output=data if how == "end of the turn" else b"1"))
        sides.append(hand)
    (parting,) = compare(*sides).partings
    assert parting.how == how
    for text, other, said in ((parting.left, "pears", "apples"), (parting.right, "apples", "pears")):
        assert text is not None
        assert f"xx{said}xx" in text
        assert other not in text
        assert len(text) < 300
        if how in ("outcome", "end of the turn"):
            status = "ok" if how == "outcome" else "succeeded"
            assert text.startswith(f"{status} …xxx")
        if how == "input":
            assert text.endswith(f"digest {values.digest(values.encode(f'{LONG}{said}{LONG}')).hex()})")


def test_differences_of_fields_show_where_long_texts_differ() -> None:
    (found,) = differences({"a": LONG + "apples"}, {"a": LONG + "pears" + LONG})
    assert found.path == "a"
    assert found.recorded == f'…{"x" * 50}apples" (1,008 characters)'
    assert found.asked == f"…{'x' * 50}pears{'x' * 145}… (2,007 characters)"


def test_what_the_application_wrote_is_compared_too() -> None:
    def edited(todo: bytes, *files: FileChange) -> Hand:
        hand = worked("a#1")
        hand.add(DocumentEdited(edit=DocumentEdit(doc="todo", version=1, value=todo)), turn=None)
        hand.add(FilesChanged(changes=files), turn=None)
        return hand

    one, same = FileChange(path="/a", content=b"1"), FileChange(path="/b", content=b"")
    assert compare(edited(b"[1]", one, same), edited(b"[1]", one, same)) == Difference(1, [])
    documents, files = compare(edited(b"[1]", one, same), edited(b"[2]", same)).partings
    assert (documents.turn, documents.how, documents.left, documents.right) == (
        "", "documents", "todo: [1]", "todo: [2]",
    )  # fmt: skip
    assert (files.how, files.left, files.right) == (
        "files", f"/a: 1 bytes, digest {values.digest(b'1').hex()}", None,
    )  # fmt: skip
