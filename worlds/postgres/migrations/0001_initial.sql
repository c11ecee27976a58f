-- The first schema. Shipped: never edited; what comes next goes into 0002.
-- {schema} stands for the world's schema: nothing depends on the search path. What users name and may hold a NUL byte
-- (turns, keys, calls) is bytea, for text cannot hold one; bodies are bytea since jsonb would rewrite them.

create table {schema}.runs (
    -- A place in listings; a swept run's rid never comes back.
    rid bigint generated always as identity primary key,
    namespace text collate "C" not null,
    run text collate "C" not null,
    agent text collate "C" not null,
    created double precision not null,
    turns bigint not null default 0,
    closed_at double precision,
    -- A tombstone: until when it holds the id, whether its records are gone, and what they hashed to.
    gone_until double precision,
    is_emptied boolean not null default false,
    digest bytea,
    unique (namespace, run)
) with (fillfactor = 90);

create index runs_by_age on {schema}.runs (namespace, rid) where gone_until is null;
create index runs_by_agent on {schema}.runs (namespace, agent, rid) where gone_until is null;
create index runs_closed on {schema}.runs (namespace, closed_at) where closed_at is not null and gone_until is null;
create index runs_gone on {schema}.runs (namespace, gone_until) where gone_until is not null;

-- One entry a run, until the run is swept: claims and renewals touch these rows alone. They change at turn boundaries
-- and claims, never per record; renewals change them every ten seconds, so their dead versions are cleared early.
create table {schema}.queue (
    rid bigint primary key,
    namespace text collate "C" not null,
    agent text collate "C" not null,
    -- Key of the run's advisory lock.
    lock bigint not null,
    priority bigint not null default 0,
    due_at double precision,
    lease_until double precision,
    epoch bigint not null default 0,
    token bytea,
    woken boolean not null default false,
    takeovers bigint not null default 0,
    draining boolean not null default false,
    min_reader bigint not null default 1,
    status text collate "C" not null,
    -- The holder's last batch that brought no record, for lack of a record that carries its id.
    last_batch bytea,
    last_head bigint,
    last_time double precision
) with (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

create index queue_due on {schema}.queue (namespace, agent, priority, due_at) where token is null and due_at is not null;
create index queue_held on {schema}.queue (namespace, lease_until) where token is not null;
create index queue_by_status on {schema}.queue (namespace, status, rid);

create table {schema}.records (
    rid bigint not null,
    seq bigint not null,
    time double precision not null,
    type text collate "C" not null,
    turn bytea,
    key bytea,
    epoch bigint not null,
    batch bytea not null,
    body bytea not null,
    checksum bigint not null,
    key_id bytea,
    primary key (rid, seq)
);

-- Bodies are kept as they are: compressing them costs every append.
alter table {schema}.records alter body set storage external;

create function {schema}.refuse_change() returns trigger language plpgsql as $$
begin
    raise exception 'records are append-only' using errcode = 'integrity_constraint_violation';
end $$;

create trigger records_never_change before update on {schema}.records
for each row execute function {schema}.refuse_change();

create trigger records_never_vanish before truncate on {schema}.records
for each statement execute function {schema}.refuse_change();

-- A sweep is the one way out, and it needs the tombstone first.
create function {schema}.refuse_delete() returns trigger language plpgsql as $$
begin
    if exists (select from {schema}.runs where rid = old.rid and gone_until is not null) then
        return old;
    end if;
    raise exception 'records are append-only' using errcode = 'integrity_constraint_violation';
end $$;

create trigger records_never_go before delete on {schema}.records
for each row execute function {schema}.refuse_delete();

-- What was submitted, and how it ended: written at turn boundaries.
create table {schema}.turns (
    rid bigint not null,
    turn bytea not null,
    submitted bigint not null,
    status text collate "C",
    finished bigint,
    ended double precision,
    primary key (rid, turn)
);

create index turns_unfinished on {schema}.turns (rid, submitted) where finished is null;

-- Idempotency keys of authors from outside, and what they got.
create table {schema}.keys (
    rid bigint not null,
    key bytea not null,
    digest bytea not null,
    first bigint not null,
    last bigint not null,
    time double precision not null,
    primary key (rid, key)
);

create table {schema}.blobs (
    rid bigint not null,
    id bytea not null,
    checksum bigint not null,
    data bytea not null,
    primary key (rid, id)
);

alter table {schema}.blobs alter data set storage external;

-- Pieces of output of calls that are still running; they leave an hour after their turn.
create table {schema}.deltas (
    rid bigint not null,
    seq bigint not null,
    sub bigint not null,
    time double precision not null,
    call bytea not null,
    number bigint not null,
    data bytea not null,
    primary key (rid, seq, sub)
);
