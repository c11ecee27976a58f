"""The examples behave as the README says: killed inside the refund, run again, and once more."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def start(script: str, where: Path) -> "subprocess.Popen[str]":
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "JOURNAL_"))}
    environment["JOURNAL_WORLD"] = f"sqlite:{where / 'journal.db'}"
    environment["PYTHONUNBUFFERED"] = "1"
    return subprocess.Popen(
        [sys.executable, EXAMPLES / script],
        cwd=where,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("script", ["refunds.py", "refunds_pydantic_ai.py"])
def test_killed_inside_the_refund_it_carries_on_and_then_answers_from_the_log(
    script: str, tmp_path: Path
) -> None:
    with start(script, tmp_path) as first:
        assert first.stdout is not None
        told = re.search(r"kill -9 (\d+)", first.stdout.readline())
        assert told is not None
        os.kill(int(told[1]), signal.SIGKILL)
        first.communicate()
    assert (tmp_path / "refunds.txt").read_text() == "42 30\n"

    with start(script, tmp_path) as second:
        answer, complaints = second.communicate(timeout=120)
    assert second.returncode == 0, complaints
    assert "went through before an interruption" in answer
    assert (tmp_path / "refunds.txt").read_text() == "42 30\n"

    with start(script, tmp_path) as third:
        again, complaints = third.communicate(timeout=120)
    assert third.returncode == 0, complaints
    assert again == answer
    assert (tmp_path / "refunds.txt").read_text() == "42 30\n"


def printed(text: str) -> tuple[str, list[str]]:
    """What the coding agent said, and what it found at three points of the log."""
    said, *points = re.split(r"\nBehind record \d+, to do: ", text)
    return said, points


def ended(script: "subprocess.Popen[str]") -> str:
    with script:
        answer, complaints = script.communicate(timeout=120)
    assert script.returncode == 0, complaints
    return answer


POINTS = [
    "{'page': False}\n/index.html: <h1>Otters</h1>\n<p>They swim.</p>\n",
    "{'page': True}\n/index.html: <h1>Otters</h1>\n<p>They swim, and hold hands.</p>\n",
    "{'colour': True, 'page': True}\n/index.html: <h1 class=loud>Otters</h1>\n<p>They swim, and hold hands.</p>\n"
    "/style.css: .loud { color: green }\n",
]


def test_the_coding_agent_is_killed_in_mid_edit_and_forked(tmp_path: Path) -> None:
    """Its files and to-dos at three points; a fork from its middle, with another instruction, has its own."""
    with start("coding_agent.py", tmp_path) as first:
        assert first.stdout is not None
        lines = [first.stdout.readline() for _ in range(2)]
        told = re.search(r"kill -9 (\d+)", lines[1])
        assert told is not None, lines
        os.kill(int(told[1]), signal.SIGKILL)
        first.communicate()
    world = f"sqlite:{tmp_path / '.journal' / 'journal.db'}"

    def journal(*arguments: str) -> str:
        command = [sys.executable, "-m", "journal.cli", *arguments, "--world", world]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout

    assert journal("files", "page", "/index.html") == "<h1>Otters</h1>\n<p>They swim, and hold hands.</p>\n"
    assert journal("files", "page").split() == ["50", "/index.html"]  # nothing of the edit

    answer = ended(start("coding_agent.py", tmp_path))
    said, points = printed(answer)
    assert said == "The page is there.\nThe heading has its colour.\n"
    assert [point.strip() for point in points] == [point.strip() for point in POINTS]

    calls = json.loads(journal("show", "page", "--json"))["state"]["calls"]
    middle = next(call for call in calls if call["name"] == "restyle")
    another = "Now give it a heading in red"
    fork = ["fork", "page", "--at", str(middle["number"]), "--as", "red", "--input", json.dumps(another)]
    assert journal(*fork).strip() == "red"
    carry_on = (
        "from coding_agent import *\n"
        f"with bundled_model(think): print(coder.run_sync({another!r}, run_id='red', key='colour'))"
    )
    environment = {**os.environ, "PYTHONPATH": f"{EXAMPLES}:{EXAMPLES.parent}"}
    environment.pop("OPENAI_API_KEY", None)
    subprocess.run([sys.executable, "-c", carry_on], check=True, cwd=tmp_path, env=environment, timeout=120)
    assert journal("files", "red", "/style.css") == ".loud { color: red }\n"
    assert journal("files", "red", "/index.html") == journal("files", "page", "/index.html")
    assert json.loads(journal("docs", "red", "--json"))["todo"]["value"] == {"page": True, "colour": True}
    assert journal("files", "page", "/style.css") == ".loud { color: green }\n"
    assert ended(start("coding_agent.py", tmp_path)) == answer, "from the log, to the letter"
    assert len((EXAMPLES / "coding_agent.py").read_text().splitlines()) < 80
