"""Wrappers that stand for a network in bad shape."""

import asyncio

from journal.core.ports import Answer, Batch, Unknown, World


class DelayingWorld:
    """COMMIT was sent and the connection cut: the author hears nothing, and the old backend commits later."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._cut: list[Batch] = []
        self.is_cut = False

    def append(self, batch: Batch) -> asyncio.Future[Answer]:
        """Offer it; while the connection is cut, nobody answers."""
        if self.is_cut:
            self._cut.append(batch)
            future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            future.set_result(Unknown("the connection was cut"))
            return future
        return asyncio.ensure_future(self._world.append(batch))

    async def land(self) -> list[Answer]:
        """The old backends get to their commits at last."""
        waiting, self._cut = self._cut, []
        return [await self._world.append(batch) for batch in waiting]
