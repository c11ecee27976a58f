"""An hour of trying to get past `HostCommands`: its words, its list, its path, its ends. FAULTS 33.

Every attempt stands here by name. What must hold: what runs is the program that was allowed, with the words that were
given; and nothing of it runs when it is over, but what took a session of its own and is told.
"""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from journal.core.errors import CommandNotStarted, CommandRefused, InvalidOptions
from journal.tools.exec import HostCommands
from tests.beat import Beat

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

ANOTHER_PROGRAM: dict[str, str | list[str]] = {
    "a semicolon": "echo a; id",
    "a semicolon without blanks": "echo a;id",
    "and": "echo a && id",
    "or": "echo a || id",
    "the background": "echo a & id",
    "a pipe": "echo a | id",
    "a pipe of both": "echo a |& id",
    "a line break": "echo a\nid",
    "a carriage return and a line break": "echo a\r\nid",
    "a line break behind a comment": "echo a #\nid",
    "a substitution": "echo $(id)",
    "a substitution in quotes": 'echo "$(id)"',
    "backquotes": "echo `id`",
    "backquotes in quotes": 'echo "`id`"',
    "a process substitution": "echo <(id)",
    "a subshell": "(id)",
    "a group": "{ id; }",
    "a function": "echo() { id; }; echo",
    "a variable": "echo $HOME",
    "a variable in quotes": 'echo "$HOME"',
    "a variable in braces": "echo ${HOME}",
    "the separator variable": "echo${IFS}a",
    "an ANSI string": "echo $'\\n'id",
    "arithmetic": "echo $((1))",
    "output into a file": "echo a > /tmp/x",
    "output behind a word": "echo a>x",
    "input of a file": "echo < /etc/passwd",
    "a here-document": "echo << x\nx",
    "a here-string": "echo <<< x",
    "a descriptor": "echo 2>&1",
    "a star": "echo *",
    "a question mark": "echo /etc/passw?",
    "brackets": "echo [a-z]",
    "braces": "echo {a,b}",
    "a tilde": "echo ~root",
    "a tilde behind an assignment": "echo a=~root",
    "a comment": "echo a # b",
    "an assignment": "LD_PRELOAD=/x.so echo",
    "an assignment of the path": "PATH=. echo",
    "an assignment in quotes": "'PATH=.' echo",
    "env": "env id",
    "exec": "exec id",
    "command": "command id",
    "eval": "eval id",
    "source": ". /etc/profile",
    "negation": "! id",
    "a keyword": "time id",
    "an open quote": "echo 'a",
    "an open double quote": 'echo "a',
    "a quote opened within another": "echo 'a'\"; id",
    "a backslash at the end": "echo a\\",
    "nothing": "",
    "blanks": " \t ",
    "an empty name": "'' a",
    "no words": [],
    "an empty word": [""],
    "a relative name": "./echo",
    "a name with dots": "../bin/echo",
    "a directory and a name": "bin/echo",
    "its absolute path": "/bin/echo",
    "its absolute path with dots": "/bin/../bin/echo",
    "its absolute path with another slash": "//bin/echo",
    "a trailing slash": "echo/",
    "another case": "ECHO",
    "a blank within": ["echo ", "a"],
    "a line break within": ["echo\n", "a"],
    "a dot": ".",
    "the parent directory": "..",
    "a zero-width character": "e\u200bcho",
    "fullwidth letters": "\uff45\uff43\uff48\uff4f",
    "a look-alike": "\u0435cho",
    "NUL in the name": ["echo\0", "a"],
    "NUL in a word": ["echo", "a\0; id"],
    "NUL in text": "echo a\0id",
    "half a character": ["echo", "\ud800"],
    "half a character in the name": ["echo\udcff"],
    "the whole in one word": ["echo a; id"],
    "one of the host's own": [sys.executable, "-c", "1"],
    "a pattern": "e*",
    "words without end": ["echo", *["x"] * 200_000],
    "a word without end": ["echo", "x" * 200_000],
    "text without end": "echo " + "x" * 200_000,
}


@pytest.mark.parametrize("name", ANOTHER_PROGRAM)
async def test_no_words_start_another_program(name: str, tmp_path: Path) -> None:
    commands = HostCommands(cwd=tmp_path, allow=["echo"])
    with pytest.raises(CommandRefused) as caught:
        await commands.run(ANOTHER_PROGRAM[name])
    assert len(str(caught.value)) < 1000
    assert list(tmp_path.iterdir()) == []


