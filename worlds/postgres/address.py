"""The URL of a Postgres store: what is ours in it, and what goes on to libpq.

`postgresql://user@host/database?schema=journal&notify=off`: `schema` names where the tables are, `notify=off` goes
without LISTEN and NOTIFY, `pooler=transaction` relies on nothing that outlives a transaction, for proxies that give
every transaction another connection of the server. Everything else is libpq's own.
"""

import re
from urllib.parse import parse_qsl, quote, urlencode

import msgspec
from psycopg import pq

from journal.core.errors import WorldUnknown
from journal.worlds.opening import redact_url
from journal.worlds.url_parameters import check_parameters

DEFAULT_SCHEMA = "journal"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,50}")
_OURS = ("schema", "notify", "pooler")
_SWITCH = {"on": True, "off": False}
_POOLERS = {"none": False, "transaction": True}


class Address(msgspec.Struct, frozen=True):
    """Where a store is."""

    conninfo: str
    """For libpq: a URL without our parameters."""
    schema: str
    is_notified: bool
    """Whether worlds tell each other by NOTIFY; all who share a store must agree."""
    is_pooled: bool
    """Whether the next transaction may be on another connection of the server, with another's session."""
    url: str
    """As printed to people."""


def parse_url(url: str) -> Address:
    """Take `url` apart. Raises `WorldUnknown` for parameters that cannot be meant."""
    printed = redact_url(url)
    base, _, query = url.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    libpqs = [option.keyword.decode() for option in pq.Conninfo.get_defaults()]
    check_parameters(
        dict(pairs), _OURS, world=printed, more=libpqs, others="those of libpq, such as sslmode or host"
    )
    ours = {name: value for name, value in pairs if name in _OURS}
    schema = ours.get("schema", DEFAULT_SCHEMA)
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise WorldUnknown(
            f"schema={schema!r} is no name for a schema here: use a-z, 0-9 and _, up to 51 of them, "
            "not beginning with a digit or pg_",
            world=printed,
        )
    notify = ours.get("notify", "on")
    if notify not in _SWITCH:
        raise WorldUnknown(f"notify={notify!r} says nothing: write notify=on or notify=off", world=printed)
    pooler = ours.get("pooler", "none")
    if pooler not in _POOLERS:
        raise WorldUnknown(
            f"pooler={pooler!r} is not known: write pooler=transaction for a proxy that pools transactions",
            world=printed,
        )
    rest = urlencode([(name, value) for name, value in pairs if name not in ours], quote_via=quote)
    conninfo = f"{base}?{rest}" if rest else base
    return Address(conninfo, schema, _SWITCH[notify], _POOLERS[pooler], printed)
