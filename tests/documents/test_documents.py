"""Documents: SEMANTICS 6, FAULTS 49 and 50."""

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from journal import Journal, Retry, Turn, TurnFailed, define_doc, io, step, tool
from journal.core.codec import open_record
from journal.core.errors import DocumentNotRead, InvalidOptions, InvalidValue, NotInTurn
from journal.core.records import CallOutcome, DocumentEdit
from journal.engine.offline import replay
from journal.engine.reading import read_file

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Todos:
    items: list[str] = field(default_factory=list)

    def with_(self, item: str) -> "Todos":
        return replace(self, items=[*self.items, item])


Todo = define_doc("todo", 1, Todos)


@tool(replay="safe")
async def add(item: str) -> str:
    io.docs.update(Todo, lambda todos: todos.with_(item))
    return f"{len(io.docs.get(Todo).items)} items"


class Again(RuntimeError):
    """Ends the first attempt."""


async def edits_of(journal: Journal, run: str) -> list[DocumentEdit]:
    bodies = [open_record(record) for record in await journal.read(run)]
    return [edit for body in bodies if isinstance(body, CallOutcome) for edit in body.edits]


async def test_a_tool_edits_and_everybody_reads(world_url: str) -> None:
    journal = Journal(world_url)

    @journal.agent(docs=[Todo])
    async def work(turn: Turn, _: None) -> Any:
        before = turn.docs.get(Todo)
        said = [(await turn.tool(add, item)).value for item in ("tea", "milk")]
        return [before.items, said, turn.docs.get(Todo).items]

    async with journal:
        assert await work.run(None, run_id="r") == [[], ["1 items", "2 items"], ["tea", "milk"]]
        assert (await journal.docs.get("r", Todo)).items == ["tea", "milk"]
        assert [edit.value for edit in await edits_of(journal, "r")] == [
            b'{"items":["tea"]}',
            b'{"items":["tea","milk"]}',
        ]


async def test_the_next_turn_finds_what_the_one_before_left(world_url: str) -> None:
    journal = Journal(world_url)

    @journal.agent(docs=[Todo])
    async def work(turn: Turn, item: str) -> list[str]:
        await turn.tool(add, item)
        return turn.docs.get(Todo).items

    async with journal:
        assert await work.run("a", run_id="r", key="1") == ["a"]
        assert await work.run("b", run_id="r", key="2") == ["a", "b"]


async def test_an_edit_vanishes_with_the_call_that_raised(world_url: str) -> None:
    @tool(replay="safe")
    async def breaks(item: str) -> None:
        io.docs.update(Todo, lambda todos: todos.with_(item))
        raise ValueError(item)

    journal = Journal(world_url)

    @journal.agent(docs=[Todo])
    async def work(turn: Turn, _: None) -> list[str]:
        assert (await turn.tool(breaks, "lost")).status == "error"
        await turn.tool(add, "kept")
        return turn.docs.get(Todo).items

    async with journal:
        assert await work.run(None, run_id="r") == ["kept"]


async def test_parallel_edits_are_all_there(world_url: str) -> None:
    journal = Journal(world_url)

    @journal.agent(docs=[Todo])
    async def work(turn: Turn, _: None) -> list[str]:
        await asyncio.gather(*(turn.tool(add, str(number)) for number in range(20)))
        return turn.docs.get(Todo).items

    async with journal:
        found = await work.run(None, run_id="r")
        assert sorted(found, key=int) == [str(number) for number in range(20)]
        assert (await journal.docs.get("r", Todo)).items == found


