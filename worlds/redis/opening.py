"""From a URL to a wire that is ready, and what its servers allow to be declared."""

import asyncio
import socket
from typing import Any

from journal.core.errors import WorldUnavailable
from journal.worlds.redis.address import Address
from journal.worlds.redis.cluster import ClusterLine
from journal.worlds.redis.connection import Part, connect
from journal.worlds.redis.line import AGAIN_SECONDS, Line
from journal.worlds.redis.node import at_node
from journal.worlds.redis.refusals import checked
from journal.worlds.redis.server import Findings, agree_on_layout, common, examine
from journal.worlds.redis.slots import Node
from journal.worlds.redis.wire import Wire

NAME_SECONDS = 0.5
"""After so long a name that could not be found is looked up once more."""


async def open_wire(address: Address, *, patience_seconds: float) -> tuple[Wire, Findings]:
    """Connect for the first time: what fails now is raised."""
    if address.is_cluster:
        return await _open_cluster(address, patience_seconds)
    return await _open_server(address, patience_seconds)


async def _open_server(address: Address, patience_seconds: float) -> tuple[Wire, Findings]:
    line = Line(address, patience_seconds=patience_seconds)
    greeting = await line.open()

    async def ask(parts: tuple[Part, ...]) -> Any:
        return checked(await greeting.ask(*parts), address.shown)

    try:
        findings = await examine(greeting, address)
        await agree_on_layout(ask, address)
        line.use(greeting)
    except OSError as error:
        raise WorldUnavailable(f"the connection was lost: {error}", world=address.shown) from error
    except BaseException:
        if greeting.connection is not None:
            greeting.connection.abort()
        raise
    return line, findings


async def _open_cluster(address: Address, patience_seconds: float) -> tuple[Wire, Findings]:
    wire = ClusterLine(address, patience_seconds=patience_seconds)
    tries = 0
    away = "none of the nodes in the URL answers"
    try:
        async with asyncio.timeout(patience_seconds):
            while True:
                try:
                    if not await wire.refresh():
                        await _check_names(address, tries)
                        tries += 1
                    findings = {
                        f"{node[0]}:{node[1]}": await _examine(address, node) for node in wire.primaries
                    }
                    if findings:
                        break
                except OSError as error:
                    # Of a node that is away, the others may name a successor soon.
                    away = f"a node is away: {error}"
                await asyncio.sleep(AGAIN_SECONDS)
            await agree_on_layout(wire.call, address)
    except TimeoutError:
        await wire.aclose()
        raise WorldUnavailable(
            f"it does not answer ({away}): check that it runs, and the URL", world=address.shown
        ) from None
    except BaseException:
        await wire.aclose()
        raise
    return wire, common(findings)


async def _check_names(address: Address, tries: int) -> None:
    """Raise `WorldUnavailable` if no node in the URL is known by its name; once that is forgiven."""
    loop, reason = asyncio.get_running_loop(), ""
    for host, port in address.nodes:
        try:
            await loop.getaddrinfo(host, port)
        except socket.gaierror as error:
            reason = f"{host}: {error.strerror}"
        else:
            return
    if tries:
        raise WorldUnavailable(
            f"there is no such host ({reason}): check the names in the URL", world=address.shown
        )
    await asyncio.sleep(NAME_SECONDS)


async def _examine(address: Address, node: Node) -> Findings:
    greeting = await connect(at_node(address, node))
    assert greeting.connection is not None, "it has just been made"
    try:
        return await examine(greeting, address)
    finally:
        greeting.connection.close()
