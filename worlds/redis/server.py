"""What the server is and can lose: looked at when a world is opened.

A capability is declared only if the server's own configuration says so; where that cannot be asked, it is not.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from journal.core.errors import WorldError, WorldReadOnly, WorldUnknown
from journal.worlds.redis.address import Address
from journal.worlds.redis.connection import Greeting, Part
from journal.worlds.redis.keys import meta_key
from journal.worlds.redis.refusals import ReplyError, checked
from journal.worlds.versions import check_compatible

FORMAT = 1
"""How the store lies in its keys. The first to write a newer one notes beside it, as `compatible_from`, the oldest
format whose code may go on."""
_ALWAYS = frozenset({"multi_process", "multi_host", "retention", "stream.deltas"})
_CONFIG = ("appendonly", "appendfsync", "maxmemory", "maxmemory-policy")


class Findings(msgspec.Struct, frozen=True):
    """What a world may declare, and why not more."""

    capabilities: frozenset[str]
    notes: tuple[str, ...]


async def examine(greeting: Greeting, address: Address) -> Findings:
    """Look at the server. Raises a `WorldError` for one that cannot be used."""
    info = _pairs(checked(await greeting.ask("INFO"), address.shown))
    _check_version(info, address)
    if info.get("cluster_enabled") == "1" and not address.is_cluster:
        raise WorldUnknown(
            "this server is part of a cluster: write redis+cluster:// instead", world=address.shown
        )
    reply = await greeting.ask("CONFIG", "GET", *_CONFIG)
    config: dict[str, str] | None = None
    if not isinstance(reply, ReplyError):
        words = [word.decode() for word in reply]
        config = dict(zip(words[::2], words[1::2], strict=True))
    policy = (config or {}).get("maxmemory-policy", info.get("maxmemory_policy", "noeviction"))
    limit = (config or {}).get("maxmemory", info.get("maxmemory", "0"))
    if limit != "0" and policy != "noeviction":
        raise WorldError(
            f"it evicts keys when its memory is full (maxmemory-policy {policy}), which would tear holes into logs: "
            "set maxmemory-policy to noeviction",
            world=address.shown,
        )
    if info.get("role") != "master":
        raise WorldReadOnly("this is a replica: give the URL of the primary", world=address.shown)
    return _judge(config, info, address)


def _judge(config: dict[str, str] | None, info: dict[str, str], address: Address) -> Findings:
    capabilities, notes = set(_ALWAYS), []
    if config is None:
        notes.append(
            "not log.persistent: the server does not say how it keeps its data (CONFIG GET is refused)"
        )
    elif config.get("appendonly") != "yes":
        notes.append("not log.persistent: appendonly is off, so a restart loses what was acknowledged")
    elif config.get("appendfsync") != "always":
        notes.append(
            f"not log.persistent: appendfsync is {config.get('appendfsync')}, so a crash of its host may lose "
            "the last acknowledged second"
        )
    else:
        capabilities.add("log.persistent")
    has_replicas = info.get("connected_slaves", "0") != "0"
    if "log.persistent" not in capabilities:
        notes.append("not log.survives_failover: it is not log.persistent")
    elif has_replicas and not address.wait:
        notes.append(
            "not log.survives_failover: replicas get batches after they were acknowledged; give wait=1 in the URL"
        )
    else:
        capabilities.add("log.survives_failover")
    return Findings(frozenset(capabilities), tuple(notes))


def _check_version(info: dict[str, str], address: Address) -> None:
    for name, field, least in (("Valkey", "valkey_version", (7, 2)), ("Redis", "redis_version", (7, 0))):
        if found := info.get(field):
            numbers = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
            if numbers < least:
                needed = ".".join(map(str, least))
                raise WorldUnknown(
                    f"it is {name} {found}, and functions as we need them came with {name} {needed}: upgrade it",
                    world=address.shown,
                )
            return


def common(findings: Mapping[str, Findings]) -> Findings:
    """What all nodes of a cluster allow; a note says of which node it is."""
    capabilities = frozenset.intersection(*(found.capabilities for found in findings.values()))
    notes = [f"{node}: {note}" for node, found in findings.items() for note in found.notes]
    return Findings(capabilities, tuple(notes))


async def agree_on_layout(ask: Callable[[tuple[Part, ...]], Awaitable[Any]], address: Address) -> None:
    """What the store was laid out for must be what we were told; the first to open it decides."""
    key = meta_key(address.prefix)
    shown = address.shown
    await ask(("HSETNX", key, "partitions", address.partitions))
    await ask(("HSETNX", key, "format", FORMAT))
    partitions, found, compatible = await ask(("HMGET", key, "partitions", "format", "compatible_from"))
    check_compatible(found=int(found), compatible=int(compatible or found), known=FORMAT, world=shown)
    if int(partitions) != address.partitions:
        raise WorldUnknown(
            f"the store under prefix {address.prefix!r} has {int(partitions)} partitions for ever, and the URL says "
            f"{address.partitions}: write partitions={int(partitions)}",
            world=shown,
        )


def _pairs(text: Any) -> dict[str, str]:
    lines = text.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)
