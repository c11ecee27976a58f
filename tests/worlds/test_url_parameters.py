"""Parameters of a store URL that nobody knows: one that was misspelt must not be a safety that is missing."""

from pathlib import Path

import pytest

from journal.core.errors import WorldUnknown
from journal.worlds import open_world

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://127.0.0.1:1/0?wiat=1", r"'wiat': is it wait=\?.*prefix"),
        ("redis+cluster://127.0.0.1:1?partition=4", r"'partition': is it partitions=\?"),
        ("rediss://127.0.0.1:1?ssl_verify=0", "'ssl_verify'"),
        ("postgresql://u@127.0.0.1:1/d?shema=x", r"'shema': is it schema=\?.*libpq"),
        ("postgresql://u@127.0.0.1:1/d?sslmod=require", r"is it sslmode=\?"),
        ("sqlite:app.db?x=1", r"'x' \(there are: none\)"),
        ("memory:shared?x=1", "'x'"),
    ],
)
async def test_an_unknown_parameter_is_refused_by_name(
    url: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WorldUnknown, match=told):
        async with open_world(url):
            pass
    assert not list(tmp_path.iterdir()), "and no file is made"
