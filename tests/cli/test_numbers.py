"""Numbers on the command line: what is none is told with what is expected, and with an example."""

import pytest

from tests.cli.conftest import Cli


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("show", "r", "--at", "x"), "'x' is no whole number: give the number of a call"),
        (("show", "r", "--at", "2.5"), "'2.5' is no whole number: give the number of a call"),
        (("docs", "r", "--at", "0"), "'0' is less than 1: give the number of a call"),
        (("files", "r", "--at", "first"), "such as 3"),
        (("checkpoints", "r", "--at", "x"), "such as 3"),
        (("fork", "r", "--at", "x"), "such as 3"),
        (("retry", "r", "--from", "x"), "such as 3"),
        (("replay", "r", "--until", "x"), "such as 3"),
        (("replay", "r", "--pdb-at", "x"), "such as 3"),
        (
            ("show", "r", "--upto", "x"),
            "the number of a record (journal log RUN has them, from 1 on), such as 12",
        ),
        (("runs", "--limit", "many"), "give how many, such as 50"),
        (("runs", "--limit", "10001"), "'10001' is more than 10,000"),
        (("runs", "--before", "x"), "the position that a page ended with"),
        (("submit", "a", "x", "--priority", "high"), "such as 5"),
        (("submit", "a", "x", "--delay", "1h"), "'1h' is no number: give seconds, such as 30"),
        (("submit", "a", "x", "--delay", "nan"), "'nan' is no number"),
        (("worker", "--grace", "-1"), "'-1' is less than 0: give seconds, such as 30"),
        (("worker", "--concurrency", "0"), "how many turns at once"),
        (("worker", "--health-port", "70000"), "'70000' is more than 65,535: give a port"),
        (("copy", "a", "b", "--wait", "x"), "give seconds, such as 30"),
    ],
)
def test_what_is_no_number_is_2_and_told_with_an_example(
    cli: Cli, arguments: tuple[str, ...], says: str
) -> None:
    refused = cli(*arguments)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert says in refused.stderr
    assert f"(see journal {arguments[0]} --help)" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
