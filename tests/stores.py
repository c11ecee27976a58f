"""Stores of a test's own, by kind: their servers may be killed, their connections cut."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from journal.testing import servers
from journal.testing.cluster import Cluster, start_cluster
from journal.testing.proxy import Proxy
from journal.testing.servers import Server

KINDS = ("postgres", "redis", "cluster")


@dataclass
class Store:
    """Some servers, and what stands between them and the worlds that open `url`: a proxy each."""

    url: str
    servers: list[Server]
    proxies: list[Proxy]
    cluster: Cluster | None = None

    def cut(self) -> None:
        """Reset every connection."""
        for proxy in self.proxies:
            proxy.cut()

    def heal(self) -> None:
        """Pass everything on again, and cut nothing any more."""
        for proxy in self.proxies:
            proxy.heal()
            proxy.cut_after()

    def restart(self, server: Server) -> None:
        """Kill one of the servers and start it again."""
        server.restart()
        if self.cluster is not None:
            _announce(server, self.proxies[self.servers.index(server)])
            self.cluster.wait_until_ready()


@contextmanager
def start_store(kind: str, postgres_programs: Path) -> Iterator[Store]:
    """A store of that kind, empty."""
    with ExitStack() as stack:
        cluster = None
        if kind == "cluster":
            cluster = stack.enter_context(start_cluster())
            started = cluster.primaries
        elif kind == "redis":
            started = [stack.enter_context(servers.start_valkey())]
        else:
            started = [stack.enter_context(servers.start_postgres(binaries=postgres_programs))]
        proxies = [stack.enter_context(Proxy(server.port)) for server in started]
        way_in = f"127.0.0.1:{proxies[0].port}"
        url = {
            "cluster": f"redis+cluster://{way_in}",
            "redis": f"redis://{way_in}/0",
            "postgres": f"postgresql://postgres@{way_in}/postgres",
        }[kind]
        if cluster is not None:
            for server, proxy in zip(started, proxies, strict=True):
                _announce(server, proxy)
            cluster.wait_until_ready()
        yield Store(url, started, proxies, cluster)


def _announce(server: Server, proxy: Proxy) -> None:
    """Clients that ask the cluster where keys are get told of the proxy."""
    with redis.Redis(port=server.port) as client:
        client.config_set("cluster-announce-port", proxy.port)
