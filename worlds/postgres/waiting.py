"""What waits to be sent, and what goes together: parts of groups that failed first, then what was offered, in order."""

from collections import deque

from journal.worlds.postgres.deltas import Publication
from journal.worlds.postgres.offer import Offer

GROUP_ROWS = 1024
GROUP_BYTES = 8 * 1024 * 1024

Member = Offer | Publication


class Waiting:
    """Belongs to one writer."""

    def __init__(self) -> None:
        self._again: deque[list[Member]] = deque()
        self._offered: deque[Member] = deque()

    def __len__(self) -> int:
        """How many groups and members; 0: nobody waits."""
        return len(self._again) + len(self._offered)

    def add(self, member: Member) -> None:
        """It is offered."""
        self._offered.append(member)

    def first(self, members: list[Member]) -> None:
        """These go next, together."""
        self._again.appendleft(members)

    def again(self, members: list[Member]) -> None:
        """These go together, before what was offered."""
        self._again.append(members)

    def halve(self, members: list[Member]) -> None:
        """These go next, in two parts: one of them is at fault."""
        middle = len(members) // 2
        self.first(members[middle:])
        self.first(members[:middle])

    def take(self) -> list[Member]:
        """What goes next: of one kind, within the bounds. Somebody waits."""
        if self._again:
            return self._again.popleft()
        offered = self._offered
        group = [offered.popleft()]
        kind = type(group[0])
        rows, size = group[0].rows, group[0].size
        while offered and type(offered[0]) is kind:
            rows += offered[0].rows
            size += offered[0].size
            if rows > GROUP_ROWS or size > GROUP_BYTES:
                break
            group.append(offered.popleft())
        return group

    def clear(self) -> list[Member]:
        """All who wait, who do so no longer."""
        everybody = [member for members in self._again for member in members] + list(self._offered)
        self._again.clear()
        self._offered.clear()
        return everybody
