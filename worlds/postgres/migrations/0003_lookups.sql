-- Lookups that read more than they gave, once a store was large: found by tests/postgres/test_plans.py.
-- compatible from: 2

-- With the reader in it, workers of an older version step over what they cannot read, however much of it is due.
drop index {schema}.queue_due;
create index queue_due on {schema}.queue (namespace, agent, priority, min_reader, due_at)
    where token is null and due_at is not null;
drop function if exists {schema}.due_places(text, text[]);

-- With the agent in it, workers step over what others hold.
drop index {schema}.queue_held;
create index queue_held on {schema}.queue (namespace, agent, lease_until) where token is not null;

-- A sweep looks for what an earlier one left, and tombstones stay for a month.
create index runs_unemptied on {schema}.runs (namespace, rid) where gone_until is not null and not is_emptied;

-- The run by its number alone: while the statistics knew of no tombstones, all of them were read for each record.
create or replace function {schema}.refuse_delete() returns trigger language plpgsql as $$
declare
    tombstone double precision;
begin
    select gone_until into tombstone from {schema}.runs where rid = old.rid;
    if tombstone is not null then
        return old;
    end if;
    raise exception 'records are append-only' using errcode = 'integrity_constraint_violation';
end $$;