async def test_the_application_edits_while_tools_do(world_url: str) -> None:
    """Two tools edit in parallel, and so does the application: nothing is lost, whoever came first."""
    journal = Journal(world_url)
    started = asyncio.Event()

    @journal.agent(docs=[Todo])
    async def work(turn: Turn, _: None) -> list[str]:
        started.set()
        for number in range(10):
            await asyncio.gather(turn.tool(add, f"a{number}"), turn.tool(add, f"b{number}"))
        return turn.docs.get(Todo).items

    async with journal:
        running = asyncio.create_task(work.run(None, run_id="r"))
        await started.wait()
        for number in range(10):
            await journal.docs.update("r", Todo, lambda todos, n=number: todos.with_(f"c{n}"))  # type: ignore[misc]
        await running
        expected = {f"{who}{number}" for who in "abc" for number in range(10)}
        found = (await journal.docs.get("r", Todo)).items
        assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("length", [5, 100_000])
async def test_the_handler_sees_what_was_edited_before_the_outcome_of_its_call(
    world_url: str, length: int
) -> None:
    """Also where the call itself edits nothing, and where the value lies in a blob."""
    journal = Journal(world_url)

    @journal.agent(docs=[Todo])
    async def work(turn: Turn, _: None) -> list[int]:
        async def ask(number: int) -> None:
            await journal.docs.update("r", Todo, lambda todos: todos.with_(str(number) * length))

        found = []
        for number in range(3):
            await turn.step(ask, number)
            found.append(len(turn.docs.get(Todo).items))
        return found

    async with journal:
        assert await work.run(None, run_id="r") == [1, 2, 3]


@pytest.mark.parametrize("is_edit", [True, False])
def test_the_application_edits_under_a_call_in_a_plain_event_loop(is_edit: bool) -> None:
    """`asyncio.run` alone: these tests run in one of anyio's, which helps where callbacks start tasks."""
    journal = Journal("memory:")

    @journal.agent(docs=[Todo])
    async def work(turn: Turn, _: None) -> list[str]:
        async def slow() -> None:
            if is_edit:
                io.docs.update(Todo, lambda todos: todos.with_("mine"))
            inside.set()
            await edited.wait()

        await asyncio.gather(turn.step(slow), turn.step(slow))
        return turn.docs.get(Todo).items

    async def main() -> list[str]:
        async with journal:
            running = asyncio.create_task(work.run(None, run_id="r"))
            await inside.wait()
            await journal.docs.update("r", Todo, lambda todos: todos.with_("theirs"))
            edited.set()
            return await asyncio.wait_for(running, 20)

    inside, edited = asyncio.Event(), asyncio.Event()
    assert asyncio.run(main()) == ["theirs", *(["mine"] * 2 if is_edit else [])]


async def test_an_update_that_raises_when_applied_again_is_rejected_and_the_outcome_stands(
    world_url: str,
) -> None:
    inside, edited = asyncio.Event(), asyncio.Event()

    def only_if_empty(todos: Todos) -> Todos:
        if todos.items:
            raise RuntimeError("not empty")
        return todos.with_("first")

    @tool(replay="never")
    async def claim() -> str:
        io.docs.update(Todo, only_if_empty)
        inside.set()
        await edited.wait()
        return "done"

    journal = Journal(world_url)

    @journal.agent(docs=[Todo])
    async def work(turn: Turn, _: None) -> Any:
        result = await turn.tool(claim)
        if turn.attempt == 1:
            raise Again
        return [result.value, list(result.rejected), result.text, turn.docs.get(Todo).items]

    async with journal:
        running = asyncio.create_task(work.run(None, run_id="r"))
        await inside.wait()
        await journal.docs.update("r", Todo, lambda todos: todos.with_("theirs"))
        edited.set()
        with pytest.raises(TurnFailed):
            await running
        (edit,) = await edits_of(journal, "r")
        assert edit.value is None
        assert edit.rejected == "applied again on a newer value, it raised RuntimeError"
        found = await (await journal.retry("r")).settle(20, serve=True)
        text = (
            "done\n(Not saved: todo: applied again on a newer value, it raised RuntimeError. "
            "Read again before editing again.)"
        )
        assert found == ["done", ["todo"], text, ["theirs"]]


