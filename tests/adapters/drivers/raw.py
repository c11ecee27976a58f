"""What the drivers of raw clients share: a model server on loopback that says what the scene says, and the loop."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from journal import Turn, never, safe
from journal.demo.loopback import LoopbackServer, Request
from journal.demo.loopback import Reply as HttpReply
from tests.adapters.suite import Ask, Reply, Scene

scene = Scene.of_arguments()


class SceneServer(LoopbackServer):
    """The model, in this process: killed with it."""

    def __init__(
        self, told: Callable[[Any], Sequence[str]], write: Callable[[Any, Reply], HttpReply]
    ) -> None:
        super().__init__(tally=None, hang_on=None)
        self._told, self._write = told, write

    def answer(self, request: Request) -> HttpReply:
        reply = scene.reply(self._told(request.body))
        if reply.status >= 400:
            error = {"type": "some_error", "code": "some_code", "message": "quotes the prompt"}
            return HttpReply(
                {"type": "error", "error": error}, status=reply.status, headers=dict(reply.headers)
            )
        written = self._write(request.body, reply)
        if not reply.is_torn:
            return written
        events = written.events or ()
        first = next(n for n, event in enumerate(events) if reply.parts[0] in event)
        return HttpReply(events=events[: first + 1])


@safe
async def lookup(order: str) -> str:
    return await scene.lookup(order)


@never
async def refund(order: str) -> str:
    return await scene.refund(order)


async def run_tool(turn: Turn, name: str, order: str) -> str:
    tool = {"lookup": lookup, "refund": refund}[name]
    return (await turn.tool(tool, order)).text


async def until_said(
    ask: Callable[[list[Any]], Awaitable[tuple[str, list[Any], list[Ask]]]],
    answered: Callable[[list[tuple[Ask, str]]], list[Any]],
    run: Callable[[Ask], Awaitable[str]],
    prompt: str,
) -> dict[str, str]:
    """The loop that everybody writes: ask, do what the model asks for, ask again."""
    messages: list[Any] = [{"role": "user", "content": prompt}]
    number = 0
    while True:
        text, said, asks = await ask(messages)
        if scene.is_streamed:
            scene.effect(f"ended {number}")
            number += 1
        if not asks:
            return {"said": text}
        results = await asyncio.gather(*(run(a) for a in asks)) if len(asks) > 1 else [await run(asks[0])]
        messages += [*said, *answered(list(zip(asks, results, strict=True)))]
