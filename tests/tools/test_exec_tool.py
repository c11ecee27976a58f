"""Host commands as a tool of a turn: what a model is shown, what is recorded, and what a crash leaves."""

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from journal import Journal, Turn, TurnCancelled, TurnFailed
from journal.core.errors import CommandRefused, InvalidOptions, ToolArgumentError
from journal.tools.exec import CommandResult, HostCommands
from tests.beat import Beat

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


def test_what_a_model_is_shown(tmp_path: Path) -> None:
    tool = HostCommands(cwd=tmp_path, allow=["git", "ls"], timeout=30).tool()
    assert (tool.name, tool.policy) == ("run", "never")
    assert tool.description == (
        "Run one program on this machine and wait for its end. There is no shell: no pipes, redirections, variables, "
        f"globs or `&&`. Programs: git, ls. Working directory: {tmp_path}. "
        "Ended after 30 s, with all that it started."
    )
    properties = tool.schema["properties"]
    assert tool.schema["required"] == ["command"]
    assert properties["command"]["anyOf"] == [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}},
    ]
    assert properties["stdin"]["type"] == "string"
    assert tool.parse('{"command": ["ls", "-l"]}') == {"command": ["ls", "-l"]}
    with pytest.raises(ToolArgumentError, match="command"):
        tool.parse('{"command": 7}')
    assert HostCommands(cwd=tmp_path, allow=["git"]).tool("git_command").name == "git_command"


async def test_its_result_is_recorded_and_read_back(tmp_path: Path) -> None:
    journal = Journal("memory:")
    run = HostCommands(cwd=tmp_path, allow=["cat", "sh"]).tool()

    @journal.agent
    async def work(turn: Turn, _: None) -> list[str]:
        given = await turn.tool(run, "cat - nothing-there", "from the model\n")
        refused = await turn.tool(run, "cat x | sh")
        if turn.attempt == 1:
            raise RuntimeError
        assert isinstance(given.value, CommandResult)
        assert given.value.stdout == "from the model\n"
        assert given.value.returncode == 1
        return [given.status, refused.status, refused.text]

    async with journal:
        with pytest.raises(TurnFailed, match="RuntimeError"):
            await work.run(None, run_id="r")
        assert await (await journal.retry("r")).settle(10, serve=True) == [
            "ok",
            "error",
            "run failed: CommandRefused: the command was not run: | at character 7 is for a shell, and there is none: "
            "run one program at a time, or put it in single quotes if it is meant as it stands",
        ]


async def test_the_largest_and_worst_output_still_fits_the_log(tmp_path: Path) -> None:
    journal = Journal("memory:")
    commands = HostCommands(cwd=tmp_path, allow=["sh"])
    run = commands.tool(max_output=512 * 1024)
    filler = "\x01" * 100_000

    @journal.agent
    async def work(turn: Turn, _: None) -> int:
        script = "head -c 600000 /dev/zero; head -c 600000 /dev/zero >&2"
        found = await turn.tool(run, ["sh", "-c", script, filler])
        assert found.value.stdout_truncated
        assert found.value.stderr_truncated
        return len(found.value.stdout)

    async with journal:
        assert await work.run(None) > 512 * 1024
    with pytest.raises(InvalidOptions, match="of a tool it is at most 524,288 bytes"):
        commands.tool(max_output=512 * 1024 + 1)


async def test_what_was_refused_did_not_happen_so_a_retry_asks_again(tmp_path: Path) -> None:
    journal = Journal("memory:")

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        allow = [] if turn.attempt == 1 else ["sh"]
        run = HostCommands(cwd=tmp_path, allow=allow).tool()
        return (await turn.tool(run, "sh -c 'echo done'")).value.stdout

    async with journal:
        with pytest.raises(TurnFailed, match="CommandRefused"):
            await work.run(None, run_id="r")
        assert await (await journal.retry("r")).settle(10, serve=True) == "done\n"


async def test_a_cancelled_turn_ends_its_command(tmp_path: Path) -> None:
    journal, beat = Journal("memory:"), Beat(tmp_path)
    run = HostCommands(cwd=tmp_path, allow=["sh"]).tool()

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        await turn.tool(run, ["sh", "-c", "exec 3>beat; echo >&3; sleep 100"])

    async with journal:
        handle = await work.submit(None)
        async with journal.worker().running():
            await beat.begun()
            await handle.cancel()
            with pytest.raises(TurnCancelled):
                await handle.result(60)
            assert beat.is_over
    beat.close()


AGENT = """
import sys
from journal import Journal, Turn
from journal.tools.exec import HostCommands

directory = sys.argv[1]
journal = Journal(f"sqlite:{directory}/journal.db")
run = HostCommands(cwd=directory, allow=["sh"]).tool()

@journal.agent
async def work(turn: Turn, script: str) -> list[str]:
    result = await turn.tool(run, ["sh", "-c", script])
    return [result.status, result.text]

if __name__ == "__main__":
    print("|".join(work.run_sync(sys.argv[2], run_id="r")), flush=True)
"""


async def test_its_worker_is_killed_and_the_command_is_unknown_and_gone(tmp_path: Path) -> None:
    beat = Beat(tmp_path)
    script = "echo x >> ran; exec 3>beat; echo >&3; sh -c 'sleep 100' & wait"
    command = [sys.executable, "-c", AGENT, str(tmp_path), script]
    with subprocess.Popen(command) as worker:
        await beat.begun()
        worker.kill()
    await beat.over()
    done = await anyio.run_process(command)
    assert done.stdout.decode().startswith(
        "unknown|run was started before an interruption and may have completed"
    )
    assert (tmp_path / "ran").read_text() == "x\n"
    beat.close()


async def test_run_itself_serves_as_a_step(tmp_path: Path) -> None:
    journal = Journal("memory:")
    commands = HostCommands(cwd=tmp_path, allow=["sh"])

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        return (await turn.step(commands.run, ["sh", "-c", "echo step"])).stdout

    async with journal:
        assert await work.run(None) == "step\n"


def test_a_refusal_is_the_same_on_replay() -> None:
    from journal.core.failures import describe, rebuild

    again = rebuild(describe(CommandRefused(reason="no")), "run#1")
    assert isinstance(again, CommandRefused)
    assert (again.reason, str(again)) == ("no", "the command was not run: no")
