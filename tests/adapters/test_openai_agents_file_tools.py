"""The file tools as a model meets them through the OpenAI Agents SDK: their schemas, errors and pages."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from agents import Agent
from agents.testing import assistant_message, function_call

from journal import Journal, Turn, VirtualWorkspace, io, step, tool
from journal.adapters.openai_agents import DurableRunner, file_tools, function_tools
from journal.tools.exec import HostCommands
from journal.tools.policy import marker_of
from tests.adapters.bench import CountingModel, outputs

pytestmark = pytest.mark.anyio
NAMES = [
    "read_file",
    "write_file",
    "edit_file",
    "move_file",
    "delete_file",
    "list_files",
    "glob_files",
    "grep_files",
]
SCHEMAS = {each.name: each.params_json_schema for each in file_tools()}


def asks(name: str, call_id: str, **arguments: Any) -> Any:
    """A call with all arguments, as strict schemas have it; those not given are what they are by default."""
    defaults = {
        key: part["default"] for key, part in SCHEMAS[name]["properties"].items() if "default" in part
    }
    return function_call(name, {**defaults, **arguments}, call_id=call_id)


async def told(
    calls: list[Any],
    *,
    files: dict[str, str | bytes] | None = None,
    workspace: VirtualWorkspace = VirtualWorkspace(),  # noqa: B008 - frozen
) -> tuple[dict[str, str], dict[str, bytes]]:
    """What the model is told of each call, one reply after the other, and the files behind them."""
    model = CountingModel([*([call] for call in calls), [assistant_message("done")]])
    agent = Agent(name="coder", tools=[*file_tools()], model=model)
    journal = Journal("memory:")

    @step
    async def fill() -> None:
        for path, content in (files or {}).items():
            await io.files.write(path, content)

    @journal.agent(workspace=workspace)
    async def work(turn: Turn, _: None) -> dict[str, str]:
        await turn.step(fill)
        return outputs(await DurableRunner.run(agent, "go", max_turns=100))

    async with journal:
        said = await work.run(None, run_id="r")
        paths = (await journal.files.glob("r"))[:5]
        left = {path: await journal.files.read("r", path) for path in paths}
    assert model.asked == len(calls) + 1
    return said, left


def test_a_model_is_given_what_it_needs_to_call_them() -> None:
    """Strict schemas: every property is required and described, nothing else is taken."""
    tools = file_tools()
    assert [each.name for each in tools] == NAMES
    for each in tools:
        schema = each.params_json_schema
        assert each.strict_json_schema, each.name
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", each.name)
        assert each.description.endswith("."), each.name
        assert 20 < len(each.description) < 1024, each.name
        assert schema["additionalProperties"] is False
        assert sorted(schema["required"]) == sorted(schema["properties"])
        for name, part in schema["properties"].items():
            assert part["type"] in ("string", "integer", "boolean"), (each.name, name)
            assert part["description"], (each.name, name)


async def test_what_reaches_the_model_is_these_tools() -> None:
    model = CountingModel([[assistant_message("done")]])
    agent = Agent(name="coder", tools=[*file_tools()], model=model)
    journal = Journal("memory:")

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> None:
        await DurableRunner.run(agent, "go")

    async with journal:
        await work.run(None)
    (asked,) = model.calls
    given = [(each.name, each.params_json_schema) for each in asked.tools]  # type: ignore[union-attr]
    assert given == list(SCHEMAS.items())


SHOWN: dict[str, tuple[Any, str]] = {
    "read what is not there": (
        asks("read_file", "1", path="/none"),
        "there is no file '/none': list the directory, or glob for its name",
    ),
    "read what is no text": (asks("read_file", "1", path="/binary"), "no UTF-8 text"),
    "read a directory": (asks("read_file", "1", path="/d"), "it is a directory"),
    "a relative path": (asks("write_file", "1", path="a", content=""), "give it from the root, as in '/a'"),
    "out of the workspace": (asks("write_file", "1", path="/../etc", content=""), "may not be . or .."),
    "through a file": (asks("write_file", "1", path="/a/b", content=""), "passes through the file '/a'"),
    "too large": (asks("write_file", "1", path="/big", content="x" * 101), "max_file_bytes"),
    "too many": (asks("write_file", "1", path="/fourth", content=""), "max_files"),
    "no such text": (
        asks("edit_file", "1", path="/a", old="tee", new="x"),
        "old was not found: read the file again, and copy the text exactly",
    ),
    "text twice": (
        asks("edit_file", "1", path="/a", old="tea", new="x"),
        "old is there 2 times (lines 1, 2): give more of the lines around it, or replace_all=true",
    ),
    "move what is not there": (asks("move_file", "1", path="/none", to="/b"), "there is no file '/none'"),
    "delete what is not there": (asks("delete_file", "1", path="/none"), "there is no file '/none'"),
    "list what is not there": (asks("list_files", "1", path="/none"), "there is no file '/none'"),
    "list a file": (asks("list_files", "1", path="/a"), "it is a file, not a directory"),
    "a relative pattern": (asks("glob_files", "1", pattern="*.py"), "as in '/**/*.py'"),
    "grep for nothing": (asks("grep_files", "1", text=""), "text is empty"),
    "no JSON": (
        function_call("read_file", '{"path": ', call_id="1"),
        "Invalid JSON input for tool read_file",
    ),
    "no path": (
        function_call("read_file", {}, call_id="1"),
        "It takes one JSON object with path (string), offset (integer), limit (integer): call it again",
    ),
    "a path that is no text": (function_call("delete_file", {"path": 5}, call_id="1"), "path (string)"),
}


@pytest.mark.parametrize("case", SHOWN)
async def test_a_model_is_told_what_is_wrong_and_carries_on(case: str) -> None:
    call, says = SHOWN[case]
    files: dict[str, str | bytes] = {"/a": "tea\ntea\n", "/d/b": "b", "/binary": b"\xff"}
    small = VirtualWorkspace(max_files=3, max_file_bytes=100)
    said, left = await told([call, asks("read_file", "2", path="/a")], files=files, workspace=small)
    assert says in said["1"]
    assert said["2"] == "1\ttea\n2\ttea", "the next call works"
    assert left == {"/a": b"tea\ntea\n", "/d/b": b"b", "/binary": b"\xff"}, "nothing was changed"


def line(text: str) -> str:
    """What a page of `read_file` has of a line."""
    return text.partition("\t")[2]


def entry(text: str) -> str:
    """What a list has of a file."""
    return text.partition("\t")[0]


PAGED: dict[str, tuple[dict[str, str | bytes], Callable[[str], str], dict[str, Any], list[str]]] = {
    "read_file": (
        {"/a": "\n".join(f"{n}: {'x' * 100}" for n in range(3000))},
        line,
        {"path": "/a"},
        [f"{n}: {'x' * 100}" for n in range(3000)],
    ),
    "list_files": (
        {f"/{n:05}": "" for n in range(2500)},
        entry,
        {"path": "/"},
        [f"/{n:05}" for n in range(2500)],
    ),
    "glob_files": (
        {f"/{'n' * 500}/{n:05}": "" for n in range(300)},
        str,
        {"pattern": "/**"},
        [f"/{'n' * 500}/{n:05}" for n in range(300)],
    ),
    "grep_files": (
        {f"/{n:05}": "hit\n" * 3 for n in range(200)},
        str,
        {"text": "hit"},
        [f"/{n:05}:{k}: hit" for n in range(200) for k in (1, 2, 3)],
    ),
}


@pytest.mark.parametrize("name", PAGED)
async def test_pages_make_the_whole(name: str) -> None:
    """A model that goes on where it is told to sees everything once, and never more than fits."""
    files, of, arguments, expected = PAGED[name]
    found: list[str] = []
    offset, pages = 1, 0
    while offset:
        said, _ = await told([asks(name, "1", **arguments, offset=offset)], files=files)
        *lines, last = said["1"].split("\n")
        assert len(said["1"]) < 70_000
        onward = re.search(r"; go on with offset=(\d+)\)$", last)
        found += [of(each) for each in (lines if onward else [*lines, last])]
        offset, pages = int(onward[1]) if onward else 0, pages + 1
    assert found == expected
    assert pages > 1


async def test_arguments_that_are_recorded_are_those_of_the_model() -> None:
    said, left = await told([asks("write_file", "1", path="/ä", content="tea")])
    assert said == {"1": "created /ä: 3 bytes"}
    assert left == {"/ä": b"tea"}
    assert json.loads(json.dumps(SCHEMAS)) == SCHEMAS


@tool(replay="safe")
def add(left: int, right: Annotated[int, "What is added to it"]) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": left + right}


@tool
async def publish() -> str:
    """Put it on the web."""
    return "published"


async def test_host_commands_and_tools_of_ones_own_are_given_to_an_agent_too(tmp_path: Path) -> None:
    commands = HostCommands(cwd=tmp_path, allow=["pwd"])
    given = function_tools(commands.tool(), add, publish)
    assert [each.name for each in given] == ["run", "add", "publish"]
    markers = [marker_of(each) for each in given]
    assert [marker.policy for marker in markers if marker is not None] == ["never", "safe", "never"]
    run, plus, _ = (each.params_json_schema for each in given)
    assert plus["properties"]["right"] == {
        "description": "What is added to it",
        "title": "Right",
        "type": "integer",
    }
    assert sorted(run["required"]) == ["command", "stdin"]
    model = CountingModel(
        [
            [function_call("run", {"command": ["pwd"], "stdin": ""}, call_id="pwd")],
            [function_call("run", {"command": "ls -l", "stdin": ""}, call_id="ls")],
            [function_call("run", {"command": "pwd | sh", "stdin": ""}, call_id="pipe")],
            [function_call("add", {"left": 2, "right": 40}, call_id="add")],
            [function_call("add", {"left": "two", "right": 40}, call_id="words")],
            [function_call("publish", {}, call_id="publish")],
            [assistant_message("done")],
        ]
    )
    agent = Agent(name="worker", tools=[*given], model=model)
    journal = Journal("memory:")

    @journal.agent
    async def work(turn: Turn, _: None) -> dict[str, str]:
        return outputs(await DurableRunner.run(agent, "go"))

    async with journal:
        said = await work.run(None)
    result = json.loads(said["pwd"])
    assert (result["returncode"], result["stdout"]) == (0, f"{tmp_path}\n")
    assert "'ls' is not allowed; what is: pwd" in said["ls"]
    assert "|" in said["pipe"]
    assert said["add"] == '{"sum":42}'
    assert "left (integer), right (integer): call it again" in said["words"]
    assert said["publish"] == "published"
