"""`DurableRunner`: the SDK's `Runner`, for use inside a turn.

Same signatures, same results. Everything the SDK does is as before, but that model calls, tool calls and session
operations are recorded, and served from the log when the turn is carried on after a crash. Next: `model.py` and
`tools.py` (the calls), `agent.py` (how they get in).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from agents import Agent, RunConfig, RunHooks, Runner, RunResult, RunResultStreaming, RunState
from agents.items import TResponseInputItem
from agents.memory import Session
from agents.run_config import DEFAULT_MAX_TURNS
from agents.run_error_handlers import RunErrorHandlers
from anyio import CancelScope

from journal.adapters.openai_agents.agent import DurableAgent, durable_agent, durable_config
from journal.adapters.openai_agents.failures import carry_origin
from journal.adapters.openai_agents.place import Place, place_of, running_at
from journal.adapters.openai_agents.session import durable_session
from journal.core.errors import InvalidOptions
from journal.engine.adapting import scope_here
from journal.engine.scope import Scope

C = TypeVar("C")


class DurableRunner:
    """`Runner`, recorded. Its methods raise `NotInTurn` outside of a handler."""

    @classmethod
    async def run(
        cls,
        starting_agent: Agent[C],
        input: str | list[TResponseInputItem] | RunState[C],  # noqa: A002 - the SDK's name
        *,
        context: C | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks[C] | None = None,
        run_config: RunConfig | dict[str, Any] | None = None,
        error_handlers: RunErrorHandlers[C] | None = None,
        previous_response_id: str | None = None,
        auto_previous_response_id: bool = False,
        conversation_id: str | None = None,
        session: Session | None = None,
    ) -> RunResult:
        """As `Runner.run`. Raises `OutcomeUnknown` where a model call that must not be repeated is in doubt."""
        place = place_of(scope_here("DurableRunner.run"))
        config = _config(place, run_config)
        try:
            with _serving(place, previous_response_id or conversation_id or auto_previous_response_id):
                result = await Runner.run(
                    durable_agent(starting_agent),
                    _resumable(input),
                    context=context,
                    max_turns=max_turns,
                    hooks=hooks,
                    run_config=config,
                    error_handlers=error_handlers,
                    previous_response_id=previous_response_id,
                    auto_previous_response_id=auto_previous_response_id,
                    conversation_id=conversation_id,
                    session=None if session is None else durable_session(session),
                )
        except Exception as error:
            carry_origin(error)
            raise
        finally:
            if _is_runners(run_config):
                with CancelScope(shield=True):  # as Runner does: a cancelled run still lets its provider go
                    await config.model_provider.aclose()
        if place.attempt.fatal is not None:
            raise place.attempt.fatal
        return result

    @classmethod
    def run_streamed(
        cls,
        starting_agent: Agent[C],
        input: str | list[TResponseInputItem] | RunState[C],  # noqa: A002 - the SDK's name
        context: C | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks[C] | None = None,
        run_config: RunConfig | dict[str, Any] | None = None,
        previous_response_id: str | None = None,
        auto_previous_response_id: bool = False,
        conversation_id: str | None = None,
        session: Session | None = None,
        *,
        error_handlers: RunErrorHandlers[C] | None = None,
    ) -> RunResultStreaming:
        """As `Runner.run_streamed`. A recorded model call shows its last event alone: the others were seen before.

        The run goes on in a task of the SDK's: read `stream_events` to its end before the handler returns.
        """
        here = scope_here("DurableRunner.run_streamed")
        place = place_of(Scope(here.attempt, here.next_key("stream"), None))
        config = _config(place, run_config)
        with _serving(place, previous_response_id or conversation_id or auto_previous_response_id):
            result = Runner.run_streamed(
                durable_agent(starting_agent),
                _resumable(input),
                context=context,
                max_turns=max_turns,
                hooks=hooks,
                run_config=config,
                previous_response_id=previous_response_id,
                auto_previous_response_id=auto_previous_response_id,
                conversation_id=conversation_id,
                session=None if session is None else durable_session(session),
                error_handlers=error_handlers,
            )
        if _is_runners(run_config):
            provider = config.model_provider
            result._ensure_model_provider_cleanup_on_completion(provider.aclose)  # noqa: SLF001 - as Runner does
        return result


def _config(place: Place, given: RunConfig | dict[str, Any] | None) -> RunConfig:
    config = durable_config(given)
    if place.attempt.is_offline:
        config.tracing_disabled = True  # traces are sent to the provider
    return config


@contextmanager
def _serving(place: Place, server_side: object) -> Iterator[None]:
    place.is_server_side = bool(server_side)
    with running_at(place):
        yield


def _is_runners(config: RunConfig | dict[str, Any] | None) -> bool:
    """Whether the SDK would have made the model provider itself, and so have closed it."""
    return config is None or (isinstance(config, dict) and "model_provider" not in config)


def _resumable(given: Any) -> Any:
    """The input, if it is not a state whose agents would run unrecorded: the SDK tells agents apart by identity."""
    if isinstance(given, RunState):
        agent = given._current_agent  # noqa: SLF001 - what the SDK goes on with
        if agent is not None and not isinstance(agent, DurableAgent):
            raise InvalidOptions(
                f"the state would go on with the plain agent {agent.name!r}, unrecorded: "
                "restore it with RunState.from_string(durable_agent(agent), text)"
            )
    return given
