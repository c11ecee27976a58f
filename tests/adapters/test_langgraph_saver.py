"""The journal as a checkpointer, without turns: sync and async, several processes, large values, deletion."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict
from unittest.mock import patch

import pytest
from click.testing import CliRunner
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import START, StateGraph

from journal import Journal
from journal.adapters.langgraph import JournalSaver
from journal.adapters.langgraph.threads import run_of
from journal.cli import main
from journal.core.errors import ClaimLost
from journal.core.records import ThreadHolder

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]


def add(before: list[str], new: list[str]) -> list[str]:
    return before + new


class State(TypedDict):
    said: Annotated[list[str], add]


def counting(saver: JournalSaver) -> Any:
    """A graph that says how much was said before."""
    graph = StateGraph(State)
    graph.add_node("count", lambda state: {"said": [str(len(state["said"]))]})
    graph.add_edge(START, "count")
    return graph.compile(checkpointer=saver)


def on(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'j.db'}"


def test_a_graph_without_async(url: str) -> None:
    with JournalSaver(Journal(url)) as saver:
        graph = counting(saver)
        assert graph.invoke({"said": ["a"]}, on("t"))["said"] == ["a", "1"]
        assert graph.invoke({"said": ["b"]}, on("t"))["said"] == ["a", "1", "b", "3"]
        assert len(list(saver.list(on("t")))) == 6
        assert len(list(saver.list(None, limit=2))) == 2
        saver.copy_thread("t", "u")
        saver.prune(["t"])
        assert len(list(saver.list(on("t")))) == 1
        saver.delete_thread("t")
        assert saver.get_tuple(on("t")) is None
        assert graph.invoke({"said": ["c"]}, on("t"))["said"] == ["c", "1"]
        assert graph.get_state(on("u")).values["said"] == ["a", "1", "b", "3"]


async def test_two_processes_go_on_in_one_thread(url: str) -> None:
    program = (
        "import sys\n"
        "from journal import Journal\n"
        "from journal.adapters.langgraph import JournalSaver\n"
        "from tests.adapters.test_langgraph_saver import counting, on\n"
        "with JournalSaver(Journal(sys.argv[1])) as saver:\n"
        "    print(counting(saver).invoke({'said': ['b']}, on('t'))['said'])\n"
    )
    async with Journal(url) as journal:
        graph = counting(JournalSaver(journal))
        assert (await graph.ainvoke({"said": ["a"]}, on("t")))["said"] == ["a", "1"]
        other = subprocess.run(
            [sys.executable, "-c", program, url],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert other.stdout.strip() == "['a', '1', 'b', '3']", other.stderr
        assert (await graph.ainvoke({"said": ["c"]}, on("t")))["said"] == ["a", "1", "b", "3", "c", "5"]


async def test_what_a_lost_holder_writes_counts_for_nothing(url: str) -> None:
    old = ThreadHolder(run="r", turn="start", scope="graph#1", claim=b"old")
    new = ThreadHolder(run="r", turn="start", scope="graph#1", claim=b"new")
    async with Journal(url) as one, Journal(url) as two:
        late, present = JournalSaver(one), JournalSaver(two)
        assert await late.take("t", old) == (False, -2)
        await put(late, "1", old)
        assert await present.take("t", new) == (True, 1)
        await put(present, "2", new)
        with pytest.raises(ClaimLost):
            await put(late, "3", old)
        for saver in (late, present, JournalSaver(two)):
            found = await saver.aget_tuple(on("t"))
            assert found is not None
            assert found.checkpoint["id"] == "2"
        await put(present, "4", None)  # whoever works without a turn is nobody's rival
        assert (await late.aget_tuple(on("t"))).checkpoint["id"] == "4"  # type: ignore[union-attr]  # it is there


async def put(saver: JournalSaver, id_: str, holder: ThreadHolder | None) -> None:
    checkpoint = {**empty_checkpoint(), "id": id_}
    with patch("journal.adapters.langgraph.saver.holder_here", lambda _: holder):
        await saver.aput(on("t"), checkpoint, {"step": 1}, {})  # type: ignore[arg-type]  # a dictionary all the same


async def test_large_values_are_kept_beside_the_log(url: str) -> None:
    async with Journal(url) as journal:
        saver = JournalSaver(journal)
        graph = counting(saver)
        large = "x" * 200_000
        await graph.ainvoke({"said": [large]}, on("t"))
        await saver.acopy_thread("t", "u")
        for thread in ("t", "u"):
            fresh = await JournalSaver(journal).aget_tuple(on(thread))
            assert fresh is not None
            assert fresh.checkpoint["channel_values"]["said"][0] == large
        assert max(record.size for record in await journal.read(run_of("t"))) < 10_000


@pytest.mark.parametrize("name", ["plain", "with spaces & ünicode", "/etc", "x" * 300, "=", ""])
async def test_any_text_is_a_thread_id(url: str, name: str) -> None:
    async with Journal(url) as journal:
        saver = JournalSaver(journal)
        await saver.aput(on(name), empty_checkpoint(), {}, {})
        found = [item.config["configurable"]["thread_id"] async for item in saver.alist(None)]
        assert found == [name]


async def test_a_thread_with_a_channel_of_differences_survives_pruning(url: str) -> None:
    """Such a channel is rebuilt from what was written since its last whole value."""

    class Delta(TypedDict):
        said: Annotated[
            list[str], DeltaChannel(lambda before, new: [*before, *(text for part in new for text in part)])
        ]

    async with Journal(url) as journal:
        saver = JournalSaver(journal)
        graph = StateGraph(Delta)
        graph.add_node("count", lambda state: {"said": [str(len(state["said"]))]})
        graph.add_edge(START, "count")
        compiled = graph.compile(checkpointer=saver)
        for text in "ab":
            await compiled.ainvoke({"said": [text]}, on("t"))
        history = await saver.aget_delta_channel_history(config=on("t"), channels=["said"])
        plain = await super(JournalSaver, saver).aget_delta_channel_history(config=on("t"), channels=["said"])
        assert history == plain
        await saver.aprune(["t"])
        await saver.acopy_thread("t", "u")
        for thread in ("t", "u"):
            assert (await compiled.aget_state(on(thread))).values["said"] == ["a", "1", "b", "3"]


def test_the_command_line_shows_a_thread(url: str) -> None:
    with JournalSaver(Journal(url)) as saver:
        counting(saver).invoke({"said": ["secret"]}, on("t"))
    runner = CliRunner()
    for command in (["show"], ["log"], ["log", "--json"], ["log", "--values"], ["show", "--json"]):
        shown = runner.invoke(main, [command[0], run_of("t"), *command[1:], "--world", url])
        assert shown.exit_code == 0, shown.output
        assert "langgraph.thread" in shown.output
        assert "secret" not in shown.output
    listed = runner.invoke(main, ["log", run_of("t"), "--world", url])
    assert "thread.checkpoint" in listed.output
    assert b"secret".hex() not in listed.output
