"""An hour of trying to get out of the shell, and to bring down what it runs in. Every attempt stands here by name.

What must hold of each: nothing of the host is read or written, nobody is called, it ends, and the process that it was
asked in goes on. FAULTS 32, 33.
"""

import asyncio
import os
import resource
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from journal import VirtualWorkspace
from journal.tools import shell_child
from journal.tools.shell import Shell
from tests.workspace.scripts import interpreters, ran

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

SECRET = "planted-3f9c"

HERE = Path(__file__).parent


def listed(name: str) -> dict[str, str]:
    """The scripts in that file, by name."""
    _, *parts = (HERE / name).read_text().split("\n== ")
    return {title: script for title, _, script in (part.partition("\n") for part in parts)}


OUTWARD = listed("outward.txt") | {
    "words that end the script for its host": 'exit 0; }; "\'; import os; os.system(\'cat @SECRET@\')\n\\x00 EOF\n"""',
}
BOMBS = listed("bombs.txt") | {
    "odd characters": "\ufeff echo bom; echo \u202e; \r\necho cr\r; LC_ALL=x sort <<< \xff; echo \U0010ffff",
    "a NUL in the script": "echo a\0b; ls",
}


@pytest.fixture
async def callers() -> AsyncIterator[tuple[int, list[str]]]:
    """A server of this host: its port, and who called."""
    seen: list[str] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append("somebody")
        writer.close()

    async with await asyncio.start_server(note, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], seen


@pytest.mark.parametrize("name", OUTWARD)
async def test_nothing_of_the_host(
    name: str,
    tmp_path: Path,
    callers: tuple[int, list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PLANTED", SECRET)
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    port, seen = callers
    script = OUTWARD[name]
    for word, meaning in {"SECRET": secret, "DIR": tmp_path, "PORT": port, "PYTHON": sys.executable}.items():
        script = script.replace(f"@{word}@", str(meaning))
    lines = [script, "cat /own"]
    results, after = await ran(*lines, files={"/own": b"own"}, shell=Shell(timeout=5))
    assert all(SECRET not in result.text for result in results)
    assert all(SECRET.encode() not in data for data in after.values())
    assert seen == []
    assert [each.name for each in tmp_path.iterdir()] == ["secret"]
    assert secret.read_text() == SECRET
    assert interpreters() == []


@pytest.mark.parametrize("name", BOMBS)
async def test_it_ends_and_whoever_asked_goes_on(name: str) -> None:
    """Within its limits, and none the worse. That it must be killed in the end would be an error of another kind."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    limits = Shell(timeout=3, max_memory=256 * 1024 * 1024)
    results, after = await ran(BOMBS[name], "echo still here", shell=limits, workspace=VirtualWorkspace())
    assert results[0].status in ("ok", "error")
    assert "did not end within" not in results[0].text
    assert len(results[0].text) < 200_000
    assert results[1].text == "still here"
    assert sum(map(len, after.values())) <= VirtualWorkspace().max_bytes
    assert interpreters() == []
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss <= max(before, 600 * 1024)  # in KiB


FENCED = f"""
import os, socket, sys
sys.path.insert(0, {str(Path(shell_child.__file__).parent)!r})
import shell_child
shell_child.fence(64 << 20)
def attempt(name, act):
    try:
        act()
    except (OSError, MemoryError) as error:
        os.write(1, f"{{name}}: {{type(error).__name__}}\\n".encode())
    else:
        os.write(1, f"{{name}}: done\\n".encode())
attempt("read", lambda: os.open("/etc/passwd", os.O_RDONLY))
attempt("write", lambda: os.open(sys.argv[1] + "/x", os.O_WRONLY | os.O_CREAT))
attempt("connect", lambda: socket.socket())
attempt("list", lambda: os.listdir("/"))
attempt("pipe", os.pipe)
attempt("grow a file", lambda: os.write(2, b"x"))
attempt("memory", lambda: bytes(512 << 20))
if os.getuid() == 0:
    os.setuid(65534)
attempt("fork", os.fork)
os.execv(sys.executable, [sys.executable, "-c", "print('lives')"])
"""


def test_the_kernel_holds_what_bashkit_might_not(tmp_path: Path) -> None:
    """The same fence around code that tries it all: as if a hole in bashkit let a script do what it wants."""
    with (tmp_path / "stderr").open("wb") as stderr:
        done = subprocess.run(
            [sys.executable, "-c", FENCED, str(tmp_path)], stdout=subprocess.PIPE, stderr=stderr, check=False
        )
    assert done.stdout.decode().splitlines() == [
        "read: OSError",
        "write: OSError",
        "connect: OSError",
        "list: OSError",
        "pipe: OSError",
        "grow a file: OSError",
        "memory: MemoryError",
        "fork: BlockingIOError",
    ]
    assert done.returncode != 0
    assert os.path.getsize(tmp_path / "stderr") == 0
    assert [each.name for each in tmp_path.iterdir()] == ["stderr"]
