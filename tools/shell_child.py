"""The process that one script of the shell runs in. Started by its path, with bashkit and nothing else.

Reads a `Job` of `shell.py` as JSON, lets bashkit work on its files in memory, and writes an `Answer`. Bashkit by itself
reaches no host file and no network. For the case that it has a hole, the kernel is told beforehand that this process
opens nothing, writes to no file, has no children, and gets so much memory and no more. A crash of native code ends this
process and not the worker.

No `typing`, no msgspec: they would take three times as long to load as all the rest.
"""

import json
import os
import resource
import sys
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterator

DEVICES = frozenset({"/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"})
OWN = frozenset({"/dev", "/dev/fd", "/tmp"})  # noqa: S108 - no directory of the host
"""Directories that bashkit has by itself."""
_OUT = 1


class Sandbox:
    """Bashkit over a tree of files, which is the root of what a script sees."""

    def __init__(self, files: "list[tuple[str, bytes, bool]]", limits: "dict[str, float]") -> None:
        import bashkit

        self._tree = bashkit.FileSystem()
        self._shell = bashkit.Bash(
            username="agent",
            hostname="workspace",
            cwd="/",
            env={"HOME": "/", "LANG": "C.UTF-8"},
            max_commands=int(limits["max_commands"]),
            max_loop_iterations=int(limits["max_commands"]),
            timeout_seconds=limits["timeout"],
        )
        self._shell.mount("/", self._tree)
        self._tree.remove("/home", recursive=True)
        self.hidden = [
            path for path, data, is_executable in files if not self._put(path, data, is_executable)
        ]

    def _put(self, path: str, data: bytes, is_executable: bool) -> bool:
        """Whether a script can have a file of that name: bashkit refuses some, as with a line break in them."""
        tree = self._tree
        if path in DEVICES:
            return False
        try:
            tree.mkdir(path[: path.rindex("/")] or "/", recursive=True)
            if tree.exists(path):
                tree.remove(path, recursive=True)
            tree.write_file(path, data)
            tree.chmod(path, 0o755 if is_executable else 0o644)
        except RuntimeError:
            return False
        return True

    def run(self, script: str) -> "dict[str, object]":
        """Carry out the script; what the streams held, and why it was stopped."""
        result = self._shell.execute_sync(script)
        return {
            "exit_code": result.exit_code,
            "stdout": result.stdout,
            "stderr": result.stderr,
            "is_stdout_cut": result.stdout_truncated,
            "is_stderr_cut": result.stderr_truncated,
            "stopped": result.error,
        }

    def files(self, directory: str = "/") -> "Iterator[tuple[str, bytes | None, bool]]":
        """Files: path, bytes, whether executable; no bytes for what is none, as links and empty directories (`/a/`)."""
        entries = self._tree.read_dir(directory)
        if not entries and directory not in OWN and directory != "/":
            yield f"{directory}/", None, False
        for entry in entries:
            path = f"{directory.rstrip('/')}/{entry['name']}"
            found = entry["metadata"]
            if found["file_type"] == "directory":
                yield from self.files(path)
            elif found["file_type"] != "file":
                yield path, None, False
            elif path not in DEVICES:
                yield path, self._tree.read_file(path), bool(found["mode"] & 0o100)


def fence(max_memory: int) -> None:
    """From here on this process opens nothing, writes to no file, forks not, and gets that many bytes more."""
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC):
        resource.setrlimit(limit, (0, 0))
    if sys.platform == "linux":  # elsewhere address space is counted otherwise, or not at all
        with open("/proc/self/statm") as file:
            most = int(file.read().split()[0]) * resource.getpagesize() + max_memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))


def main() -> None:
    """Read the job from standard input, write the answer to standard output."""
    sys.path += sys.argv[1:]
    job = json.load(sys.stdin.buffer)
    files = [(each["path"], a2b_base64(each["data"]), each["is_executable"]) for each in job["files"]]
    sandbox = Sandbox(files, job["limits"])
    fence(job["limits"]["max_memory"])
    answer = sandbox.run(job["script"])
    before = {path: (data, is_executable) for path, data, is_executable in files}
    emptied = {path[: at + 1] for path in before for at, sign in enumerate(path) if sign == "/"}
    written: list[dict[str, object]] = []
    left_out: list[str] = []
    for path, data, is_executable in sandbox.files():
        was = before.pop(path, None)
        if data is None:
            if path not in emptied:
                left_out.append(path)
        elif was != (data, is_executable):
            text = b2a_base64(data, newline=False).decode()
            written.append({"path": path, "data": text, "is_executable": is_executable})
    deleted = before.keys() - set(sandbox.hidden)
    answer |= {"written": written, "deleted": sorted(deleted), "left_out": left_out, "hidden": sandbox.hidden}
    rest = memoryview(json.dumps(answer).encode())
    while rest:
        rest = rest[os.write(_OUT, rest) :]


if __name__ == "__main__":
    main()
