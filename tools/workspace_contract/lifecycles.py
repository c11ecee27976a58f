"""Start, snapshot, resume, abort, cleanup, inspect; of workspaces with ``workspace.lifecycle``."""

from pathlib import Path

from journal.core.errors import WorkspaceError
from journal.tools.workspace_contract.harness import ByHand, WorkspaceCases, WorkspaceHarness, need


def _files(by_hand: ByHand) -> dict[str, str]:
    place = Path(by_hand.directory("r").path)
    return {str(path.relative_to(place)): path.read_text() for path in place.rglob("*") if path.is_file()}


def _write(by_hand: ByHand, name: str, text: str) -> None:
    Path(by_hand.directory("r").path, name).write_text(text)


class LifecycleCases(WorkspaceCases):
    """Operations with keys."""

    async def test_it_goes_on_from_the_last_snapshot(self, harness: WorkspaceHarness) -> None:
        """Resume restores the last snapshot, whole; what came after it is gone."""
        need(harness, "workspace.lifecycle")
        one = harness.by_hand()
        assert (await one.start("r", key="start")).state == "active"
        _write(one, "a", "1")
        taken = await one.snapshot("r", key="1")
        assert (taken.files, taken.size) == (1, 1)
        _write(one, "a", "later")
        _write(one, "b", "later")
        two = harness.by_hand()
        assert (await two.resume("r", key="resume")).state == "active"
        assert _files(two) == {"a": "1"}

    async def test_the_same_key_gives_the_same_answer_after_a_restart(
        self, harness: WorkspaceHarness
    ) -> None:
        """Every operation takes an idempotency key; a key reused for something else is refused."""
        need(harness, "workspace.lifecycle")
        one = harness.by_hand()
        started = await one.start("r", key="start")
        _write(one, "a", "1")
        first = await one.snapshot("r", key="1")
        _write(one, "a", "2")
        assert await one.snapshot("r", key="1") == first
        second = await one.snapshot("r", key="2")
        assert second.id != first.id
        two = harness.by_hand()
        assert await two.start("r", key="start") == started
        assert await two.snapshot("r", key="1") == first
        resumed = await two.resume("r", key="back", snapshot=first.id)
        three = harness.by_hand()
        assert await three.resume("r", key="back", snapshot=first.id) == resumed
        assert _files(three) == {"a": "1"}
        assert await _reason(three.resume("r", key="back", snapshot=second.id)) == "idempotency_conflict"
        assert await _reason(three.abort("r", key="1")) == "idempotency_conflict"
        assert (await three.inspect("r")).state == "active"

    async def test_what_is_aborted_goes_on_no_more(self, harness: WorkspaceHarness) -> None:
        """States: active, aborted, cleanup_pending, cleaned; errors by name."""
        need(harness, "workspace.lifecycle")
        one = harness.by_hand()
        assert await _reason(one.inspect("r")) == "not_found"
        assert await _reason(one.resume("r", key="k")) == "not_found"
        await one.start("r", key="start")
        _write(one, "a", "1")
        taken = await one.snapshot("r", key="1")
        assert (await one.abort("r", key="abort")).state == "aborted"
        assert await _reason(one.resume("r", key="late")) == "aborted"
        assert (await one.cleanup("r", key="cleanup")).state == "cleaned"
        assert (await harness.by_hand().cleanup("r", key="cleanup")).state == "cleaned"
        assert (await one.inspect("r")).state == "cleaned"
        assert await _reason(one.resume("r", key="later", snapshot=taken.id)) == "expired"

    async def test_one_at_work_is_not_cleaned_up_at_once(self, harness: WorkspaceHarness) -> None:
        """While a holder may be at work cleanup is pending, which may be asked for again."""
        need(harness, "workspace.lifecycle")
        one = harness.by_hand()
        await one.start("r", key="start")
        assert await _reason(one.cleanup("r", key="cleanup")) == "cleanup_pending"
        assert (await one.inspect("r")).state == "cleanup_pending"
        assert await _reason(one.resume("r", key="late")) == "cleanup_pending"
        assert (await one.cleanup("r", key="cleanup")).state == "cleaned"

    async def test_a_snapshot_that_is_not_there_is_missing(self, harness: WorkspaceHarness) -> None:
        """A missing snapshot, and one of another run, are told by name; nothing is begun."""
        need(harness, "workspace.lifecycle")
        one = harness.by_hand()
        await one.start("r", key="start")
        await one.start("other", key="start")
        Path(one.directory("other").path, "a").write_text("theirs")
        theirs = await one.snapshot("other", key="1")
        assert await _reason(one.resume("r", key="a", snapshot="0" * 32)) == "missing_snapshot"
        assert await _reason(one.resume("r", key="b", snapshot="../state")) == "missing_snapshot"
        assert await _reason(one.resume("r", key="c", snapshot=theirs.id)) == "invalid_reference"
        assert _files(one) == {}


async def _reason(act: object) -> str:
    try:
        await act  # type: ignore[misc]
    except WorkspaceError as error:
        return error.reason
    return "nothing"
