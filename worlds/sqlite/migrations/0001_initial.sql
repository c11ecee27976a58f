-- The first schema. Shipped: never edited; what comes next goes into 0002.

-- A run and, in the same row, its one queue entry: the door and a claim look at a single row.
-- This row changes at turn boundaries and claims, never per record.
-- autoincrement: a rid is a place in listings, and a swept run's rid must never come back.
create table runs (
    rid integer primary key autoincrement,
    namespace text not null,
    run text not null,
    agent text not null,
    created real not null,
    turns integer not null default 0,
    status text not null,
    priority integer not null default 0,
    due_at real,
    epoch integer not null default 0,
    token blob,
    woken integer not null default 0,
    takeovers integer not null default 0,
    draining integer not null default 0,
    min_reader integer not null default 1,
    -- The holder's last batch that brought no record, for lack of a record that carries its id.
    last_batch blob,
    last_head integer,
    last_time real,
    -- The lease, on the clock that `boot` names; the holder's byte in the lock file that `holder_file` names.
    lease_until real,
    boot text,
    holder integer,
    holder_file integer,
    closed_at real,
    -- A tombstone: until when it holds the id, whether its records are gone, and what they hashed to.
    gone_until real,
    is_emptied integer not null default 0,
    digest blob
);

create unique index runs_by_name on runs (namespace, run);
create index runs_by_age on runs (namespace, rid) where gone_until is null;
create index runs_by_status on runs (namespace, status, rid) where gone_until is null;
create index runs_by_agent on runs (namespace, agent, rid) where gone_until is null;
create index runs_due on runs (namespace, agent, priority, due_at) where token is null and due_at is not null;
create index runs_held on runs (namespace, boot, lease_until) where token is not null;
create index runs_by_holder on runs (holder, holder_file) where token is not null;
create index runs_closed on runs (namespace, closed_at) where closed_at is not null and gone_until is null;
create index runs_gone on runs (namespace, gone_until) where gone_until is not null;

-- The log. Rows go in at the end, whatever run they are of, so that a group of many runs fills few pages; the index
-- gives each run its order. Clustered by run instead, every run of a group would rewrite a page of its own.
create table records (
    rid integer not null,
    seq integer not null,
    time real not null,
    type text not null,
    turn text,
    key text,
    epoch integer not null,
    batch blob not null,
    body blob not null,
    checksum integer not null,
    key_id text
);

create unique index records_by_seq on records (rid, seq);

create trigger records_never_change before update on records
begin
    select raise(abort, 'records are append-only');
end;

-- A sweep is the one way out, and it needs the tombstone first.
create trigger records_never_go before delete on records
when (select gone_until from runs where rid = old.rid) is null
begin
    select raise(abort, 'records are append-only');
end;

-- What was submitted, and how it ended: written at turn boundaries.
create table turns (
    rid integer not null,
    turn text not null,
    submitted integer not null,
    status text,
    finished integer,
    ended real,
    primary key (rid, turn)
) without rowid;

create index turns_unfinished on turns (rid, submitted) where finished is null;

-- Idempotency keys of authors from outside, and what they got.
create table keys (
    rid integer not null,
    key text not null,
    digest blob not null,
    first integer not null,
    last integer not null,
    time real not null,
    primary key (rid, key)
) without rowid;

create table blobs (
    rid integer not null,
    id text not null,
    checksum integer not null,
    data blob not null,
    unique (rid, id)
);

-- Pieces of output of calls that are still running; they leave an hour after their turn.
create table deltas (
    rid integer not null,
    seq integer not null,
    sub integer not null,
    time real not null,
    call text not null,
    number integer not null,
    data blob not null,
    primary key (rid, seq, sub)
) without rowid;
