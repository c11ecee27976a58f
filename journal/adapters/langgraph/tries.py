"""A chat model that is asked once: the engine tries again, and the provider's client below does not.

Clients of OpenAI, Anthropic and their like are found among the attributes of the chat model, which langchain's packages
fill in when it is made or first used; the copy has others, on the same connections. What the user gave is not changed.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel

from journal.adapters.langgraph.place import Place
from journal.adapters.tries import retry_as_set
from journal.engine.adapting import notes_of
from journal.tools.retry import Retry

_RETRIES = "max_retries"


def retry_of(model: object, otherwise: Retry | None) -> Retry | None:
    """Our rule for calls of a chat model: the number of retries that it was made with, if one was said."""
    said = isinstance(model, BaseChatModel) and _RETRIES in model.model_fields_set
    return retry_as_set(getattr(model, _RETRIES) if said else None, otherwise)


def asked_once(place: Place, model: Any) -> Any:
    """A copy of `model` whose clients do not retry, the same one as long as the attempt lives; or `model` itself."""
    if not isinstance(model, BaseChatModel) or _RETRIES not in type(model).model_fields:
        return model
    copies, known = notes_of(place.attempt, "langgraph.models"), str(id(model))
    if known not in copies:
        copies[known] = model, _copy(model)  # both are held, so that no id is used again
    return copies[known][1]


def _copy(model: BaseChatModel) -> BaseChatModel:
    copy = model.model_copy(update={_RETRIES: 0})
    kept = vars(copy)
    for name, part in list(kept.items()):
        if isinstance(getattr(type(copy), name, None), cached_property):
            del kept[name]  # made anew, of the fields
        elif (once := _client_of(part)) is not None:
            kept[name] = once(part)
    return copy


def _client_of(part: Any) -> Callable[[Any], Any] | None:
    """How to make another of `part` that does not retry: of a client, or of a resource of one."""
    if _is_client(part):
        return lambda client: client.with_options(max_retries=0)
    inner: Any = getattr(part, "_client", None)
    if _is_client(inner):
        return lambda resource: type(resource)(inner.with_options(max_retries=0))
    return None


def _is_client(part: Any) -> bool:
    return callable(getattr(part, "with_options", None)) and isinstance(getattr(part, _RETRIES, None), int)
