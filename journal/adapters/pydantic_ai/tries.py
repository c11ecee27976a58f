"""A model that is asked once: the engine tries again, and the provider's client below does not."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final

from pydantic_ai._unsupported_settings import suppress_warnings
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext

from journal.engine.context import in_call

_RETRIES: Final = "max_retries"
_asking: ContextVar[object] = ContextVar("journal_pydantic_ai_asking", default=None)


def counted(body: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[object]]:
    """`body` of a model call, whose tries the engine counts."""

    async def act() -> object:
        token = _asking.set(in_call())
        try:
            return await body()
        finally:
            _asking.reset(token)

    return act


def is_counted() -> bool:
    """Whether a model is asked in a model call here, and not by an agent inside a tool."""
    return (context := in_call()) is not None and _asking.get() is context


def _once(settings: ModelSettings | None) -> ModelSettings:
    changed: Any = {**(settings or {}), _RETRIES: 0}
    return changed  # type: ignore[no-any-return]  # a typed dictionary is not known as such


class AskedOnce(WrapperModel):
    """`wrapped`, its client's own retries off. A model that has none is not to warn that it knows no such setting."""

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        with suppress_warnings((_RETRIES,)):
            return await super().request(messages, _once(model_settings), model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncIterator[StreamedResponse]:
        with suppress_warnings((_RETRIES,)):
            async with super().request_stream(
                messages, _once(model_settings), model_request_parameters, run_context
            ) as stream:
                yield stream
