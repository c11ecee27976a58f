"""`journal worker` as a process: signals, draining, takeover, health."""

import http.client
import json
import os
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli, objects
from tests.cli.processes import APP, Process, running

WORKER = ("worker", "app:journal")


@pytest.fixture
def workplace(home: Path) -> Path:
    """`home` with agents that hang where they are told to."""
    (home / "app.py").write_text(APP)
    os.mkfifo(home / "gate")
    return home


def shown(cli: Cli, run: str) -> dict[str, Any]:
    (found,) = objects(cli("show", run, "--json"))
    return dict(found)


def test_sigterm_releases_a_turn_that_is_between_calls(cli: Cli, workplace: Path) -> None:
    cli("submit", "between", "x", "--run", "r")
    with running(workplace, *WORKER, "--grace", "0", hold=True) as first:
        assert first.line() == "between calls"
        first.popen.send_signal(signal.SIGTERM)
        assert first.wait() == 0
    assert shown(cli, "r")["info"]["status"] == "pending"
    with running(workplace, *WORKER, "--until-idle") as second:
        assert second.wait() == 0
    found = shown(cli, "r")
    assert [a["ending"] for a in found["state"]["turns"][0]["attempts"]] == ["released", "finished"]
    assert len(found["state"]["calls"]) == 1  # the step was on record: it did not run again
    assert (found["info"]["status"], found["info"]["takeovers"]) == ("succeeded", 0)


def test_sigterm_hands_on_a_turn_that_is_within_a_call(cli: Cli, workplace: Path) -> None:
    cli("submit", "within", "x", "--run", "r")
    with running(workplace, *WORKER, "--grace", "0") as first:
        assert first.line() == "in the call"
        first.popen.send_signal(signal.SIGTERM)
        assert first.wait() == 0
    with running(workplace, *WORKER, "--until-idle") as second:
        assert second.wait() == 0
    found = shown(cli, "r")
    (call,) = found["state"]["calls"]
    assert (call["outcome"]["status"], call["outcome"]["attempt"], len(call["tries"])) == ("unknown", 2, 1)
    assert (found["info"]["status"], found["info"]["takeovers"]) == ("succeeded", 0)


def test_a_function_that_hangs_on_a_thread_does_not_keep_the_process(cli: Cli, workplace: Path) -> None:
    cli("submit", "within", "threaded", "--run", "r")
    with running(workplace, *WORKER, "--grace", "0") as worker:
        assert worker.line() == "in the call"
        worker.popen.send_signal(signal.SIGTERM)
        assert worker.wait() == 0
    until_draining(workplace)  # nobody could have it while the thread ran; with the process it is free


def test_a_drained_worker_that_is_killed_is_no_crash(cli: Cli, workplace: Path) -> None:
    """A call that cannot be cancelled outlasts the grace; the supervisor's SIGKILL must not count as a crash."""
    cli("submit", "within", "stubborn", "--run", "r")
    with running(workplace, *WORKER, "--grace", "0") as first:
        assert first.line() == "in the call"
        first.popen.send_signal(signal.SIGTERM)
        first.logged("stopping")
        until_draining(workplace)
        first.popen.kill()
        first.wait()
    with running(workplace, *WORKER, "--until-idle") as second:
        assert second.logged("turn taken over")["takeovers"] == 0
        assert second.wait() == 0
    attempts = shown(cli, "r")["state"]["turns"][0]["attempts"]
    assert [(a["ending"], a["is_takeover"]) for a in attempts] == [("interrupted", False), ("finished", True)]


def until_draining(home: Path) -> None:
    """Return once the store says so; no record does."""
    database = sqlite3.connect(home / "journal.db")
    try:
        for _ in range(1000):
            if database.execute("select draining from runs").fetchone() == (1,):
                return
            time.sleep(0.02)
    finally:
        database.close()
    raise AssertionError("it is not draining")


def test_a_killed_worker_is_taken_over_and_the_timeline_says_so(cli: Cli, workplace: Path) -> None:
    cli("submit", "within", "x", "--run", "r")
    with running(workplace, *WORKER) as first:
        assert first.line() == "in the call"
        first.popen.kill()
        first.wait()
    with running(workplace, *WORKER, "--until-idle") as second:
        assert second.logged("turn taken over")["takeovers"] == 1
        assert second.wait() == 0
    text = cli("show", "r").stdout
    assert "interrupted: worker lost" in text
    assert "took over from attempt 1" in text
    assert "settled: unknown, not repeated" in text


def test_a_booting_worker_leaves_a_healthy_turn_alone(cli: Cli, workplace: Path) -> None:
    cli("submit", "within", "stubborn", "--run", "r")
    with running(workplace, *WORKER) as first:
        assert first.line() == "in the call"
        with running(workplace, *WORKER, "--until-idle") as booting:
            assert booting.wait() == 0
        (workplace / "gate").write_text("let through")
        while shown(cli, "r")["info"]["status"] == "running":
            time.sleep(0.05)
    found = shown(cli, "r")
    assert (found["info"]["status"], found["info"]["takeovers"]) == ("succeeded", 0)
    assert len(found["state"]["turns"][0]["attempts"]) == 1


