"""`journal stats` and `journal workers`: what an operator looks at first."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from journal.cli.output import ago
from tests.cli.conftest import Cli


def test_stats_count_open_runs_by_agent(cli: Cli, home: Path) -> None:
    cli("migrate")
    assert "no open runs" in cli("stats").stderr
    cli("submit", "support", "x", "--run", "one")
    cli("submit", "support", "x", "--run", "two")
    assert cli("submit", "order", '{"id": 1}', "--input-json", "--run", "three").exit_code == 0
    shown = cli("stats")
    assert shown.exit_code == 0, shown.output
    rows = [line.split() for line in shown.stdout.splitlines()]
    assert [(row[0], row[1]) for row in rows] == [("AGENT", "DUE"), ("order", "1"), ("support", "2")]
    cli("worker", "--until-idle")
    found = [json.loads(line) for line in cli("stats", "--json").stdout.splitlines()]
    assert [(f["agent"], f["due"], f["oldest_due"], f["idle"]) for f in found] == [
        ("order", 0, None, 1),
        ("support", 0, None, 2),
    ]


def test_workers_are_listed_while_they_are_there(cli: Cli, home: Path) -> None:
    cli("migrate")
    assert "no workers" in cli("workers").stderr
    worker = subprocess.Popen(
        [sys.executable, "-m", "journal.cli", "worker", "app:journal", "--concurrency", "7"],
        cwd=home,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 30
        while not (lines := cli("workers", "--json").stdout.splitlines()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (found,) = map(json.loads, lines)
        assert found["worker"].split(":")[1] == str(worker.pid)
        assert (found["slots"], found["busy"]) == (7, 0)
        assert found["agents"] == ["count", "order", "support"]
        assert "0/7" in cli("workers").stdout
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
    cli("migrate")
    assert "no workers" in cli("workers").stderr, "it took its leave"


def test_ago_is_told_in_one_unit() -> None:
    assert ago(None, 0) == "-"
    assert [ago(0, now) for now in (0, 119, 120, 7199, 7200, 172800)] == [
        "0 s ago",
        "119 s ago",
        "2 min ago",
        "119 min ago",
        "2 h ago",
        "2 d ago",
    ]
