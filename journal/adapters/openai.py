"""OpenAI's client (`openai`): ``client = durable_client(AsyncOpenAI())``, used inside a handler.

Tested with version 3.57. Requests are recorded by a transport: see `transport.py` and docs/raw-clients.md.
"""

from typing import TypeVar

from openai import AsyncOpenAI

from journal.adapters.transport import durable_copy, durable_transport

C = TypeVar("C", bound=AsyncOpenAI)

__all__ = ["durable_client", "durable_transport"]


def durable_client(client: C) -> C:
    """A copy of `client` that records each request as a call of the turn it is made in.

    It shares the connections of `client`, and closes them when it is closed. The library's own retries are off in it.
    Requests outside of a turn raise `NotInTurn`. Raises `InvalidOptions` for a sync client.
    """
    return durable_copy(client)
