"""An HTTP server on the loopback that answers as it is told, one connection a request; and counts."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec


class Answer(msgspec.Struct, frozen=True):
    """What one request gets. Status 0: the connection is cut; -1: nothing at all."""

    status: int
    body: Any = None
    headers: dict[str, str] = {}
    is_torn: bool = False
    """Whether the connection is cut before all of it was there."""


class Answering:
    """Gives the answers in order, the last one again and again."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = next(
                (int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:")), 0
            )
            await reader.readexactly(length)
            self.asked += 1
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if answer.status < 0:
                await reader.read()
            if answer.status > 0:
                text = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
                headers = {"content-type": "application/json", "connection": "close", **answer.headers}
                lines = [
                    f"HTTP/1.1 {answer.status} x",
                    *(f"{name}: {value}" for name, value in headers.items()),
                ]
                writer.write(
                    "\r\n".join(
                        [*lines, f"content-length: {len(text.encode()) + 9 * answer.is_torn}", "", text]
                    ).encode()
                )
                await writer.drain()
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


@asynccontextmanager
async def answering(*answers: Answer) -> AsyncIterator[Answering]:
    """The server, listening while the context is open."""
    found = Answering(*answers)
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield found
    finally:
        server.close()
        await server.wait_closed()


def chat(text: str = "hi", finish: str = "stop") -> Answer:
    """A chat completion, as the provider's documentation has it."""
    body = {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29},
    }  # fmt: skip
    return Answer(200, body, {"x-ratelimit-remaining-requests": "59"})


def response(text: str = "hi") -> Answer:
    """A response of the Responses API."""
    message = {
        "type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }  # fmt: skip
    body = {
        "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": [message],
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        "usage": {
            "input_tokens": 36, "output_tokens": 87, "total_tokens": 123,
            "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }  # fmt: skip
    return Answer(200, body)


def failure(status: int, code: str | None = None, **headers: str) -> Answer:
    """An error, as the provider's documentation has it."""
    error = {"message": "quotes the prompt", "type": "some_error", "param": None, "code": code}
    return Answer(status, {"error": error}, {name.replace("_", "-"): text for name, text in headers.items()})
