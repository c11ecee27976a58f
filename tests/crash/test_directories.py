"""Files in directories, whatever calls do to them and wherever the worker is killed: live, logged and restored are one.

As `test_edits.py`, but for what only a directory has: programs, links, empty directories, one call at a time. Whoever
takes the run up makes a directory of its own from the snapshot, and what is in it must be what the model says.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.crash.anywhere import at_work, kills, normal, share, sqlite
from tests.crash.edits import KINDS, Plan, plans
from tests.crash.edits_check import processes, run
from tests.crash.edits_life import Kills
from tests.crash.edits_model import DISK

turns = st.lists(plans([*KINDS, *DISK]), min_size=1, max_size=2)


@normal(12)
@given(turns, kills)
def test_on_sqlite(turns: list[Plan], kills: Kills) -> None:
    run(turns, kills, sqlite(), in_directories=True)


@share(6)
@given(turns=turns, kills=at_work)
def test_processes(url: str, turns: list[Plan], kills: Kills) -> None:
    run(turns, kills, processes(url), in_directories=True)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@normal(400, is_search=True)
@given(turns, kills)
def test_on_sqlite_for_long(turns: list[Plan], kills: Kills) -> None:
    run(turns, kills, sqlite(), in_directories=True)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@share(200, is_search=True)
@given(turns=turns, kills=at_work)
def test_processes_for_long(url: str, turns: list[Plan], kills: Kills) -> None:
    run(turns, kills, processes(url), in_directories=True)