LITERAL: dict[str, tuple[str, list[str]]] = {
    "everything in single quotes": (
        "echo '$(id) `id` ; | & > < * ~ # \\'",
        ["$(id) `id` ; | & > < * ~ # \\"],
    ),
    "a line break in quotes": ("echo 'a\nid'", ["a\nid"]),
    "escaped": ("echo \\$HOME \\; \\* \\'", ["$HOME", ";", "*", "'"]),
    "quotes side by side": ("echo 'a'\"b\"c", ["abc"]),
    "a fullwidth semicolon": ("echo a\uff1b id", ["a\uff1b", "id"]),
    "a blank that is none": ("echo a\u00a0id\u2003x", ["a\u00a0id\u2003x"]),
    "a carriage return": ("echo a\rid", ["a\rid"]),
    "a vertical tab": ("echo a\vid", ["a\vid"]),
    "right to left": ("echo \u202ea", ["\u202ea"]),
    "an escape sequence": ("echo '\x1b[2J'", ["\x1b[2J"]),
    "options": ("echo -- -n --help", ["--", "-n", "--help"]),
    "a closing brace, a percent sign, a bang": ("echo } % ! ^ a=b", ["}", "%", "!", "^", "a=b"]),
}


@pytest.mark.parametrize("name", LITERAL)
def test_what_is_passed_on_stays_one_word(name: str, tmp_path: Path) -> None:
    text, words = LITERAL[name]
    _, argv = HostCommands(cwd=tmp_path, allow=["echo"]).check(text)
    assert argv == ["echo", *words]


# The path ------------------------------------------------------------------------------------------


