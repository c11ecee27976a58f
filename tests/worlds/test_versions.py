"""What migrations state of older code, and what follows from it for a store."""

import pytest

from journal.core.errors import WorldTooNew
from journal.worlds.versions import check_compatible, compatible_from, stated

MIGRATIONS = [
    (1, "create table a (x);"),
    (2, "-- compatible from: 1\nalter table a add y;"),
    (3, "-- It adds.\n-- compatible from: 1\nalter table a add z;"),
    (4, "alter table a drop y;"),
    (5, "-- compatible from: 2\nalter table a add w;"),
]


def test_a_migration_that_says_nothing_is_for_its_own_code_alone() -> None:
    assert [stated(script) for _, script in MIGRATIONS] == [None, 1, 1, None, 2]
    assert stated("-- compatible from: 1, we hope") is None


def test_what_one_migration_ended_no_later_one_brings_back() -> None:
    assert [compatible_from(number, MIGRATIONS) for number, _ in MIGRATIONS] == [1, 1, 1, 4, 4]


def test_code_that_is_too_old_is_told_what_to_do() -> None:
    check_compatible(found=3, compatible=1, known=1, world="w:")
    check_compatible(found=2, compatible=2, known=2, world="w:")
    check_compatible(found=0, compatible=0, known=2, world="w:")
    with pytest.raises(WorldTooNew, match=r"^w: it has schema 5, .* schema 4 or newer; .* up to 3: upgrade"):
        check_compatible(found=5, compatible=4, known=3, world="w:")
