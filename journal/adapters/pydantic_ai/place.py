"""Where in a turn an agent's run counts; see `journal.adapters.places`."""

from journal.adapters.places import Place, Places

__all__ = ["Place", "current_place", "nested_at", "place_here", "place_of", "running_at"]

_places = Places("pydantic_ai", Place)
place_of, place_here, current_place = _places.of, _places.here, _places.current
running_at, nested_at = _places.running_at, _places.nested_at
