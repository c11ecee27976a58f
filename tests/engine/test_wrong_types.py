"""What is of the wrong type is refused where it is said, in a sentence that tells what to say instead."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from journal import (
    DirectoryWorkspace,
    Journal,
    ModelRetry,
    Retry,
    Turn,
    TurnFailed,
    VirtualWorkspace,
    define_doc,
    io,
    never,
    step,
    tool,
)
from journal.core.errors import CommandRefused, EditRefused, InvalidOptions, PathRefused
from journal.tools.exec import HostCommands
from journal.tools.files import write_file

pytestmark = pytest.mark.anyio


@dataclass
class Page:
    title: str


Todo = define_doc("todo", 1, list)
Later = define_doc("todo", 2, list)
Unlisted = define_doc("unlisted", 1, list)
wrong: Any = "todo"
number: Any = 5
brackets_forgotten: Any = VirtualWorkspace
a_path: Any = Path("app.db")


@asynccontextmanager
async def resources() -> AsyncIterator[int]:
    yield 1


opened_already: Any = resources()


async def work(turn: Turn, _: None) -> None:
    del turn


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"workspace": "x"},
            "agent 'work': workspace='x' is none: say VirtualWorkspace(), or DirectoryWorkspace(root)",
        ),
        ({"workspace": VirtualWorkspace}, "workspace=VirtualWorkspace is the class: say VirtualWorkspace()"),
        ({"workspace": DirectoryWorkspace}, "say DirectoryWorkspace(root)"),
        ({"docs": ["todo"]}, "docs=[...]: 'todo' is no document: give what define_doc made"),
        ({"docs": Todo}, "is one document: give a list of them, [todo]"),
        ({"docs": 5}, "docs=5: give a list of what define_doc made"),
        (
            {"docs": [Todo, Later]},
            "<Document 'todo' version 1> and <Document 'todo' version 2>: a kind is one document",
        ),
    ],
)
async def test_an_agent_refuses_what_is_no_workspace_and_no_document(options: Any, told: str) -> None:
    journal = Journal("memory:")
    with pytest.raises(InvalidOptions, match=re.escape(told)):
        journal.agent(work, **options)
    assert not journal.agents
    journal.agent(work, docs=(doc for doc in (Todo, Todo, Unlisted)))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda: define_doc("x", wrong, list),
            "document 'x': versions count from 1, not from 'todo'",
        ),
        (lambda: define_doc("x", 1, wrong), "document 'x': type='todo' is no type"),
        (
            lambda: define_doc("x", 1, Page),
            "document 'x': Page() makes no first value (Page.__init__() missing",
        ),
        (
            lambda: VirtualWorkspace(max_files=wrong),
            "VirtualWorkspace(max_files='todo'): a whole number from 0 on",
        ),
        (lambda: Journal.local(number), "Journal.local(5): give a directory, as text or a path"),
        (
            lambda: Journal.local(workspace=brackets_forgotten),
            "Journal.local: workspace=VirtualWorkspace is the",
        ),
        (lambda: Journal.local(workspace=wrong), "Journal.local: workspace='todo' is none"),
        (
            lambda: Journal(requires="multi_process"),
            "requires='multi_process': give a set, {'multi_process'}",
        ),
        (lambda: Journal(a_path), "a store is named by a URL as text, such as 'sqlite:app.db'"),
        (lambda: Journal(number), "Journal(5): a store is named by a URL as text"),
        (
            lambda: Journal(resources=number),
            "resources=5: give the function under @asynccontextmanager that opens them, uncalled",
        ),
        (lambda: Journal(resources=opened_already), "that opens them, uncalled"),
        (lambda: Journal("memory:").agent(wrong), "@journal.agent('todo'): it registers a handler"),
        (lambda: step(wrong), "@step('todo'): what is called is a function; options have names"),
        (lambda: tool(wrong), "@tool('todo'): what is called is a function"),
        (lambda: never(probe=wrong), "never(probe='todo'): give a function"),
        (lambda: ModelRetry(tries=0), "ModelRetry(tries=0): a whole number from 1 on"),
        (lambda: Retry(max_delay=-1), "Retry(max_delay=-1): a number of seconds from 0 on"),
    ],
)
async def test_what_is_made_is_refused_at_once(make: Callable[[], object], told: str) -> None:
    with pytest.raises(InvalidOptions, match=re.escape(told)):
        make()


async def _later(value: list[Any]) -> list[Any]:
    return value


async def test_a_call_and_a_handler_are_told_what_is_wrong(tmp_path: Path) -> None:
    journal = Journal("memory:")
    host = HostCommands(cwd=tmp_path, allow="any")

    def told(error: type[Exception], text: str) -> Any:
        return pytest.raises(error, match=re.escape(text))

    @step
    async def call() -> None:
        with told(InvalidOptions, "docs: 'todo' is no document"):
            io.docs.update(wrong, lambda todo: todo)
        with told(InvalidOptions, "an update of document 'todo' is a plain function, not an `async def`"):
            io.docs.update(Todo, _later)  # type: ignore[arg-type]
        with told(InvalidOptions, "an update of document 'todo' is a function, not 'todo'"):
            io.docs.update(Todo, wrong)
        for data in (5, None):
            with told(InvalidOptions, f"a file holds bytes or text, not {type(data).__name__}"):
                await io.files.write("/x", data)  # type: ignore[arg-type]
        with told(PathRefused, "a pattern is text"):
            await io.files.glob(5)  # type: ignore[arg-type]
        with told(EditRefused, "content is text, the whole file"):
            await write_file.fn("/x", 5)  # type: ignore[arg-type]

    @journal.agent(docs=[Todo], workspace=VirtualWorkspace())
    async def wrongs(turn: Turn, _: None) -> None:
        await turn.step(call)
        with told(InvalidOptions, "a sequence is a number from 0 to 2**63 - 1, not 'todo'"):
            await turn.checkpoint("a", {}, sequence=wrong)

    for command in (5, None):
        with told(CommandRefused, f"it is {command}; give text, or a list of texts"):
            await host.run(command)  # type: ignore[arg-type]
    async with journal:
        await wrongs.run(None, run_id="r")
        with told(InvalidOptions, "journal.docs: 'todo' is no document"):
            await journal.docs.get("r", wrong)
        await journal.docs.update("r", Unlisted, lambda each: [*each, 1])  # the application may
        assert await journal.docs.get("r", Unlisted) == [1]


def look(item: str) -> str:
    return item


async def _reason(handler: Callable[[Turn, str], Any]) -> str:
    """Why the turn failed."""
    journal = Journal("memory:")
    agent = journal.agent(handler, name="support")
    async with journal:
        with pytest.raises(TurnFailed) as failed:
            await agent.run("a vase")
    return str(failed.value.__cause__)


async def test_options_among_the_arguments_are_told_where_they_belong() -> None:
    async def retried(turn: Turn, item: str) -> str:
        step: Any = turn.step
        return str(await step(look, item, retry=True))

    async def coloured(turn: Turn, item: str) -> str:
        step: Any = turn.step
        return str(await step(look, item, colour="red"))

    said = await _reason(retried)
    assert "unexpected keyword argument 'retry': what is handed to a call goes to the function" in said
    assert "@step(retry=…)" in said
    assert (await _reason(coloured)).endswith("got an unexpected keyword argument 'colour'")


async def test_a_forgotten_await_is_named() -> None:
    left: list[Any] = []

    async def support(turn: Turn, item: str) -> Any:
        left.append(_later([item]))
        return {"answer": left[0]}

    assert (await _reason(support)).endswith("at answer: a coroutine is no value yet: await it")
    left[0].close()


async def test_files_that_are_in_no_log_are_not_read_as_none() -> None:
    journal = Journal("memory:")

    @journal.agent(workspace=VirtualWorkspace(durable=False))
    async def forgets(turn: Turn, _: None) -> None:
        del turn

    async with journal:
        await forgets.run(None, run_id="r")
        with pytest.raises(InvalidOptions, match="has no durable workspace"):
            await journal.files.list("r")
        with pytest.raises(InvalidOptions, match="has no durable workspace"):
            await journal.files.glob("r")
