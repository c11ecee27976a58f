"""Documents and files, whatever calls do to them and wherever the worker is killed: live, folded and restored are one.

Hypothesis makes turns (`edits.py`); each is killed up to three times at whatever moment, and carried on. Then a model
by hand (`edits_model.py`) goes through the log, and compares (`edits_check.py`).
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.crash.anywhere import kills, memory, normal, share, sqlite
from tests.crash.edits import KINDS, Plan, plans
from tests.crash.edits_check import processes, run
from tests.crash.edits_life import Kills

turns = st.lists(plans(KINDS), min_size=1, max_size=2)


@normal(30)
@given(turns, kills)
def test_in_memory(turns: list[Plan], kills: Kills) -> None:
    run(turns, kills, memory())


@normal(12)
@given(turns, kills)
def test_on_sqlite(turns: list[Plan], kills: Kills) -> None:
    run(turns, kills, sqlite())


@share(6)
@given(turns=turns, kills=kills)
def test_processes(url: str, turns: list[Plan], kills: Kills) -> None:
    run(turns, kills, processes(url))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@normal(400, is_search=True)
@given(turns, kills)
def test_in_memory_for_long(turns: list[Plan], kills: Kills) -> None:
    run(turns, kills, memory())


@pytest.mark.soak
@pytest.mark.timeout(3600)
@normal(500, is_search=True)
@given(turns, kills)
def test_on_sqlite_for_long(turns: list[Plan], kills: Kills) -> None:
    run(turns, kills, sqlite())


@pytest.mark.soak
@pytest.mark.timeout(3600)
@share(200, is_search=True)
@given(turns=turns, kills=kills)
def test_processes_for_long(url: str, turns: list[Plan], kills: Kills) -> None:
    run(turns, kills, processes(url))
