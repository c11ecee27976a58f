"""LangGraph: a chain of nodes under its own saver, durability "sync", one thread a graph run."""

import sys
from contextlib import ExitStack
from time import perf_counter
from typing import Any, TypedDict
from uuid import uuid4

from langgraph.graph import END, START, StateGraph

from benchmarks.peers.peer import REPLY, serve

NODES = 50


class State(TypedDict):
    """What the graph passes on."""

    count: int
    last: dict[str, str]


def node(state: State) -> State:
    """A step."""
    return {"count": state["count"] + 1, "last": REPLY}


def main(url: str, runs: int) -> None:
    """Serve one measuring."""
    if runs != 1:
        raise SystemExit("its savers serve one run at a time on a connection")
    with ExitStack() as stack:
        graph: Any = StateGraph(State)
        before = START
        for number in range(NODES):
            graph.add_node(f"n{number}", node)
            graph.add_edge(before, f"n{number}")
            before = f"n{number}"
        graph.add_edge(before, END)
        compiled = graph.compile(checkpointer=_saver(url, stack))

        def rate(seconds: float) -> float:
            done, begun = 0, perf_counter()
            while perf_counter() - begun < seconds:
                config = {"configurable": {"thread_id": str(uuid4())}, "recursion_limit": NODES + 10}
                compiled.invoke({"count": 0, "last": {}}, config, durability="sync")
                done += NODES
            return done / (perf_counter() - begun)

        serve(rate)


def _saver(url: str, stack: ExitStack) -> Any:
    scheme, _, place = url.partition(":")
    if scheme == "sqlite":
        from langgraph.checkpoint.sqlite import SqliteSaver

        return stack.enter_context(SqliteSaver.from_conn_string(place))
    from langgraph.checkpoint.postgres import PostgresSaver

    saver = stack.enter_context(PostgresSaver.from_conn_string(url))
    saver.setup()
    return saver


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
