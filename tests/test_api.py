"""The public names: sorted, complete, and loaded from where they say."""

import subprocess
import sys

import journal


def test_all_is_sorted_and_resolves() -> None:
    assert journal.__all__ == sorted(journal.__all__)
    for name in journal.__all__:
        assert getattr(journal, name) is not None
    assert set(journal.__all__) == set(journal._home)
    assert set(journal.__all__) <= set(dir(journal))


def test_using_the_public_names_loads_no_store_and_no_extra() -> None:
    script = (
        "import sys; from journal import *; import journal; "
        "heavy = {'sqlite3', 'structlog', 'click', 'rich', 'opentelemetry', 'pydantic', 'agents'}; "
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
