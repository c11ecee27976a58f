"""What a server truly offers: durability is a matter of how it is set up, so it is asked."""

from typing import Any

import msgspec
import psycopg

from journal.core.errors import WorldReadOnly
from journal.worlds.postgres.address import Address

_ALWAYS = frozenset({"multi_process", "multi_host", "retention", "stream.deltas"})


class Findings(msgspec.Struct, frozen=True):
    """What a world may declare, and why not more."""

    capabilities: frozenset[str]
    notes: tuple[str, ...]


async def find_capabilities(connection: psycopg.AsyncConnection[Any], address: Address) -> Findings:
    """Raises `WorldReadOnly` for a standby.

    `log.persistent` needs fsync and a commit that waits for it; `log.survives_failover` that no standby could be
    promoted without what was acknowledged: there is none, or commits wait for it.
    """
    cursor = await connection.execute(
        "select current_setting('fsync'), current_setting('synchronous_commit'), "
        "current_setting('synchronous_standby_names'), pg_is_in_recovery(), "
        "(select count(*) from pg_catalog.pg_stat_replication), "
        "(select count(*) from pg_catalog.pg_replication_slots where slot_type = 'physical')"
    )
    row = await cursor.fetchone()
    assert row is not None, "a select without a from has a row"
    fsync, commit, synchronous, is_standby, senders, slots = row
    if is_standby:
        raise WorldReadOnly("this server is a standby: connect to the primary", world=address.url)
    found, notes = set(_ALWAYS), []
    if fsync != "on":
        notes.append(
            "not log.persistent: fsync is off, so a crash of its host may damage everything: set fsync=on"
        )
    elif commit == "off":
        notes.append(
            "not log.persistent: synchronous_commit is off, so a crash may lose what was just acknowledged: set it to "
            "on, for the server or for this role"
        )
    else:
        found.add("log.persistent")
    is_waited_for = bool(synchronous) and commit in ("on", "remote_write", "remote_apply")
    if "log.persistent" not in found:
        notes.append("not log.survives_failover: it is not log.persistent")
    elif is_waited_for or not (senders or slots):
        found.add("log.survives_failover")
    elif synchronous:
        notes.append(
            f"not log.survives_failover: synchronous_commit is {commit}, so commits do not wait for the standby: set "
            "it to on, remote_write or remote_apply"
        )
    else:
        notes.append(
            "not log.survives_failover: its standbys (or the replication slots that stand for them) get commits after "
            "they were acknowledged: name them in synchronous_standby_names"
        )
    return Findings(frozenset(found), tuple(notes))
