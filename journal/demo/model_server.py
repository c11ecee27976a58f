"""The bundled model: a loopback server for the real clients of OpenAI and Anthropic, with a support clerk behind it.

`POST /v1/responses`, `/v1/chat/completions` and `/v1/messages`, streamed or whole; `GET /v1/models`; `GET /stats`. A
request counts as paid (`model_calls`) once it was received whole, as with a provider; that is on disk before the answer
is thought of. `hang_on=n` holds the n-th answer: the request was paid, and the client can be killed while it waits.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import NamedTuple

import click

from journal.demo import model_wire as wire
from journal.demo.clerk import Ask, Conversation, Say, decide
from journal.demo.loopback import LoopbackServer, Reply, Request, Tally
from journal.demo.messages_wire import messages_events, messages_json, read_messages

Think = Callable[[Conversation], Ask | Say]
"""What the model does next, decided from the conversation alone."""


class ModelServer(LoopbackServer):
    """The model, listening while the context is open."""

    def __init__(
        self,
        *,
        tally: Tally | None = None,
        hang_on: int | None = None,
        port: int = 0,
        think: Think = decide,
    ) -> None:
        super().__init__(tally=tally, hang_on=hang_on, port=port)
        self._think = think

    @property
    def base_url(self) -> str:
        """What `OPENAI_BASE_URL` is to be."""
        return f"{self.url}/v1"

    @property
    def model_calls(self) -> int:
        """Requests that were received whole."""
        return self.tally.count("model_calls")

    def environment(self) -> dict[str, str]:
        """Variables that point a process's OpenAI client, and the Agents SDK, here and nowhere else."""
        return {
            "OPENAI_BASE_URL": self.base_url,
            "OPENAI_API_KEY": "loopback",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",  # else it would send traces to the provider
        }

    def answer(self, request: Request) -> Reply:
        match request.method, request.path:
            case "GET", "/stats":
                return Reply({"model_calls": self.model_calls, "answered": self.tally.count("answered")})
            case "GET", "/v1/models":
                model = {"id": "loopback", "object": "model", "created": 0, "owned_by": "durable-journal"}
                return Reply({"object": "list", "data": [model]})
            case "POST", "/v1/responses":
                return self._converse(request.body or {}, _RESPONSES)
            case "POST", "/v1/chat/completions":
                return self._converse(request.body or {}, _CHAT)
            case "POST", "/v1/messages":
                return self._converse(request.body or {}, _MESSAGES)
        return Reply({"error": {"message": f"no {request.method} {request.path} here"}}, 404)

    def _converse(self, body: wire.Json, dialect: "_Dialect") -> Reply:
        conversation = dialect.read(body)
        number = self.tally.add("model_calls", calls=len(conversation.calls))
        self.hold.arrive(number)
        move = self._think(conversation)
        names = wire.Names(body, conversation)
        self.tally.add("answered")
        if body.get("stream"):
            return Reply(events=tuple(dialect.events(names, move)))
        return Reply(dialect.whole(names, move))


class _Dialect(NamedTuple):
    """How an API says it."""

    read: Callable[[wire.Json], Conversation]
    whole: Callable[[wire.Names, Ask | Say], wire.Json]
    events: Callable[[wire.Names, Ask | Say], Iterator[str]]


_RESPONSES = _Dialect(wire.read_responses, wire.responses_json, wire.responses_events)
_CHAT = _Dialect(wire.read_chat, wire.chat_json, wire.chat_events)
_MESSAGES = _Dialect(read_messages, messages_json, messages_events)


@contextmanager
def bundled_model(think: Think = decide) -> Iterator[None]:
    """Point this process's OpenAI client to a model on loopback, unless `OPENAI_API_KEY` names a real one."""
    if os.environ.get("OPENAI_API_KEY"):
        yield
        return
    with ModelServer(think=think) as server:
        variables = server.environment()
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


@click.command(help=__doc__)
@click.option("--port", default=0, show_default="a free one")
@click.option("--tally", type=click.Path(path_type=Path), help="File that keeps the counts.")
@click.option("--hang-on", type=int, help="Hold the answer to this request, counted from 1.")
def main(port: int, tally: Path | None, hang_on: int | None) -> None:
    """Serve until interrupted; the base URL is the one line on stdout."""
    with ModelServer(tally=Tally(tally), hang_on=hang_on, port=port) as server:
        sys.stdout.write(f"{server.base_url}\n")
        sys.stdout.flush()
        Event().wait()


if __name__ == "__main__":
    main()
