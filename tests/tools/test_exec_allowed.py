"""Which host commands may run: names, paths, links, environment; tried as somebody who wants out would."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import journal.tools.exec as module
from journal.core.errors import CommandNotStarted, CommandRefused, InvalidOptions
from journal.tools import child
from journal.tools.exec import HostCommands

pytestmark = pytest.mark.anyio


def program(path: Path, text: str, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture
def commands(tmp_path: Path) -> HostCommands:
    """`say` is a program of our own, and is allowed with some of the host's."""
    program(tmp_path / "bin" / "say", '#!/bin/sh\necho "said $*"\n')
    (tmp_path / "work").mkdir()
    return HostCommands(
        cwd=tmp_path / "work",
        allow=["say", "env", "pwd", "cat", "nothing-of-that-name"],
        path=[str(tmp_path / "bin"), "/usr/bin", "/bin"],
    )


async def test_nothing_runs_unless_it_is_allowed(tmp_path: Path) -> None:
    off = HostCommands(cwd=tmp_path)
    with pytest.raises(CommandRefused, match=r"no program is allowed here.*HostCommands\(allow="):
        await off.run("true")


async def test_a_bare_name_is_found_on_the_path(commands: HostCommands, tmp_path: Path) -> None:
    found = await commands.run("say 'a  b' c")
    assert (found.stdout, found.returncode, found.argv) == ("said a  b c\n", 0, ["say", "a  b", "c"])
    assert found.program == os.path.realpath(tmp_path / "bin" / "say")


async def test_a_list_is_passed_as_it_is(commands: HostCommands) -> None:
    found = await commands.run(["say", "$(id); `id` | x > y *", "", "-n"])
    assert found.stdout == "said $(id); `id` | x > y *  -n\n"
    assert os.listdir(commands.cwd) == []


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("touch x", "'touch' is not allowed; what is: cat, env, nothing-of-that-name, pwd, say"),
        ("/usr/bin/env", "Call it by its bare name, env"),
        ("./say", "Call it by its bare name, say"),
        ("../bin/say", "Call it by its bare name, say"),
        ("bin/../say", "Call it by its bare name, say"),
        (["say "], "'say ' is not allowed"),
        (["say\n"], "is not allowed"),
        ("SAY", "'SAY' is not allowed"),
        ("sa\u200by", "is not allowed"),
        ("LD_PRELOAD=./x.so say", r"Variables are not set by a command: HostCommands\(env=...\)"),
        ("PATH=. say", r"Variables are not set by a command"),
        ("nothing-of-that-name", r"there is no program 'nothing-of-that-name' on the path"),
        ("", "it is empty"),
        ([], "it is empty"),
        ("'' x", "it is empty"),
        (["say", "a\0b"], "argument 1 holds NUL or a lone surrogate"),
        (["say", "\udcff"], "argument 1 holds NUL or a lone surrogate"),
        (["say", 7], "argument 1 is 7, and arguments are text"),
        (["say", "x" * 140_000], "give long input by stdin"),
        ("say " + "'x' " * 40_000, "give long input by stdin"),
        ("say x; touch y", "; at character 6"),
        ("say $(touch y)", "\\$ at character 5"),
        ("say\ntouch y", "the line break at character 4"),
    ],
)
async def test_what_is_refused_and_why(commands: HostCommands, command: Any, told: str) -> None:
    with pytest.raises(CommandRefused, match=told):
        await commands.run(command)
    assert os.listdir(commands.cwd) == []


async def test_a_path_must_be_listed_as_it_stands(tmp_path: Path) -> None:
    listed = program(tmp_path / "opt" / "tool", "#!/bin/sh\necho tool\n")
    commands = HostCommands(cwd=tmp_path, allow=[str(listed)])
    assert (await commands.run([str(listed)])).stdout == "tool\n"
    for other in ("tool", f"{tmp_path}//opt/tool", f"{tmp_path}/opt/../opt/tool", "opt/tool"):
        with pytest.raises(CommandRefused, match="is not allowed"):
            await commands.run([other])
    listed.unlink()
    with pytest.raises(CommandRefused, match="is no file that we may execute"):
        await commands.run([str(listed)])


async def test_any_program_but_no_relative_path(tmp_path: Path) -> None:
    commands = HostCommands(cwd=tmp_path, allow="any")
    program(tmp_path / "here", "#!/bin/sh\n")
    assert (await commands.run(["/bin/sh", "-c", "exit 7"])).returncode == 7
    assert (await commands.run([str(tmp_path / "here")])).returncode == 0
    with pytest.raises(CommandRefused, match="is a relative path"):
        await commands.run("./here")
    with pytest.raises(CommandRefused, match="there is no program 'here'"):
        await commands.run("here")


