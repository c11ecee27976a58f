"""The directory of a call, for programs; of workspaces with ``workspace.directory``."""

import asyncio
import os
from pathlib import Path
from typing import Any

from journal.core.errors import InvalidOptions, QuotaExceeded, WorkspaceError
from journal.tools.io import CallFiles
from journal.tools.workspace_contract.harness import (
    Act,
    WorkspaceCases,
    WorkspaceHarness,
    contents,
    need,
    writing,
)


def programs(work: Any) -> Act:
    """A call in whose directory `work` is done; its result is what was there before."""

    async def act(files: CallFiles) -> list[str]:
        async with files.directory() as directory:
            place = Path(directory.path)
            found = sorted(str(path.relative_to(place)) for path in place.rglob("*"))
            work(place)
        return found

    return act


class DirectoryCases(WorkspaceCases):
    """What programs do."""

    async def test_without_a_directory_that_is_said(self, harness: WorkspaceHarness) -> None:
        """A workspace that has no directory refuses to give one."""

        async def act(files: CallFiles) -> str:
            try:
                async with files.directory():
                    return "a directory"
            except InvalidOptions:
                return "refused"

        has_one = "workspace.directory" in harness.capabilities
        assert (await harness.call(act)).value == ("a directory" if has_one else "refused")

    async def test_what_programs_changed_counts(self, harness: WorkspaceHarness) -> None:
        """The directory has all files in it, and what is in it at the end of the block the call has changed."""
        need(harness, "workspace.directory")

        def work(place: Path) -> None:
            (place / "d" / "a").write_text("changed")
            (place / "b").unlink()
            (place / "new" / "deep").mkdir(parents=True)
            (place / "new" / "run").write_text("#!")
            (place / "new" / "run").chmod(0o755)

        await harness.together(writing("/d/a", "1"), writing("/b", "2"))
        assert (await harness.call(programs(work))).value == ["b", "d", "d/a"]
        assert await contents(harness) == {"/d/a": b"changed", "/new/run": b"#!"}
        await harness.reopen()
        seen: list[bool] = []
        again = programs(lambda place: seen.append(os.access(place / "new" / "run", os.X_OK)))
        assert (await harness.call(again)).value == ["d", "d/a", "new", "new/deep", "new/run"]
        assert seen == [True]

    async def test_a_block_that_raises_changed_nothing(self, harness: WorkspaceHarness) -> None:
        """If the block raises, nothing was changed, and the next directory is without it."""
        need(harness, "workspace.directory")

        def fail(place: Path) -> None:
            (place / "a").write_text("half")
            (place / "half").write_text("half")
            raise ValueError("no")

        await harness.call(writing("/a", "1"))
        failed, next_one = await harness.together(programs(fail), programs(lambda place: None))
        assert (failed.is_ok, next_one.value) == (False, ["a"])
        assert await contents(harness) == {"/a": b"1"}
        assert (await harness.call(programs(lambda place: None))).value == ["a"]

    async def test_half_written_files_are_gone_with_their_holder(self, harness: WorkspaceHarness) -> None:
        """What a holder that died within a call left is in no directory that comes after."""
        need(harness, "workspace.directory")

        async def half(files: CallFiles) -> None:
            async with files.directory() as directory:
                Path(directory.path, "a").write_text("half")
                Path(directory.path, "half").write_text("half")

        await harness.call(writing("/a", "1"))
        await harness.interrupt(half)
        assert (await harness.call(programs(lambda place: None))).value == ["a"]
        assert await contents(harness) == {"/a": b"1"}

    async def test_one_call_at_a_time_has_the_directory(self, harness: WorkspaceHarness) -> None:
        """Calls that write run alone."""
        need(harness, "workspace.directory")
        inside: list[int] = []

        async def act(files: CallFiles) -> int:
            async with files.directory() as directory:
                inside.append(1)
                most = len(inside)
                await asyncio.sleep(0.001)
                with Path(directory.path, "log").open("a") as log:
                    log.write("x")
                inside.pop()
            return most

        done = await harness.together(act, act, act)
        assert [each.value for each in done] == [1, 1, 1]
        assert await contents(harness) == {"/log": b"xxx"}

    async def test_links_are_not_followed(self, harness: WorkspaceHarness) -> None:
        """Symbolic links, dangling ones too, lead nowhere for `io.files`, neither as a file nor on the way to one."""
        need(harness, "workspace.directory")

        def work(place: Path) -> None:
            (place / "d").symlink_to("/")
            (place / "f").symlink_to("/etc/passwd")
            (place / "gone").symlink_to(place.parent / "made-by-a-write")

        async def act(files: CallFiles) -> list[str]:
            told = []
            for path in ("/f", "/d", "/gone", "/d/etc/passwd"):
                for attempt in (files.read(path), files.write(path, "x")):
                    try:
                        await attempt
                    except WorkspaceError as error:
                        told.append(error.reason)
            return told

        assert (await harness.call(programs(work))).is_ok
        missing = ["invalid_reference"] * 6 + ["not_found", "invalid_reference"]
        assert (await harness.call(act)).value == missing

    async def test_what_is_no_file_is_left_out_and_told(self, harness: WorkspaceHarness) -> None:
        """Pipes and the like are rejected; the rest is kept."""
        need(harness, "workspace.directory")

        def work(place: Path) -> None:
            os.mkfifo(place / "pipe")
            (place / "kept").write_text("x")

        done = await harness.call(programs(work))
        assert (done.is_ok, done.rejected) == (True, ("/pipe",))
        assert await contents(harness) == {"/kept": b"x"}

    async def test_too_much_in_the_directory_is_refused_whole(self, harness: WorkspaceHarness) -> None:
        """Quotas are measured in staging; the error carries quota, limit and actual."""
        need(harness, "workspace.directory")
        limit = harness.limits.max_file_bytes

        async def act(files: CallFiles) -> list[Any]:
            try:
                async with files.directory() as directory:
                    Path(directory.path, "fits").write_bytes(b"x" * limit)
                    Path(directory.path, "more").write_bytes(b"x" * (limit + 1))
            except QuotaExceeded as error:
                return [error.quota, error.limit, error.actual]
            return []

        assert (await harness.call(act)).value == ["max_file_bytes", limit, limit + 1]
        assert await contents(harness) == {}
        assert (await harness.call(programs(lambda place: None))).value == []
