"""DBOS: a workflow whose process was lost behind its last step, and what a recorded step takes when it is recovered.

Run twice on one store: the first process records the steps and is gone in the middle of the workflow, the second is
launched anew, which recovers the workflow as DBOS does by itself, and answers with the seconds a recorded step took.
"""

import os
import sys
from time import perf_counter

from dbos import DBOS, SetWorkflowID

from benchmarks.peers.dbos import configure
from benchmarks.peers.peer import LOST, REPLY


def main(url: str, count: int, *, is_recovery: bool) -> None:
    """Record, or recover."""
    configure(url)

    @DBOS.step()
    def step(_: int) -> dict[str, str]:
        if is_recovery:
            raise RuntimeError("a recorded step ran again")
        return REPLY

    @DBOS.workflow()
    def workflow(count: int) -> float:
        begun = perf_counter()
        for number in range(count):
            step(number)
        if not is_recovery:
            os._exit(LOST)
        return (perf_counter() - begun) / count

    DBOS.launch()
    if is_recovery:
        seconds: float = DBOS.retrieve_workflow("lost").get_result()
        sys.stdout.write(f"{seconds}\n")
        sys.stdout.flush()
        os._exit(0)  # its threads take seconds to stop, and nothing is left to be done
    with SetWorkflowID("lost"):
        workflow(count)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), is_recovery=sys.argv[3] == "recover")