def program(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\necho ran\n")
    path.chmod(mode)
    return path


def opened(directory: Path, mode: int = 0o777) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(mode)
    return directory


def in_an_open_directory(root: Path) -> Path:
    return program(opened(root / "open") / "tool").parent


def in_a_shared_one(root: Path) -> Path:
    return program(opened(root / "shared", 0o1777) / "tool").parent


def below_an_open_directory(root: Path) -> Path:
    bin_ = program(root / "open/bin/tool").parent
    opened(root / "open")
    return bin_


def far_below_an_open_directory(root: Path) -> Path:
    bin_ = program(root / "open/a/b/c/bin/tool").parent
    opened(root / "open")
    return bin_


def a_link_in_an_open_directory(root: Path) -> Path:
    (opened(root / "open") / "tool").symlink_to("/bin/sh")
    return root / "open"


def a_link_to_a_link_in_one(root: Path) -> Path:
    (opened(root / "open") / "next").symlink_to("/bin/sh")
    (opened(root / "bin", 0o755) / "tool").symlink_to(root / "open/next")
    return root / "bin"


def a_directory_that_is_a_link_in_one(root: Path) -> Path:
    program(root / "bin/tool")
    (opened(root / "open") / "bin").symlink_to(root / "bin")
    return root / "open/bin"


def a_way_through_one_and_back(root: Path) -> Path:
    program(root / "bin/tool")
    (root / "open/x").mkdir(parents=True)
    opened(root / "open")
    (root / "way").symlink_to("open/x/../../bin")
    return root / "way"


def a_file_that_everybody_may_write(root: Path) -> Path:
    return program(root / "bin/tool", 0o777).parent


def a_link_to_a_file_that_everybody_may_write(root: Path) -> Path:
    program(root / "other/x", 0o757)
    (opened(root / "bin", 0o755) / "tool").symlink_to(root / "other/x")
    return root / "bin"


def no_program(root: Path) -> Path:
    return program(root / "bin/tool", 0o644).parent


def a_directory(root: Path) -> Path:
    (root / "bin/tool").mkdir(parents=True)
    return root / "bin"


def a_pipe(root: Path) -> Path:
    os.mkfifo(opened(root / "bin", 0o755) / "tool", 0o755)
    return root / "bin"


def a_device(root: Path) -> Path:
    (opened(root / "bin", 0o755) / "tool").symlink_to("/dev/null")
    return root / "bin"


def a_dangling_link(root: Path) -> Path:
    (opened(root / "bin", 0o755) / "tool").symlink_to(root / "nowhere")
    return root / "bin"


def links_in_a_circle(root: Path) -> Path:
    (opened(root / "bin", 0o755) / "tool").symlink_to("tool")
    return root / "bin"


def directories_in_a_circle(root: Path) -> Path:
    (root / "bin").symlink_to("bin")
    return root / "bin"


def nothing(root: Path) -> Path:
    return opened(root / "bin", 0o755)


def in_the_working_directory(root: Path) -> Path:
    program(root / "tool")
    return opened(root / "bin", 0o755)


PLACES = [
    in_an_open_directory,
    in_a_shared_one,
    below_an_open_directory,
    far_below_an_open_directory,
    a_link_in_an_open_directory,
    a_link_to_a_link_in_one,
    a_directory_that_is_a_link_in_one,
    a_way_through_one_and_back,
    a_file_that_everybody_may_write,
    a_link_to_a_file_that_everybody_may_write,
    no_program,
    a_directory,
    a_pipe,
    a_device,
    a_dangling_link,
    links_in_a_circle,
    directories_in_a_circle,
    nothing,
    in_the_working_directory,
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
async def test_a_name_leads_to_no_program_that_anybody_put_there(
    place: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = place(tmp_path)
    for allow in ("tool", str(path / "tool")):
        commands = HostCommands(cwd=tmp_path, path=[str(path)], allow=[allow])
        with pytest.raises(CommandRefused):
            await commands.run([allow])


async def test_links_that_nobody_else_can_change_are_followed(tmp_path: Path) -> None:
    """Over relative and absolute ones, through a directory that is a link, and through /tmp, where all may write."""
    program(tmp_path / "real/tool")
    (tmp_path / "real/alias").symlink_to("./../real/tool")
    (tmp_path / "bin").symlink_to(tmp_path / "real")
    opened(tmp_path / "shared", 0o1777)
    (tmp_path / "shared/mine").symlink_to("../bin")
    for path in (tmp_path / "bin", tmp_path / "shared/mine"):
        result = await HostCommands(cwd=tmp_path, path=[str(path)], allow=["alias"]).run("alias")
        assert result.stdout == "ran\n"
        assert result.program == str(tmp_path / "real/tool")


@pytest.mark.parametrize(
    "options",
    [
        {"path": "bin"},
        {"path": "/bin:"},
        {"path": ":/bin"},
        {"path": "/bin:."},
        {"path": "/bin/../x"},
        {"path": ["/a:/b"]},
        {"path": "/bin\0"},
        {"allow": ["./echo"]},
        {"allow": ["../echo"]},
        {"allow": ["/bin/../bin/sh"]},
        {"allow": ["echo *"]},
        {"allow": ["e?ho"]},
        {"allow": [""]},
        {"allow": ["echo\0"]},
        {"allow": "echo"},
        {"env": {"PATH": "."}},
        {"env": {"A=B": "x"}},
        {"env": {"": "x"}},
        {"env": {"A": "x\0"}},
        {"env": {"A": "\ud800"}},
        {"cwd": "relative"},
        {"cwd": "/tmp/../etc"},
        {"timeout": float("inf")},
        {"timeout": float("nan")},
        {"timeout": -1},
        {"max_output": 0},
    ],
    ids=str,
)
def test_options_that_would_open_it_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidOptions):
        HostCommands(**{"cwd": str(tmp_path), **options})


async def test_nothing_is_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the environment, nor descriptors, nor a terminal; nor is the worker's own PATH asked."""
    monkeypatch.setenv("PLANTED", "secret")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/planted")
    monkeypatch.setenv("PATH", str(program(tmp_path / "mine/env").parent))
    leaked = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(leaked, True)
    try:
        commands = HostCommands(cwd=tmp_path, allow=["env", "ls", "cat"])
        told = await commands.run("env")
        descriptors = await commands.run("ls /proc/self/fd")
        line = await commands.run("cat /proc/self/stat")
    finally:
        os.close(leaked)
    path = "/usr/local/bin:/usr/bin:/bin"
    assert sorted(told.stdout.split()) == [f"HOME={tmp_path}", f"PATH={path}"]
    assert descriptors.stdout.split() == ["0", "1", "2", "3"]  # the last is how ls looks
    pid, _, _, _, group, session, terminal = line.stdout.split()[:7]
    assert (group, session, terminal) == (pid, pid, "0")


# How it ends ---------------------------------------------------------------------------------------

# Each opens the pipe `beat`, says so once, and would go on for ever.
UNTIL_SAID = " until [ -e said ]; do sleep 0.01; done"
STAYING = {
    "it sleeps": "echo >&3; sleep 1000",
    "it spins": "echo >&3; while :; do :; done",
    "it ignores the request": "trap '' TERM INT HUP QUIT; echo >&3; while :; do sleep 1; done",
    "it catches the request and goes on": "trap 'echo no' TERM; echo >&3; while :; do sleep 1; done",
    "it has stopped itself": "echo >&3; kill -STOP $$; sleep 1000",
    "its children have": "(kill -STOP 0 & echo >&3; sleep 1000) & wait",
    "it has a child": "sh -c 'echo >&3; sleep 1000; :' & wait",
    "it leaves a child": "(echo >&3; : > said; sleep 1000) &" + UNTIL_SAID,
    "it forks twice": "((echo >&3; : > said; sleep 1000) &) &" + UNTIL_SAID,
    "it forks twice and closes everything": "((echo >&3; : > said; exec sleep 1000) < /dev/null > /dev/null 2>&1 &) &"
    + UNTIL_SAID,
    "nohup": "nohup sh -c 'echo >&3; : > said; sleep 1000' > /dev/null 2>&1 &" + UNTIL_SAID,
    "a child that ignores the request": "sh -c \"trap '' TERM; echo >&3; while :; do sleep 1; done\" & wait",
    "it gives itself other names": "exec sh -c 'echo >&3; exec -a other sleep 1000 || sleep 1000'",
    "it executes something else again and again": 'echo >&3; f=\'exec sh -c "$0" "$0"\'; exec sh -c "$f" "$f"',
    "a storm of forks": "echo >&3; f() { [ $1 -gt 6 ] && sleep 1000; f $(($1+1)) & f $(($1+1)) & wait; }; f 0",
    "children that follow one another": "echo >&3; f() { sleep 0.01; f & }; f; sleep 1000",
    "it floods its output": "echo >&3; while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done",
    "it floods both": "echo >&3; cat /dev/zero & cat /dev/zero >&2",
    "it closes its output": "echo >&3; exec > /dev/null 2>&1; sleep 1000",
    "it reads for ever": "echo >&3; cat /dev/zero > /dev/null",
    "a job of its own": "set -m; (echo >&3; sleep 1000) & wait",
    "a job of its own that ignores the request": "set -m; (trap '' TERM; echo >&3; sleep 1000; sleep 1000) & wait",
    "a job of its own that holds the output": "set -m; (echo >&3; : > said; sleep 1000) &" + UNTIL_SAID,
    "timeout, in a shell": "timeout 1000 sh -c 'echo >&3; sleep 1000' & wait",
    "timeout, in timeout": "timeout 1000 timeout 1000 sh -c 'echo >&3; sleep 1000; :'",
    "jobs within jobs": "set -m; sh -c 'set -m; (set -m; (echo >&3; sleep 1000) & wait) & wait' & wait",
}


@pytest.mark.parametrize("name", STAYING)
async def test_nothing_of_it_stays(name: str, tmp_path: Path) -> None:
    beat = Beat(tmp_path)
    script = f"exec 3>beat; {STAYING[name]}"
    shell = "bash" if shutil.which("bash", path="/bin:/usr/bin") else "sh"
    commands = HostCommands(cwd=tmp_path, allow=[shell], timeout=60, grace=0.2, max_output=1000)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(commands.run, [shell, "-c", script])
        await beat.begun()
        tasks.cancel_scope.cancel()
    assert beat.is_over
    beat.close()


async def test_what_takes_a_session_of_its_own_is_told(tmp_path: Path) -> None:
    """The one way out, and documented: it is said that something may still run."""
    beat = Beat(tmp_path)
    script = "exec 3>beat; setsid sh -c 'echo $$ > pid; echo >&3; exec sleep 1000' & wait"
    commands = HostCommands(cwd=tmp_path, allow=["sh"], timeout=2, grace=0.1)
    result = await commands.run(["sh", "-c", script])
    assert result.timed_out
    assert result.left_running
    os.kill(int((tmp_path / "pid").read_text()), 9)
    beat.close()


async def test_a_program_that_is_gone_by_the_time_it_starts(tmp_path: Path) -> None:
    tool = program(tmp_path / "bin/tool")
    tool.write_text("#!/nowhere/sh\n")
    with pytest.raises(CommandNotStarted, match="the interpreter"):
        await HostCommands(cwd=tmp_path, allow=[str(tool)]).run([str(tool)])
