"""Publishing deltas: fenced like the door, in the writer's transactions."""

from collections.abc import Sequence

from journal.core.ports import Claim, Delta
from journal.worlds.sqlite.door import Door
from journal.worlds.sqlite.statements import SQL


class Publishing:
    """The member of a transaction that a publication is."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def publish(self, offer: tuple[Claim, Sequence[Delta]]) -> bool:
        """Store the deltas at (head, last sub + 1), if the claim holds."""
        claim, deltas = offer
        door = self._door
        known = door.look(claim.run)
        if known is None or known.token is None or (known.epoch, known.token) != (claim.epoch, claim.token):
            return False
        rid, head = known.rid, known.head
        execute = door.connection.execute
        last = execute(SQL["last_delta"], (rid, head)).fetchone()
        sub = last[0] if last else 0
        door.connection.executemany(
            SQL["add_delta"],
            [
                (rid, head, nth, door.now, delta.call, delta.number, delta.data)
                for nth, delta in enumerate(deltas, sub + 1)
            ],
        )
        door.changes.runs.add(claim.run)
        return True
