"""Where in a turn the SDK's work counts; see `journal.adapters.places`."""

from journal.adapters import places
from journal.engine.scope import Scope


class Place(places.Place):
    """One scope of a turn in which an agent runs."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self.session = Scope(scope.attempt, f"{scope.path}/session" if scope.path else "session", None)
        """Session calls count apart, since the SDK may make them while the model is being asked."""
        self.agent_name = "agent"
        """Whose model call comes next; its wrapper says so when the SDK collects its tools."""
        self.is_server_side = False
        """Whether the provider keeps the conversation."""


_places = places.Places("openai_agents", Place)
place_of, place_here, current_place = _places.of, _places.here, _places.current
running_at, nested_at = _places.running_at, _places.nested_at
