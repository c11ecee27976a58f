"""A provider on loopback whose answers a test lays out one by one, and who notes what it was asked."""

import asyncio
import json
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

from journal.demo.loopback import LoopbackServer, Reply, Request
from tests.adapters.bench import Bench

Answer = Reply | Callable[[Request], Reply]


class Provider(LoopbackServer):
    """Gives `answers` in turn, the last one for ever; those called `HANG` are never given."""

    def __init__(self, answers: Sequence[Answer], bench: Bench | None = None) -> None:
        super().__init__(tally=None, hang_on=None)
        self._answers = list(answers)
        self._bench = bench
        self._loop = asyncio.get_running_loop()
        self._leaving = Event()
        self.is_hanging = asyncio.Event()
        """Set once a request got the answer that is never given."""
        self.asked: list[Request] = []

    def answer(self, request: Request) -> Reply:
        self.asked.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer is HANG:
            self._loop.call_soon_threadsafe(self.is_hanging.set)
            if self._bench is not None:
                self._loop.call_soon_threadsafe(self._bench.inside.set)
            self._leaving.wait()
        return answer(request) if callable(answer) else answer

    def __exit__(self, *error: object) -> None:
        self._leaving.set()
        super().__exit__(*error)

    @property
    def keys(self) -> list[str]:
        return [request.headers["idempotency-key"] for request in self.asked]


HANG = Reply({})


def chat(text: str) -> Reply:
    """A chat completion."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    usage = {
        "prompt_tokens": 11,
        "completion_tokens": 7,
        "total_tokens": 18,
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    return Reply({**head, "choices": [choice], "usage": usage})


def chat_stream(*parts: str, end: bool = True) -> Reply:
    """The same in pieces; without its `end` it breaks off."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices: list[Any] = [{"index": 0, "delta": {"content": part}, "finish_reason": None} for part in parts]
    if end:
        choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    frames = [f"data: {json.dumps({**head, 'choices': [choice]})}\n\n" for choice in choices]
    return Reply(events=(*frames, *(["data: [DONE]\n\n"] if end else [])))


def message(text: str) -> Reply:
    """A reply of Anthropic's."""
    usage = {"input_tokens": 11, "output_tokens": 7}
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    block = {"type": "text", "text": text}
    return Reply({**head, "content": [block], "stop_reason": "end_turn", "usage": usage})


def failure(status: int, words: str) -> Reply:
    """An error of either's."""
    error = {"type": "some_error", "code": "some_code", "message": words}
    return Reply({"type": "error", "error": error}, status=status)
