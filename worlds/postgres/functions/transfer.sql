-- Runs on their way from another store (ports.Transfer).

-- Why the door is shut (its answer 9): where the run was moved to, or an empty text while it is being built; null: it was
-- swept. A function, so that it sees what was committed before the door got its lock.
create or replace function {schema}.whereabouts(in_rid bigint) returns text language plpgsql as $$
begin
    return (
        select coalesce(r.moved_to, case when r.building is not null then '' end)
        from {schema}.runs r where r.rid = in_rid
    );
end $$;

-- Whether a run is a settled copy that nobody has touched, and whose last record is among those.
create or replace function {schema}.is_untouched(
    in_rid bigint, in_epoch bigint, r_seq bigint[], r_time double precision[], r_batch bytea[], r_body bytea[]
) returns boolean language plpgsql as $$
declare
    last {schema}.records;
    place bigint;
begin
    select e.* into last from {schema}.records e where e.rid = in_rid order by e.seq desc limit 1;
    place := array_position(r_seq, last.seq);
    return coalesce(
        r_time[place] = last.time and r_batch[place] = last.batch and r_body[place] = last.body, false
    ) and exists (
        select from {schema}.runs r join {schema}.queue q on q.rid = r.rid
        where r.rid = in_rid and r.closed_at is null and r.moved_to is null
            and q.token is null and q.due_at is null and q.epoch <= in_epoch
            and (q.status = 'blocked' or not exists (
                select from {schema}.turns t where t.rid = in_rid and t.finished is null
            ))
    );
end $$;

-- Creates or extends a run that is being built, or a settled copy that nobody has touched, under its lock. Answers, by number: 1 built, 2 not building, 3 gone,
-- 4 the records leave a gap behind the head.
create or replace function {schema}.build(
    at double precision,
    in_namespace text,
    lock bigint,
    in_run text,
    in_agent text,
    in_created double precision,
    in_min_reader bigint,
    in_status text,
    in_priority bigint,
    in_epoch bigint,
    in_takeovers bigint,
    in_building bytea,
    t_turn bytea[],
    t_submitted bigint[],
    t_status text[],
    t_finished bigint[],
    k_key bytea[],
    k_digest bytea[],
    k_first bigint[],
    k_last bigint[],
    k_time double precision[],
    r_seq bigint[],
    r_time double precision[],
    r_type text[],
    r_turn bytea[],
    r_key bytea[],
    r_epoch bigint[],
    r_batch bytea[],
    r_body bytea[],
    r_checksum bigint[],
    r_key_id bytea[],
    l_id bytea[],
    l_checksum bigint[],
    l_data bytea[],
    out answer smallint,
    out head bigint,
    out moved_to text
) language plpgsql as $$
declare
    now double precision;
    known {schema}.runs;
    run_id bigint;
begin
    perform pg_advisory_xact_lock(lock);
    now := coalesce(at, extract(epoch from clock_timestamp())::double precision);
    select r.* into known from {schema}.runs r where r.namespace = in_namespace and r.run = in_run;
    run_id := known.rid;
    head := 0;
    if known.gone_until is not null then
        if (known.gone_until > now and known.moved_to is null) or not known.is_emptied then
            answer := 3; moved_to := known.moved_to;
            return;
        end if;
        run_id := null;
    elsif run_id is not null and known.building is null
        and not {schema}.is_untouched(run_id, in_epoch, r_seq, r_time, r_batch, r_body)
    then
        answer := 2;
        return;
    elsif run_id is not null then
        head := coalesce((
            select r.seq from {schema}.records r where r.rid = run_id order by r.seq desc limit 1
        ), 0);
    end if;
    if cardinality(r_seq) > 0 and r_seq[1] > head + 1 then
        answer := 4;
        return;
    end if;
    if run_id is null then
        delete from {schema}.keys k where k.rid = known.rid;
        delete from {schema}.runs r where r.rid = known.rid;
        insert into {schema}.runs (namespace, run, agent, created)
        values (in_namespace, in_run, in_agent, in_created)
        returning rid into run_id;
        insert into {schema}.queue (rid, namespace, agent, lock, status)
        values (run_id, in_namespace, in_agent, lock, in_status);
    end if;
    update {schema}.runs r
    set agent = in_agent, created = in_created, turns = cardinality(t_turn), building = in_building
    where r.rid = run_id;
    update {schema}.queue q
    set agent = in_agent, priority = in_priority, epoch = in_epoch, takeovers = in_takeovers,
        min_reader = in_min_reader, status = in_status
    where q.rid = run_id;
    insert into {schema}.records (rid, seq, time, type, turn, key, epoch, batch, body, checksum, key_id)
    select run_id, r.*
    from unnest(r_seq, r_time, r_type, r_turn, r_key, r_epoch, r_batch, r_body, r_checksum, r_key_id)
        r (seq, time, type, turn, key, epoch, batch, body, checksum, key_id)
    where r.seq > head;
    head := greatest(head, r_seq[cardinality(r_seq)]);
    insert into {schema}.blobs (rid, id, checksum, data)
    select run_id, b.id, b.checksum, b.data from unnest(l_id, l_checksum, l_data) b (id, checksum, data)
    on conflict do nothing;
    delete from {schema}.turns t where t.rid = run_id;
    insert into {schema}.turns (rid, turn, submitted, status, finished)
    select run_id, t.* from unnest(t_turn, t_submitted, t_status, t_finished) t (turn, submitted, status, finished);
    delete from {schema}.keys k where k.rid = run_id;
    insert into {schema}.keys (rid, key, digest, first, last, time)
    select run_id, k.* from unnest(k_key, k_digest, k_first, k_last, k_time) k (key, digest, first, last, time);
    answer := 1;
end $$;

-- Ends the building, if it stands where the caller saw it: with that image, at that head.
create or replace function {schema}.settle(
    lock bigint,
    in_rid bigint,
    in_building bytea,
    in_head bigint,
    in_status text,
    in_due double precision,
    in_closed double precision
) returns boolean language plpgsql as $$
begin
    perform pg_advisory_xact_lock(lock);
    update {schema}.runs r set building = null, closed_at = in_closed
    where r.rid = in_rid and r.building = in_building and in_head = coalesce((
        select e.seq from {schema}.records e where e.rid = in_rid order by e.seq desc limit 1
    ), 0);
    if not found then
        return false;
    end if;
    -- `running`: by a holder that is no more, whose lease is over.
    update {schema}.queue q
    set status = in_status, due_at = in_due,
        token = case when in_status = 'running' then '\x00'::bytea end,
        lease_until = case when in_status = 'running' then 0 end
    where q.rid = in_rid;
    return true;
end $$;