def test_who_waits_may_be_killed_and_the_same_call_attaches_again(cli: Cli, workplace: Path) -> None:
    asking = ("--app", "app", "submit", "within", "stubborn", "--run", "r", "--wait")
    with running(workplace, *WORKER) as worker:
        with running(workplace, *asking) as waiting:
            assert worker.line() == "in the call"
            waiting.popen.kill()
            waiting.wait()
        with running(workplace, *asking) as again:
            (workplace / "gate").write_text("let through")
            assert again.line() == "let through"
            assert again.wait() == 0
        assert worker.popen.poll() is None
    found = shown(cli, "r")
    (turn,) = found["state"]["turns"]
    assert (found["info"]["status"], len(turn["attempts"])) == ("succeeded", 1)


def test_within_the_grace_a_turn_ends_by_itself(cli: Cli, workplace: Path) -> None:
    cli("submit", "within", "stubborn", "--run", "r")
    with running(workplace, *WORKER, "--grace", "60") as worker:
        assert worker.line() == "in the call"
        worker.popen.send_signal(signal.SIGTERM)
        worker.logged("stopping")
        (workplace / "gate").write_text("let through")
        assert worker.wait() == 0
    assert shown(cli, "r")["info"]["status"] == "succeeded"


def test_ctrl_c_stops_and_a_second_one_stops_at_once(cli: Cli, workplace: Path) -> None:
    cli("submit", "within", "x", "--run", "r")
    with running(workplace, *WORKER, "--grace", "3600") as worker:
        assert worker.line() == "in the call"
        worker.popen.send_signal(signal.SIGINT)
        worker.logged("stopping")
        worker.popen.send_signal(signal.SIGINT)
        assert worker.wait() == 130
    assert shown(cli, "r")["info"]["status"] == "pending"


def test_ctrl_c_of_an_idle_worker_is_130(workplace: Path) -> None:
    with running(workplace, *WORKER) as worker:
        worker.logged("worker started")
        worker.popen.send_signal(signal.SIGINT)
        assert worker.wait() == 130


def test_health_is_ok_until_it_is_stopping(cli: Cli, workplace: Path) -> None:
    cli("submit", "within", "stubborn", "--run", "r")
    with running(workplace, *WORKER, "--grace", "60", "--health-port", "0", "--concurrency", "3") as worker:
        port = worker.logged("health endpoint")["port"]
        assert worker.line() == "in the call"
        status, health = ask(port, "/health")
        assert status == 200
        assert health.pop("world").startswith("sqlite:")
        assert health == {"status": "ok", "busy": 1, "slots": 3, "worked": 0}
        assert ask(port, "/secrets")[0] == 404
        assert ask(port, "/health", "POST")[0] == 405
        worker.popen.send_signal(signal.SIGTERM)
        worker.logged("stopping")
        status, health = ask(port, "/health")
        assert (status, health["status"]) == (503, "stopping")
        (workplace / "gate").write_text("let through")
        assert worker.wait() == 0


def ask(port: int, path: str, method: str = "GET") -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_a_port_that_is_taken_is_told(workplace: Path) -> None:
    with running(workplace, *WORKER, "--health-port", "0") as first:
        port = first.logged("health endpoint")["port"]
        second = Process(workplace, *WORKER, "--health-port", str(port))
        _, told = second.popen.communicate(timeout=60)
        assert second.popen.returncode == 2
        assert f"--health-port {port} cannot be listened on" in told


def test_a_worker_works_for_the_agents_it_is_told_to(cli: Cli, workplace: Path) -> None:
    cli("submit", "quick", "x", "--run", "mine")
    cli("submit", "between", "x", "--run", "others")
    with running(workplace, *WORKER, "--agents", "quick", "--until-idle") as worker:
        assert worker.wait() == 0
    assert shown(cli, "mine")["info"]["status"] == "succeeded"
    assert shown(cli, "others")["info"]["status"] == "pending"


def test_follow_shows_what_comes_and_ctrl_c_leaves_it(cli: Cli, workplace: Path) -> None:
    cli("submit", "quick", "x", "--run", "r")
    with running(workplace, "--app", "app", "log", "r", "-f", "--json") as follower:
        assert [json.loads(follower.line())["type"] for _ in range(2)] == ["run.created", "turn.submitted"]
        with running(workplace, *WORKER, "--until-idle") as worker:
            assert worker.wait() == 0
        assert [json.loads(follower.line())["type"] for _ in range(2)] == ["turn.started", "turn.finished"]
        follower.popen.send_signal(signal.SIGINT)
        assert follower.wait() == 130


def test_wait_waits_for_a_worker(cli: Cli, workplace: Path) -> None:
    asking = ("--app", "app", "submit", "quick", "hello", "--wait")
    with running(workplace, *asking) as waiting, running(workplace, *WORKER) as worker:
        assert waiting.line() == "hello"
        assert waiting.wait() == 0
        worker.popen.send_signal(signal.SIGTERM)
        assert worker.wait() == 0
