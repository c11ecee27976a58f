"""What a server truly offers: durability is a matter of how it is set up, so it is asked."""

from typing import Any

import psycopg

from journal.core.errors import WorldReadOnly
from journal.worlds.postgres.address import Address

_ALWAYS = frozenset({"multi_process", "multi_host", "retention", "stream.deltas"})


async def find_capabilities(connection: psycopg.AsyncConnection[Any], address: Address) -> frozenset[str]:
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
    found = set(_ALWAYS)
    if fsync == "on" and commit != "off":
        found.add("log.persistent")
        is_waited_for = bool(synchronous) and commit in ("on", "remote_write", "remote_apply")
        if is_waited_for or not (senders or slots):
            found.add("log.survives_failover")
    return frozenset(found)
