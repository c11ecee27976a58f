"""The process dies at every point of a turn that works on files: each is there with its call, or not at all."""

from typing import Any

import pytest

from journal.core import values
from journal.core.codec import open_record
from journal.core.records import TurnFinished
from journal.testing import Crash, crash_everywhere
from tests.workspace.coder import coder

WHOLE = ["edited /src/1: 1 place", "1\tedited 1", "/out\n/runs\n/src/0\n/src/1\n/src/2"]
UNKNOWN = ["edited /src/1: 1 place", "/src/0\n/src/1\n/src/2", "1\tedited 1", "/src/0\n/src/1\n/src/2"]


def same(crash: Crash) -> None:
    """With the tool's files, or, where nobody knows whether it ended, without any of them."""
    finished = open_record(crash.log[-1])
    assert isinstance(finished, TurnFinished)
    assert isinstance(finished.output, bytes)
    assert values.decode(finished.output) == (UNKNOWN if crash.unknown else WHOLE)


@pytest.mark.parametrize("agent", [coder, "tests.workspace.coder:coder"], ids=["here", "processes"])
def test_files_survive_a_kill_at_every_point(agent: Any) -> None:
    report = crash_everywhere(agent, "src", check=same)
    assert len(report.crashes) > 20
