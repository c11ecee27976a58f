"""The file tools of a workspace, handed to an agent of the OpenAI Agents SDK."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, function_tool
from agents.testing import assistant_message, function_call

from journal import Journal, Turn, VirtualWorkspace, io, safe
from journal.adapters.openai_agents import DurableRunner, file_tools, shell_tool
from journal.tools.policy import marker_of
from journal.tools.shell import Shell
from tests.adapters.bench import CountingModel, outputs

pytestmark = pytest.mark.anyio


def asks(name: str, call_id: str, **arguments: Any) -> Any:
    return function_call(name, arguments, call_id=call_id)


async def test_a_model_works_on_files_and_a_crash_takes_none_of_them(tmp_path: Path) -> None:
    """The process is lost inside a tool that wrote; the next one goes on with the files of all calls that ended."""
    lives, inside = list[int](), asyncio.Event()

    @function_tool
    async def build() -> str:
        await io.files.write("/out", f"life {len(lives)}")
        if len(lives) == 1:
            inside.set()
            await asyncio.Event().wait()
        return await io.files.read_text("/out")

    model = CountingModel(
        [
            [
                asks("write_file", "w1", path="/a.py", content="x = 1\n"),
                asks("write_file", "w2", path="/b.py", content="y = 1\n"),
                asks("write_file", "w3", path="../c.py", content=""),
            ],
            [
                asks("edit_file", "e1", path="/a.py", old="x = 2", new="x = 3"),
                asks("grep_files", "g1", text="= 1"),
            ],
            [asks("edit_file", "e2", path="/a.py", old="x = 1", new="x = 3")],
            [asks("build", "b1")],
            [asks("read_file", "r1", path="/a.py")],
            [assistant_message("done")],
        ]
    )
    agent = Agent(name="coder", tools=[*file_tools(), safe(build)], model=model)

    def opened() -> tuple[Journal, Any]:
        lives.append(1)
        journal = Journal(f"sqlite:{tmp_path / 'j.db'}")

        @journal.agent(workspace=VirtualWorkspace())
        async def work(turn: Turn, prompt: str) -> dict[str, str]:
            return outputs(await DurableRunner.run(agent, prompt))

        return journal, work

    policies = [marker.policy for each in file_tools() if (marker := marker_of(each)) is not None]
    assert policies == ["safe"] * 8
    journal, work = opened()
    running = asyncio.create_task(work.run("go", run_id="r"))
    await inside.wait()
    await journal.aclose()
    await asyncio.wait({running})
    journal, work = opened()
    async with journal:
        told = await work.run("go", run_id="r")
        assert await journal.files.glob("r") == ["/a.py", "/b.py", "/out"]
        assert await journal.files.read("r", "/a.py") == b"x = 3\n"
    assert told["w1"] == "created /a.py: 6 bytes"
    assert "it is relative: paths begin at the root" in told["w3"]
    assert "old was not found: read the file again" in told["e1"]
    assert told["g1"] == "/a.py:1: x = 1\n/b.py:1: y = 1"
    assert (told["b1"], told["r1"]) == ("life 2", "1\tx = 3")
    assert model.asked == 6


async def test_a_model_uses_the_shell(tmp_path: Path) -> None:
    """It runs inside the SDK; what it was told, and the files, are there again in another process."""
    model = CountingModel(
        [
            [asks("write_file", "w1", path="/a.py", content="x = 1\n")],
            [asks("shell", "s1", command="sed -i s/1/2/ /a.py; cp a.py b.py; cat b.py; exit 4")],
            [asks("shell", "s2", command="echo lost > /c; while :; do :; done")],
            [assistant_message("done")],
        ]
    )
    shell = shell_tool(Shell(max_commands=100))
    agent = Agent(name="coder", tools=[*file_tools(), shell], model=model)
    marker = marker_of(shell)
    assert marker is not None
    assert marker.policy == "safe"
    assert shell.params_json_schema["required"] == ["command"]

    async def lived() -> dict[str, str]:
        journal = Journal(f"sqlite:{tmp_path / 'j.db'}")

        @journal.agent(workspace=VirtualWorkspace())
        async def work(turn: Turn, prompt: str) -> dict[str, str]:
            return outputs(await DurableRunner.run(agent, prompt))

        async with journal:
            told = await work.run("go", run_id="r")
            assert await journal.files.glob("r") == ["/a.py", "/b.py"]
            assert await journal.files.read("r", "/b.py") == b"x = 2\n"
            return told

    told = await lived()
    assert told["s1"] == "x = 2\n(exit code 4)"
    assert told["s2"].startswith("the script was stopped, and nothing that it changed was saved: ")
    assert await lived() == told
    assert model.asked == 4
