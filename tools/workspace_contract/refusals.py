"""Paths that no file can have, and quotas: refused before anything is visible."""

from typing import Any

from journal.core.errors import QuotaExceeded, WorkspaceError
from journal.tools.io import CallFiles
from journal.tools.workspace_contract.harness import Act, WorkspaceCases, WorkspaceHarness, contents

_NO_PATHS = (
    "",
    "a",
    "./a",
    "../a",
    "/../a",
    "/a/../b",
    "/a/./b",
    "/a//b",
    "/a/",
    "/",
    "/a\0b",
    "/" + "x" * 1024,
    "/\ud800",
)


class RefusalCases(WorkspaceCases):
    """What is not done."""

    async def test_paths_that_lead_elsewhere_are_refused(self, harness: WorkspaceHarness) -> None:
        """Absolute virtual POSIX paths; ``..``, empty names, NUL and what is no text are refused by name."""

        async def act(files: CallFiles) -> list[str]:
            told = []
            for path in _NO_PATHS:
                for attempt in (
                    files.read(path),
                    files.write(path, "x"),
                    files.delete(path),
                    files.move("/a", path),
                ):
                    try:
                        await attempt
                    except WorkspaceError as error:
                        told.append(error.reason)
            return told

        await harness.call(_write("/a", 1))
        assert (await harness.call(act)).value == ["invalid_reference"] * 4 * len(_NO_PATHS)
        assert list(await contents(harness)) == ["/a"]

    async def test_no_path_leads_through_a_file(self, harness: WorkspaceHarness) -> None:
        """Where a file is there is no directory, and the other way round."""

        async def act(files: CallFiles) -> list[str]:
            told = []
            for path in ("/a/b", "/a/b/c", "/d"):
                try:
                    await files.write(path, "x")
                except WorkspaceError as error:
                    told.append(error.reason)
            return told

        await harness.call(_write("/a", 1))
        await harness.call(_write("/d/e", 1))
        assert (await harness.call(act)).value == ["invalid_reference"] * 3
        assert list(await contents(harness)) == ["/a", "/d/e"]

    async def test_one_file_at_its_limit(self, harness: WorkspaceHarness) -> None:
        """At the limit it is kept, one byte more is refused; the error carries quota, limit and actual."""
        limit = harness.limits.max_file_bytes
        assert (await harness.call(_write("/a", limit))).value == []
        assert (await harness.call(_write("/a", limit + 1))).value == ["max_file_bytes", limit, limit + 1]
        assert [len(data) for data in (await contents(harness)).values()] == [limit]

    async def test_all_files_at_their_limit(self, harness: WorkspaceHarness) -> None:
        """The bytes of all files are counted, those that the call itself has written too."""
        limit, most = harness.limits.max_bytes, harness.limits.max_file_bytes
        sizes = [most] * (limit // most) + [limit % most]

        async def fill(files: CallFiles) -> list[Any]:
            for number, size in enumerate(sizes):
                await files.write(f"/{number}", b"x" * size)
            try:
                await files.write("/more", b"x")
            except QuotaExceeded as error:
                return [error.quota, error.limit, error.actual]
            return []

        assert (await harness.call(fill)).value == ["max_bytes", limit, limit + 1]
        assert sum(len(data) for data in (await contents(harness)).values()) == limit

    async def test_as_many_files_as_are_allowed(self, harness: WorkspaceHarness) -> None:
        """Files are counted."""
        limit = harness.limits.max_files

        async def fill(files: CallFiles) -> list[Any]:
            for number in range(limit):
                await files.write(f"/{number}", b"")
            try:
                await files.write("/more", b"")
            except QuotaExceeded as error:
                return [error.quota, error.limit, error.actual]
            return []

        assert (await harness.call(fill)).value == ["max_files", limit, limit + 1]
        assert len(await harness.files.glob()) == limit

    async def test_quotas_hold_when_changes_come_together(self, harness: WorkspaceHarness) -> None:
        """What no longer fits beside the changes of others is rejected, and told."""
        most = harness.limits.max_bytes // 2 + 1
        if most > harness.limits.max_file_bytes:
            return
        done = await harness.together(_write("/a", most), _write("/b", most))
        assert sum(len(data) for data in (await contents(harness)).values()) <= harness.limits.max_bytes
        assert sum(bool(each.rejected) or each.value != [] for each in done) == 1


def _write(path: str, size: int) -> Act:
    async def act(files: CallFiles) -> list[Any]:
        try:
            await files.write(path, b"x" * size)
        except QuotaExceeded as error:
            return [error.quota, error.limit, error.actual]
        return []

    return act