async def test_what_the_handler_read_is_the_same_on_replay(world_url: str) -> None:
    """Also after later edits of others."""
    journal = Journal(world_url)
    seen: list[list[str]] = []

    @journal.agent(docs=[Todo])
    async def work(turn: Turn, _: None) -> list[list[str]]:
        await turn.tool(add, "a")
        seen.append(turn.docs.get(Todo).items)
        await turn.docs.update(Todo, lambda todos: todos.with_("b"))
        seen.append(turn.docs.get(Todo).items)
        if turn.attempt == 1:
            raise Again
        return [turn.docs.get(Todo).items]

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        await journal.docs.update("r", Todo, lambda todos: todos.with_("c"))
        assert await (await journal.retry("r")).settle(20, serve=True) == [["a", "b", "c"]]
    assert seen == [["a"], ["a", "b"]] * 2


async def test_a_large_document_lies_in_a_blob_and_is_read_like_any_other(world_url: str) -> None:
    journal = Journal(world_url)
    long = "x" * 100_000

    @journal.agent(docs=[Todo])
    async def work(turn: Turn, _: None) -> int:
        await turn.tool(add, long)
        found = len(turn.docs.get(Todo).items[0])
        await turn.tool(add, "short")
        if turn.attempt == 1:
            raise Again
        return found

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        await journal.docs.update("r", Todo, lambda todos: todos.with_(long))
        assert await (await journal.retry("r")).settle(20, serve=True) == 100_000
        assert [len(item) for item in (await journal.docs.get("r", Todo)).items] == [100_000, 5, 100_000]


async def test_a_step_that_is_tried_again_edits_once(world_url: str) -> None:
    tries: list[int] = []

    @step(retry=Retry(tries=3, min_delay=0.0, max_delay=0.0))
    async def flaky() -> None:
        tries.append(1)
        io.docs.update(Todo, lambda todos: todos.with_(f"try {len(tries)}"))
        if len(tries) < 3:
            raise ConnectionError

    journal = Journal(world_url)

    @journal.agent(docs=[Todo])
    async def work(turn: Turn, _: None) -> list[str]:
        await turn.step(flaky)
        return turn.docs.get(Todo).items

    async with journal:
        assert await work.run(None, run_id="r") == ["try 3"]


async def test_watching_shows_each_value_and_ends_with_the_run(world_url: str) -> None:
    journal = Journal(world_url)
    seen: list[list[str]] = []

    @journal.agent(docs=[Todo])
    async def work(turn: Turn, _: None) -> None:
        for item in "ab":
            await turn.tool(add, item)

    async def watch() -> None:
        async for todos in journal.docs.watch("r", Todo):
            seen.append(todos.items)  # noqa: PERF401 - while it goes on

    async with journal:
        await work.run(None, run_id="r")
        watching = asyncio.create_task(watch())
        while not seen:
            await asyncio.sleep(0.01)
        await journal.docs.update("r", Todo, lambda todos: todos.with_("c"))
        await journal.close("r")
        await asyncio.wait_for(watching, 20)
    assert seen == [["a", "b"], ["a", "b", "c"]]


async def test_a_watcher_that_lags_is_shown_the_newest_value_alone(world_url: str) -> None:
    """More than a hundred changes behind: one whole value, then each again."""
    journal = Journal(world_url)

    @journal.agent(docs=[Todo])
    async def work(turn: Turn, _: None) -> None:
        await turn.tool(add, "0")

    async def edit(number: int) -> None:
        await journal.docs.update("r", Todo, lambda todos: todos.with_(str(number)))

    async with journal:
        await work.run(None, run_id="r")
        watching = journal.docs.watch("r", Todo)
        assert (await anext(watching)).items == ["0"]
        for number in range(1, 150):
            await edit(number)
        assert len((await anext(watching)).items) == 150
        await edit(150)
        assert len((await anext(watching)).items) == 151
        await watching.aclose()  # type: ignore[attr-defined]  # it is a generator


# Versions ------------------------------------------------------------------------------------------


