-- The steps of a sweep, each a transaction small enough that appends pass between them.
-- First the tombstone, which alone lets the database delete records; from then on the run is gone to everybody, and a
-- sweep that dies halfway is finished by the next one.

create or replace function {schema}.bury(at double precision, in_rid bigint, seconds double precision)
returns boolean language plpgsql as $$
declare
    log bytea;
begin
    perform pg_advisory_xact_lock(q.lock) from {schema}.queue q where q.rid = in_rid;
    -- The tombstone keeps the id, what the log hashed to, and the keys.
    select sha256(coalesce(string_agg(int8send(r.checksum), '' order by r.seq), '')) into log
    from {schema}.records r where r.rid = in_rid;
    update {schema}.runs r
    -- An address is kept for ever.
    set gone_until = case
            when r.moved_to is not null then 'infinity'
            else coalesce(at, extract(epoch from clock_timestamp())::double precision) + seconds
        end,
        digest = log
    where r.rid = in_rid and r.closed_at is not null and r.gone_until is null;
    if found then
        delete from {schema}.queue q where q.rid = in_rid;
        return true;
    end if;
    return false;
end $$;

-- Deletes some of what is left of the run; true once nothing is.
create or replace function {schema}.empty(in_rid bigint, size integer) returns boolean language plpgsql as $$
begin
    delete from {schema}.records where rid = in_rid
        and seq in (select r.seq from {schema}.records r where r.rid = in_rid order by r.seq limit size);
    if found then return false; end if;
    delete from {schema}.deltas where rid = in_rid and (seq, sub) in (
        select d.seq, d.sub from {schema}.deltas d where d.rid = in_rid order by d.seq, d.sub limit size);
    if found then return false; end if;
    delete from {schema}.blobs where rid = in_rid
        and id in (select b.id from {schema}.blobs b where b.rid = in_rid limit size);
    if found then return false; end if;
    delete from {schema}.turns where rid = in_rid;
    -- Those of a run that was moved are known where it lives now.
    delete from {schema}.keys k using {schema}.runs r where k.rid = in_rid and r.rid = in_rid and r.moved_to is not null;
    update {schema}.runs r set is_emptied = true where r.rid = in_rid;
    return true;
end $$;

-- Gives back the ids of tombstones whose time is over; how many.
create or replace function {schema}.forget(at double precision, in_namespace text, size integer)
returns integer language plpgsql as $$
declare
    over bigint[] := array(
        select r.rid from {schema}.runs r
        where r.namespace = in_namespace and r.gone_until is not null and r.is_emptied
            -- A time that stands still during the statement: only that can be looked up in an index.
            and r.gone_until <= coalesce(at, extract(epoch from statement_timestamp())::double precision)
        limit size for update skip locked
    );
begin
    delete from {schema}.keys k where k.rid = any (over);
    delete from {schema}.runs r where r.rid = any (over);
    return cardinality(over);
end $$;
