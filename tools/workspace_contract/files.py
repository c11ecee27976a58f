"""What calls see of files, and what becomes of their changes."""

import asyncio
from typing import Any

from journal.core.errors import FileMissing
from journal.tools.io import CallFiles
from journal.tools.workspace_contract.harness import WorkspaceCases, WorkspaceHarness, contents, need, writing

_ANY = bytes(range(256))


async def _all(files: CallFiles) -> dict[str, str]:
    return {path: (await files.read(path)).hex() for path in await files.glob("/**")}


class FileCases(WorkspaceCases):
    """Reading and writing."""

    async def test_what_a_call_wrote_the_next_one_reads(self, harness: WorkspaceHarness) -> None:
        """A call's changes are durable with its outcome; others see them from then on, another holder too."""
        assert (await harness.call(writing("/d/a", "tea"))).is_ok
        assert (await harness.call(_all)).value == {"/d/a": b"tea".hex()}
        if "workspace.persistent" in harness.capabilities:
            await harness.reopen()
            assert (await harness.call(_all)).value == {"/d/a": b"tea".hex()}
            assert await contents(harness) == {"/d/a": b"tea"}

    async def test_bytes_are_kept_exactly(self, harness: WorkspaceHarness) -> None:
        """A file is bytes, of any kind; whether it may be executed is kept too."""

        async def write(files: CallFiles) -> None:
            await files.write("/any", _ANY * 100)
            await files.write("/empty", b"")
            await files.write("/text", "ä\0\r\n", is_executable=True)
            await files.write("/with space\\*", b"x")

        async def change(files: CallFiles) -> None:
            await files.write("/text", await files.read("/text") + b"+")

        assert (await harness.call(write)).is_ok
        await harness.reopen()
        assert (await harness.call(change)).is_ok
        expected = {
            "/any": _ANY * 100,
            "/empty": b"",
            "/text": "ä\0\r\n+".encode(),
            "/with space\\*": b"x",
        }
        assert (await harness.call(_all)).value == {path: data.hex() for path, data in expected.items()}

    async def test_a_call_sees_its_own_changes(self, harness: WorkspaceHarness) -> None:
        """A call sees the files with its own changes over them."""

        async def act(files: CallFiles) -> list[Any]:
            await files.write("/a", "1")
            await files.write("/d/b", "22")
            await files.move("/a", "/d/c")
            await files.write("/gone", "x")
            await files.delete("/gone")
            try:
                await files.read("/gone")
            except FileMissing:
                pass
            else:
                raise AssertionError("it was deleted")
            return [
                [(each.path, each.is_directory, each.size) for each in await files.list("/")],
                [(each.path, each.is_directory, each.size) for each in await files.list("/d")],
                await files.glob("/**"),
                [await files.exists(path) for path in ("/a", "/d", "/d/c")],
                await files.read_text("/d/c"),
            ]

        assert (await harness.call(act)).value == [
            [["/d", True, 3]],
            [["/d/b", False, 2], ["/d/c", False, 1]],
            ["/d/b", "/d/c"],
            [False, False, True],
            "1",
        ]

    async def test_a_call_that_raises_changed_nothing(self, harness: WorkspaceHarness) -> None:
        """If a call raises, nothing was changed."""

        async def fail(files: CallFiles) -> None:
            await files.write("/a", "2")
            await files.delete("/b")
            await files.write("/c", "2")
            raise ValueError("no")

        await harness.together(writing("/a", "1"), writing("/b", "1"))
        assert not (await harness.call(fail)).is_ok
        assert (await harness.call(_all)).value == {"/a": b"1".hex(), "/b": b"1".hex()}

    async def test_a_call_whose_holder_died_changed_nothing(self, harness: WorkspaceHarness) -> None:
        """What a call changed that had not ended when its holder died is gone."""
        need(harness, "workspace.persistent")

        async def half(files: CallFiles) -> None:
            await files.write("/a", "2")
            await files.write("/half", "2")

        await harness.call(writing("/a", "1"))
        await harness.interrupt(half)
        assert (await harness.call(_all)).value == {"/a": b"1".hex()}
        assert await contents(harness) == {"/a": b"1"}

    async def test_calls_at_once_on_different_paths_all_count(self, harness: WorkspaceHarness) -> None:
        """Changes of parallel calls come together."""
        done = await harness.together(*(writing(f"/{number}", str(number)) for number in range(6)))
        assert all(each.is_ok and not each.rejected for each in done)
        assert (await harness.call(_all)).value == {f"/{n}": str(n).encode().hex() for n in range(6)}

    async def test_a_path_that_changed_meanwhile_is_rejected_and_told(
        self, harness: WorkspaceHarness
    ) -> None:
        """What somebody else changed since the call first looked is not overwritten; the call's other changes stand."""
        both = asyncio.Barrier(2)

        def count(own: str) -> Any:
            async def act(files: CallFiles) -> None:
                before = int(await files.read_text("/count"))
                await both.wait()
                await files.write("/count", str(before + 1))
                await files.write(own, "x")

            return act

        await harness.call(writing("/count", "0"))
        done = await harness.together(count("/one"), count("/two"))
        assert all(each.is_ok for each in done)
        assert sorted(each.rejected for each in done) == [(), ("/count",)]
        expected = {"/count": b"1".hex(), "/one": b"x".hex(), "/two": b"x".hex()}
        assert (await harness.call(_all)).value == expected

    async def test_the_application_changes_files_too(self, harness: WorkspaceHarness) -> None:
        """Whoever works on the run sees what the application wrote, and the other way round."""
        need(harness, "workspace.persistent")
        await harness.call(writing("/a", "call"))
        await harness.files.write("/b", b"application")
        await harness.files.delete("/a")
        assert (await harness.call(_all)).value == {"/b": b"application".hex()}

    async def test_a_fork_has_the_files_and_goes_its_own_way(self, harness: WorkspaceHarness) -> None:
        """A fork has the files as its call found them; changes of one are not those of the other."""
        need(harness, "workspace.persistent")
        await harness.call(writing("/a", "1" * 10_000))
        other = await harness.fork()
        assert await contents(other) == {"/a": b"1" * 10_000}
        await other.call(writing("/b", "fork"))
        await harness.call(writing("/a", "origin"))
        assert await contents(other) == {"/a": b"1" * 10_000, "/b": b"fork"}
        assert await contents(harness) == {"/a": b"origin"}