async def test_the_environment_is_what_was_declared(
    commands: HostCommands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LD_PRELOAD_X", "API_KEY", "BASH_ENV", "PYTHONPATH"):
        monkeypatch.setenv(name, "secret")
    path = f"PATH={tmp_path}/bin:/usr/bin:/bin"
    assert sorted((await commands.run("env")).stdout.splitlines()) == [f"HOME={tmp_path}/work", path]
    declared = HostCommands(
        cwd=tmp_path, allow=["env"], path="/usr/bin:/bin", env={"HOME": "/nowhere", "LANG": "C.UTF-8"}
    )
    lines = sorted((await declared.run("env")).stdout.splitlines())
    assert lines == ["HOME=/nowhere", "LANG=C.UTF-8", "PATH=/usr/bin:/bin"]


async def test_the_path_of_the_worker_does_not_count(
    commands: HostCommands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "evil" / "say", "#!/bin/sh\necho evil\n")
    program(tmp_path / "work" / "say", "#!/bin/sh\necho evil\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/evil:.")
    monkeypatch.chdir(tmp_path / "work")
    assert (await commands.run("say x")).stdout == "said x\n"


async def test_what_cannot_be_executed_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "1" / "say").mkdir(parents=True)
    program(tmp_path / "2" / "say", "", mode=0o644)
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "say").symlink_to(tmp_path / "gone")
    (tmp_path / "4").mkdir()
    (tmp_path / "4" / "say").symlink_to("say")
    os.mkfifo(program(tmp_path / "5" / "x", "").with_name("say"), 0o755)
    program(tmp_path / "6" / "say", "#!/bin/sh\necho six\n")
    commands = HostCommands(cwd=tmp_path, allow=["say"], path=[str(tmp_path / str(n)) for n in range(7)])
    assert (await commands.run("say")).stdout == "six\n"


async def test_what_was_checked_is_what_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "good", '#!/bin/sh\necho "good"\n')
    program(tmp_path / "evil", "#!/bin/sh\necho evil\n")
    link = tmp_path / "bin" / "say"
    link.parent.mkdir()
    link.symlink_to(tmp_path / "good")
    commands = HostCommands(cwd=tmp_path, allow=["say"], path=[str(tmp_path / "bin")])
    run_child = child.run_child

    async def swapped(program: str, argv: Sequence[str], **options: Any) -> Any:
        link.unlink()
        link.symlink_to(tmp_path / "evil")
        return await run_child(program, argv, **options)

    monkeypatch.setattr(module, "run_child", swapped)
    assert (await commands.run("say")).stdout == "good\n"


async def test_the_program_is_called_by_the_name_that_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "other-name").symlink_to("/bin/sh")
    commands = HostCommands(cwd=tmp_path, allow=["other-name"], path=[str(tmp_path / "bin"), "/usr/bin"])
    found = await commands.run(["other-name", "-c", "echo $0"])
    assert found.stdout == "other-name\n"
    assert found.program == os.path.realpath("/bin/sh")


@pytest.mark.parametrize("part", ["bin", "bin/say"])
async def test_a_program_that_everybody_may_write_is_refused(
    commands: HostCommands, tmp_path: Path, part: str
) -> None:
    (tmp_path / part).chmod(0o777)
    with pytest.raises(CommandRefused, match=r"everybody may (write|put another)"):
        await commands.run("say")


async def test_no_file_of_the_worker_is_inherited(tmp_path: Path) -> None:
    commands = HostCommands(cwd=tmp_path, allow=["ls"])
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        found = await commands.run(["ls", "/proc/self/fd"])
    assert found.stdout.split() == ["0", "1", "2", "3"]  # 3 is the directory that ls reads


async def test_it_is_alone_in_its_session_and_group(tmp_path: Path) -> None:
    found = await HostCommands(cwd=tmp_path, allow=["cat"]).run("cat /proc/self/stat")
    pid, group, session, terminal = (found.stdout.split()[place] for place in (0, 4, 5, 6))
    assert pid == group == session
    assert terminal == "0"


async def test_what_the_system_does_not_start(commands: HostCommands, tmp_path: Path) -> None:
    program(tmp_path / "bin" / "say", "#!/no/interpreter\n")
    with pytest.raises(CommandNotStarted, match=r"the interpreter that its first line .* is missing"):
        await commands.run("say")
    program(tmp_path / "bin" / "say", "echo no first line\n")
    with pytest.raises(CommandNotStarted, match="a script needs a first line"):
        await commands.run("say")
    os.rmdir(commands.cwd)
    with pytest.raises(CommandNotStarted, match=r"its working directory .* cannot be used"):
        await commands.run("env")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"allow": "git"}, "allow='git': give a list"),
        ({"allow": ["git log"]}, "allow: 'git log' is no program's name"),
        ({"allow": ["*"]}, r"allow: '\*' is no program's name"),
        ({"allow": [""]}, "allow: '' is no program's name"),
        ({"allow": ["./x"]}, "allow: './x' must be an absolute path"),
        ({"allow": ["/usr/../x"]}, "must be an absolute path, without .."),
        ({"path": ""}, "path: '' must be an absolute path"),
        ({"path": "/bin::/usr/bin"}, "path: '' must be an absolute path"),
        ({"path": [".", "/bin"]}, "path: '.' must be an absolute path"),
        ({"path": ["/a:b"]}, "a directory with a colon"),
        ({"cwd": "here"}, "cwd: 'here' must be an absolute path"),
        ({"env": {"PATH": "/bin"}}, "env: PATH is what path= says"),
        ({"env": {"A=B": "x"}}, "env: 'A=B' cannot be set"),
        ({"env": {"A": "x\0y"}}, "env: 'A' cannot be set"),
        ({"env": {"A": "\udcff"}}, "env: 'A' cannot be set"),
        ({"env": {"A": 1}}, "must be text"),
        ({"timeout": 0}, "timeout=0: a number of seconds"),
        ({"timeout": float("nan")}, "timeout=nan"),
        ({"timeout": True}, "timeout=True"),
        ({"grace": -1}, "grace=-1"),
        ({"max_output": 0}, "max_output=0: a number of bytes"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidOptions, match=told):
        HostCommands(**({"cwd": "/"} | options))