async def test_older_values_are_migrated_in_memory_until_the_next_write(world_url: str) -> None:
    old = define_doc("plan", 1, list[str])
    new = define_doc(
        "plan", 2, dict[str, bool], migrate=lambda value, version: dict.fromkeys(value, version > 1)
    )
    journal = Journal(world_url)

    @journal.agent(name="old", docs=[old])
    async def write(turn: Turn, _: None) -> None:
        await turn.docs.update(old, lambda plan: [*plan, "a"])

    async with journal:
        await write.run(None, run_id="r")
        head = (await journal.get("r")).head
        assert await journal.docs.get("r", new) == {"a": False}
        assert (await journal.get("r")).head == head, "reading writes nothing"
        assert await journal.docs.update("r", new, lambda plan: {**plan, "b": True}) == {
            "a": False,
            "b": True,
        }
        with pytest.raises(DocumentNotRead, match="written in version 2, and this code knows 1"):
            await journal.docs.get("r", old)
        with pytest.raises(DocumentNotRead):
            await journal.docs.update("r", old, lambda plan: plan)


async def test_a_migration_that_raises_or_is_missing_is_told_and_loses_nothing(world_url: str) -> None:
    old = define_doc("plan", 1, list[str], ["a"])

    def broken(value: Any, version: int) -> Any:
        raise KeyError(version)

    journal = Journal(world_url)

    @journal.agent(docs=[old])
    async def write(turn: Turn, _: None) -> None:
        await turn.docs.update(old, lambda plan: [*plan, "b"])

    async with journal:
        await write.run(None, run_id="r")
        with pytest.raises(DocumentNotRead, match="give define_doc a migrate"):
            await journal.docs.get("r", define_doc("plan", 2, list[str]))
        with pytest.raises(DocumentNotRead, match="raised KeyError"):
            await journal.docs.get("r", define_doc("plan", 2, list[str], migrate=broken))
        with pytest.raises(DocumentNotRead, match="version 1"):
            await journal.docs.get("r", define_doc("plan", 1, list[int]))
        assert await journal.docs.get("r", old) == ["a", "b"]


# Bad input -----------------------------------------------------------------------------------------


async def test_what_is_no_document_value_is_told_and_the_outcome_is_an_error(world_url: str) -> None:
    @tool(replay="safe")
    async def wrong(kind: str) -> None:
        updates: dict[str, Any] = {
            "none": lambda _: None,
            "type": lambda _: {"items": 3},
            "odd": lambda _: object(),
        }
        io.docs.update(Todo, updates[kind])

    journal = Journal(world_url)

    @journal.agent(docs=[Todo])
    async def work(turn: Turn, kind: str) -> Any:
        result = await turn.tool(wrong, kind)
        return [result.status, type(result.failure).__name__, turn.docs.get(Todo).items]

    async with journal:
        for kind in ("none", "type", "odd"):
            status, _, items = await work.run(kind, run_id=f"r-{kind}")
            assert (status, items) == ("error", [])


async def test_a_document_that_the_agent_does_not_list_is_refused(world_url: str) -> None:
    journal = Journal(world_url)

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        with pytest.raises(InvalidOptions, match=r"docs=\[\.\.\.\]"):
            turn.docs.get(Todo)

    async with journal:
        await work.run(None, run_id="r")


async def test_documents_of_a_call_are_dead_after_it(world_url: str) -> None:
    kept: list[Any] = []

    @tool(replay="safe")
    async def keep() -> None:
        kept.append(io.docs)

    journal = Journal(world_url)

    @journal.agent(docs=[Todo])
    async def work(turn: Turn, _: None) -> None:
        await turn.tool(keep)

    async with journal:
        await work.run(None, run_id="r")
    with pytest.raises(NotInTurn, match="has ended"):
        kept[0].get(Todo)
    with pytest.raises(NotInTurn, match="has ended"):
        kept[0].update(Todo, lambda todos: todos)


