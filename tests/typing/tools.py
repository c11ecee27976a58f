"""Checked by mypy and pyright, never run: what the decorators keep of a function's types."""

from collections.abc import Callable
from typing import Any, assert_type

from journal.core.typed import ValueCodec, codec_of
from journal.tools.io import CallContext, io
from journal.tools.policy import never, safe
from journal.tools.probe import CannotTell, NotRun, Ran
from journal.tools.retry import Retry
from journal.tools.tool import Step, Tool, step, tool


async def probe(input: Any, io: CallContext) -> Ran | NotRun | CannotTell:  # noqa: A002 - the field's name
    return NotRun(final=True) if io.idempotency_key else Ran({"id": 1})


def plain(a: int, *, b: str = "") -> float:
    return a + len(b)


async def later(a: int) -> str:
    return str(a)


@tool
async def bare(order_id: str, amount: int) -> str:
    return f"{order_id}{amount}"


@tool(replay="never", probe=probe, dedupes=True, name="pay", timeout=3)
def full(order_id: str) -> int:
    return len(order_id)


@step(retry=Retry(tries=5, should_retry=lambda error: isinstance(error, OSError)))
async def fetch(url: str, *, limit: int = 1) -> bytes:
    return url.encode()[:limit]


@step
def local(x: int) -> int:
    return x


@safe
def look(a: int) -> str:
    return str(a)


@never(probe=probe)
def refund(a: int) -> str:
    return str(a)


async def kept() -> None:
    assert_type(await bare("a", 1), str)
    assert_type(full("a"), int)
    assert_type(await fetch("u", limit=2), bytes)
    assert_type(local(1), int)
    assert_type(look(1), str)
    assert_type(refund(1), str)
    assert_type(tool(plain)(1, b="x"), float)
    assert_type(await step(later)(1), str)
    changed: Tool[[str], int] = full.options(key="k", timeout=None)
    assert_type(changed("a"), int)
    again: Step[[int], int] = local.options(retry=True)
    assert_type(again(1), int)
    passed: Callable[[str], int] = full
    assert_type(passed("a"), int)
    assert_type(bare.parse("{}"), dict[str, Any])


async def refused() -> None:
    await bare("a")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    full(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await fetch("u", limi=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    tool(replay="once")(plain)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    io.fence = 3  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def context() -> None:
    assert_type(io.idempotency_key, str)
    assert_type(io.fence, int)
    assert_type(io.deadline, float | None)
    codec: ValueCodec[list[int]] = codec_of(list[int], what="x")
    assert_type(codec.decode(b"[1]"), list[int])
    assert_type(codec.keep([1]), tuple[bytes, list[int]])
