"""What the drivers that need no server raise where the scene has the model fail."""

from typing import NoReturn

import httpx2
import openai

from tests.adapters.suite import Reply


def check(reply: Reply) -> Reply:
    """`reply`, unless it is an error: that is raised as OpenAI's client does."""
    if reply.status >= 400:
        request = httpx2.Request("POST", "https://provider.invalid/")
        response = httpx2.Response(reply.status, headers=dict(reply.headers), request=request)
        cls = openai.RateLimitError if reply.status == 429 else openai.InternalServerError
        raise cls("quotes the prompt", response=response, body=None)
    return reply


def tear() -> NoReturn:
    """What is raised where the connection is lost."""
    raise openai.APIConnectionError(request=httpx2.Request("POST", "https://provider.invalid/"))
