"""Exceptions of the OpenAI client that the log keeps well enough to raise them again, in whatever harness they come.

Only status, code and the retry headers are kept, never the text, which may quote the prompt: it is what retry rules of
harnesses look at, so they decide on a replay as they did the first time.
"""

from collections.abc import Callable
from typing import Any

import httpx2 as http
import openai

from journal.core.failures import register_error

_URL = "https://recorded.invalid/"
_HEADERS = ("retry-after", "retry-after-ms", "x-should-retry", "x-request-id")


def _status_data(error: openai.APIStatusError) -> dict[str, Any]:
    headers = {name: error.response.headers[name] for name in _HEADERS if name in error.response.headers}
    return {"status": error.response.status_code, "code": error.code, "type": error.type, "headers": headers}


def _status_error(cls: type[openai.APIStatusError]) -> Callable[[Any], openai.APIStatusError]:
    def rebuild(data: Any) -> openai.APIStatusError:
        request = http.Request("POST", _URL)
        response = http.Response(data["status"], headers=data["headers"], request=request)
        text = " ".join(str(part) for part in ("HTTP", data["status"], data["code"]) if part is not None)
        return cls(text, response=response, body={"code": data["code"], "type": data["type"]})

    return rebuild


def _register() -> None:
    for status in (
        openai.APIStatusError,
        openai.BadRequestError,
        openai.AuthenticationError,
        openai.PermissionDeniedError,
        openai.NotFoundError,
        openai.ConflictError,
        openai.UnprocessableEntityError,
        openai.RateLimitError,
        openai.InternalServerError,
    ):
        register_error(status, to_data=_status_data, from_data=_status_error(status))
    register_error(
        openai.APITimeoutError,
        to_data=lambda _: None,
        from_data=lambda _: openai.APITimeoutError(http.Request("POST", _URL)),
    )
    register_error(
        openai.APIConnectionError,
        to_data=lambda _: None,
        from_data=lambda _: openai.APIConnectionError(request=http.Request("POST", _URL)),
    )


_register()