def test_definitions_are_checked() -> None:
    with pytest.raises(InvalidOptions, match="count from 1"):
        define_doc("todo", 0, list[str])
    with pytest.raises(InvalidValue):
        define_doc("todo", 1, list[str], [1])  # type: ignore[list-item]


async def test_a_crash_between_edit_and_outcome_leaves_nothing(tmp_path: Path) -> None:
    """The first attempt is lost within the call; the second edits once."""
    url = f"sqlite:{tmp_path / 'j.db'}"
    hanging = asyncio.Event()
    lives: list[int] = []

    @tool(replay="safe")
    async def slow() -> None:
        io.docs.update(Todo, lambda todos: todos.with_("once"))
        lives.append(1)
        if len(lives) == 1:
            hanging.set()
            await asyncio.Event().wait()

    def build() -> tuple[Journal, Any]:
        journal = Journal(url)

        @journal.agent(docs=[Todo])
        async def work(turn: Turn, _: None) -> list[str]:
            await turn.tool(slow)
            return turn.docs.get(Todo).items

        return journal, work

    journal, work = build()
    running = asyncio.create_task(work.run(None, run_id="r"))
    await hanging.wait()
    await journal.aclose()
    await asyncio.wait({running})
    journal, work = build()
    async with journal:
        assert await work.run(None, run_id="r") == ["once"]


# Elsewhere -----------------------------------------------------------------------------------------


async def test_a_fork_has_the_documents_as_the_call_found_them(world_url: str) -> None:
    """Edits of the application too; the origin's stay as they are."""
    journal = Journal(world_url)
    gate, inside = asyncio.Event(), asyncio.Event()

    @tool(replay="safe")
    async def wait() -> None:
        inside.set()
        await gate.wait()

    @journal.agent(docs=[Todo])
    async def work(turn: Turn, _: None) -> list[str]:
        await turn.tool(add, "a")
        await turn.tool(wait)
        await turn.tool(add, "c")
        await turn.tool(add, "d")
        return turn.docs.get(Todo).items

    async with journal:
        running = asyncio.create_task(work.run(None, run_id="r"))
        await inside.wait()
        await journal.docs.update("r", Todo, lambda todos: todos.with_("b"))
        gate.set()
        assert await running == ["a", "b", "c", "d"]
        forked = await journal.fork("r", at=4, new_id="f")
        assert (await journal.docs.get("f", Todo)).items == ["a", "b", "c"]
        assert await forked.settle(20, serve=True) == ["a", "b", "c", "d"]
        await journal.docs.update("f", Todo, lambda todos: todos.with_("only here"))
        assert (await journal.docs.get("r", Todo)).items == ["a", "b", "c", "d"]


async def test_an_exported_run_has_its_documents_and_replays(world_url: str, tmp_path: Path) -> None:
    journal = Journal(world_url)
    long = "x" * 100_000

    @journal.agent(docs=[Todo])
    async def work(turn: Turn, _: None) -> list[int]:
        sizes = []
        for item in ("a", long, "b"):
            await turn.tool(add, item)
            sizes.append(sum(map(len, turn.docs.get(Todo).items)))
        return sizes

    async with journal:
        assert await work.run(None, run_id="r") == [1, 100_001, 100_002]
        await journal.export("r", tmp_path / "r.jsonl")
    log = await read_file(tmp_path / "r.jsonl")
    replayed = await replay(work, log)
    assert replayed.verdict == "same", replayed.detail


async def test_calls_that_a_retry_set_aside_edited_nothing(world_url: str) -> None:
    journal = Journal(world_url)

    @journal.agent(docs=[Todo])
    async def work(turn: Turn, _: None) -> list[str]:
        for item in "abc":
            await turn.tool(add, item)
        if turn.attempt == 1:
            raise Again
        return turn.docs.get(Todo).items

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        handle = await journal.retry("r", from_call=2)
        assert (await journal.docs.get("r", Todo)).items == ["a"]
        assert await handle.settle(20, serve=True) == ["a", "b", "c"]
