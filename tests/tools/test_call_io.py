"""`io` speaks for the running call, and for nothing else."""

import asyncio
import threading
from contextlib import suppress
from contextvars import copy_context
from typing import Any

import pytest

from journal.core.errors import NotInTurn
from journal.tools.facts import Facts
from journal.tools.io import current_call, enter_call, io


class Call:
    def __init__(self, key: str) -> None:
        self.idempotency_key, self.fence, self.deadline = key, 3, 1.5
        self.deps: Any = {"client": key}
        self.docs: Any = f"documents of {key}"
        self.files: Any = f"files of {key}"
        self.log: Any = f"log of {key}"
        self.emitted: list[Any] = []
        self.unawaited: dict[object, str] = {}

    def emit(self, data: Any) -> None:
        self.emitted.append(data)

    def report(self, facts: Facts) -> None:
        self.facts = facts


def test_inside_a_call_it_is_the_calls() -> None:
    call = Call("a")
    with enter_call(call) as entered:
        assert entered is call
        assert (io.idempotency_key, io.fence, io.deadline) == ("a", 3, 1.5)
        assert io.deps == {"client": "a"}
        assert io.log == "log of a"
        assert str(io.docs) == "documents of a"
        assert str(io.files) == "files of a"
        io.emit({"n": 1})
    assert call.emitted == [{"n": 1}]


@pytest.mark.parametrize("name", ["idempotency_key", "fence", "deadline", "deps", "docs", "files", "log"])
def test_outside_of_a_call_it_says_so(name: str) -> None:
    with pytest.raises(NotInTurn, match=rf"io\.{name} works only inside a call"):
        getattr(io, name)


def test_emit_outside_of_a_call_says_so() -> None:
    with pytest.raises(NotInTurn, match=r"io\.emit\(\)"):
        io.emit(1)


def test_calls_nest_and_leave_even_when_they_raise() -> None:
    with enter_call(Call("outer")):
        with suppress(RuntimeError), enter_call(Call("inner")):
            assert io.idempotency_key == "inner"
            raise RuntimeError
        assert io.idempotency_key == "outer"
    assert current_call.get() is None


def test_tasks_do_not_see_each_others_call() -> None:
    async def one(key: str, both: asyncio.Barrier) -> str:
        with enter_call(Call(key)):
            await both.wait()
            return io.idempotency_key

    async def main() -> list[str]:
        both = asyncio.Barrier(2)
        return list(await asyncio.gather(one("a", both), one("b", both)))

    assert asyncio.run(main()) == ["a", "b"]


def test_a_worker_thread_sees_the_call_that_sent_it() -> None:
    seen: list[str] = []
    with enter_call(Call("a")):
        context = copy_context()
    thread = threading.Thread(target=context.run, args=(lambda: seen.append(io.idempotency_key),))
    thread.start()
    thread.join()
    assert seen == ["a"]


def test_it_takes_no_attributes() -> None:
    with pytest.raises(AttributeError):
        io.fence = 4  # type: ignore[misc]  # what is tested


def test_a_report_is_read_off_the_reply_and_what_is_said_by_name_goes_first() -> None:
    call = Call("a")
    reply = {"stop_reason": "max_tokens", "usage": {"input_tokens": 3, "output_tokens": 7}}
    with enter_call(call):
        io.report(reply, headers={"X-RateLimit-Remaining-Requests": "9"})
        assert call.facts == Facts(
            finish="length",
            raw_finish="max_tokens",
            usage={"input_tokens": 3, "output_tokens": 7},
            rate_limits={"requests_remaining": 9.0},
        )
        io.report(reply, finish="stop", usage={"input_tokens": 4})
        assert (call.facts.finish, call.facts.raw_finish, call.facts.usage) == (
            "stop",
            None,
            {"input_tokens": 4},
        )
        io.report(raw_finish="tool_use")
        assert (call.facts.finish, call.facts.usage) == ("tool_calls", {})
    with pytest.raises(NotInTurn):
        io.report(reply)
