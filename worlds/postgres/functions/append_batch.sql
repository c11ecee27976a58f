-- The door for one batch, under its run's lock: gone or absent, batch or key known, claim, batch before, head, write.
-- Restates journal.worlds.door; lookups are statements of their own, behind the lock. `epoch` is given by holders,
-- `key` by those outside. With `agent` the first record is the one that creates the run. Answers, by number:
-- 1 committed, 2 duplicate, 3 key conflict, 4 stale claim, 5 log regressed, 6 head moved, 7 no run, 8 closed, 9 gone:
-- swept, moved or being built (`whereabouts` tells which; workers of the version before take it for swept).
create or replace function {schema}.append_batch(
    in_namespace text,
    now double precision,
    lock bigint,
    in_run text,
    id bytea,
    in_epoch bigint,
    in_token bytea,
    prev bytea,
    in_key bytea,
    in_digest bytea,
    at_head bigint,
    in_agent text,
    in_min_reader bigint,
    event text,
    in_turn bytea,
    in_status text,
    in_priority bigint,
    -- When it is due (submit, park); how long it is not (release).
    in_due double precision,
    r_type text[],
    r_turn bytea[],
    r_key bytea[],
    r_body bytea[],
    r_checksum bigint[],
    r_key_id bytea[],
    l_id bytea[],
    l_checksum bigint[],
    l_data bytea[],
    out answer smallint,
    out run_id bigint,
    out first bigint,
    out last bigint,
    out landed double precision,
    -- Whether the author's claim holds (duplicate).
    out holds boolean,
    -- Epoch of the run's last claim.
    out current bigint,
    -- Whether the entry may have become claimable.
    out has_work boolean
) language plpgsql as $$
declare
    is_held constant boolean := in_epoch is not null;
    from_record integer := case when in_agent is null then 1 else 2 end;
    closed_at double precision;
    gone_until double precision;
    is_emptied boolean;
    is_shut boolean;
    entry {schema}.queue;
    head bigint := 0;
    head_batch bytea;
    known record;
    behind bigint := 0;
begin
    has_work := false;
    select r.rid, r.closed_at, r.gone_until, r.is_emptied, r.moved_to is not null or r.building is not null
    into run_id, closed_at, gone_until, is_emptied, is_shut
    from {schema}.runs r where r.namespace = in_namespace and r.run = in_run;
    if gone_until is not null then
        if gone_until > now or not is_emptied then
            answer := 9;
            return;
        end if;
        if in_agent is not null and not is_held then
            delete from {schema}.keys k where k.rid = run_id;
            delete from {schema}.runs r where r.rid = run_id;
        end if;
        run_id := null;
    elsif is_shut then
        answer := 9;
        return;
    end if;

    if run_id is null then
        if in_agent is null or is_held then
            answer := 7;
            return;
        end if;
        insert into {schema}.runs (namespace, run, agent, created) values (in_namespace, in_run, in_agent, now)
        returning rid into run_id;
        insert into {schema}.queue (rid, namespace, agent, lock, min_reader, status)
        values (run_id, in_namespace, in_agent, lock, in_min_reader, 'pending');
        from_record := 1;
    else
        select r.seq, r.batch into head, head_batch
        from {schema}.records r where r.rid = run_id order by r.seq desc limit 1;
        if is_held then
            select q.* into entry
            from {schema}.queue q where q.rid = run_id;
            current := entry.epoch;
            holds := coalesce(entry.token = in_token and entry.epoch = in_epoch, false);
            if entry.last_batch = id then
                answer := 2; first := entry.last_head + 1; last := entry.last_head; landed := entry.last_time;
                return;
            end if;
            -- A batch lands behind the one before it: with that at the very end of the log, it has not landed.
            if prev is null or prev is distinct from head_batch then
                if prev is not null and prev = entry.last_batch then
                    behind := entry.last_head;
                elsif prev is not null then
                    select r.seq into behind from {schema}.records r
                    where r.rid = run_id and r.batch = prev order by r.seq desc limit 1;
                end if;
                select r.seq, r.time into known from {schema}.records r
                where r.rid = run_id and r.batch = id and r.seq > coalesce(behind, 0) order by r.seq desc limit 1;
                if found then
                    answer := 2; last := known.seq; landed := known.time;
                    first := 1 + coalesce((
                        select r.seq from {schema}.records r
                        where r.rid = run_id and r.seq < known.seq and r.batch <> id order by r.seq desc limit 1
                    ), 0);
                    return;
                end if;
            end if;
            if not holds then
                answer := 4;
                return;
            end if;
            if behind is null then
                answer := 5; last := head;
                return;
            end if;
        else
            select k.first, k.last, k.time, k.digest into known
            from {schema}.keys k where k.rid = run_id and k.key = in_key;
            if found then
                answer := case when known.digest = in_digest then 2 else 3 end;
                first := known.first; last := known.last; landed := known.time; holds := true;
                return;
            end if;
            if closed_at is not null and event is distinct from 'move' then
                answer := 8;
                return;
            end if;
        end if;
        if at_head is not null and at_head <> head then
            answer := 6; last := head;
            return;
        end if;
    end if;

    answer := 1; first := head + 1; last := head + cardinality(r_type) - from_record + 1; landed := now;
    insert into {schema}.records (rid, seq, time, type, turn, key, epoch, batch, body, checksum, key_id)
    select
        run_id, head + r.nth - from_record + 1, now, r.type, r.turn, r.key, coalesce(in_epoch, 0), id, r.body, r.checksum,
        r.key_id
    from unnest(r_type, r_turn, r_key, r_body, r_checksum, r_key_id)
        with ordinality r (type, turn, key, body, checksum, key_id, nth)
    where r.nth >= from_record;
    if not is_held then
        insert into {schema}.keys (rid, key, digest, first, last, time)
        values (run_id, in_key, in_digest, append_batch.first, append_batch.last, now);
    elsif last < first then
        -- The entry stands in for a record that carries the id.
        update {schema}.queue q set last_batch = id, last_head = head, last_time = now where q.rid = run_id;
    end if;
    if cardinality(l_id) > 0 then
        -- Named by its digest, so the same blob twice is the same blob.
        insert into {schema}.blobs (rid, id, checksum, data)
        select run_id, b.id, b.checksum, b.data from unnest(l_id, l_checksum, l_data) b (id, checksum, data)
        on conflict do nothing;
    end if;
    if event is not null and not (event = 'progress' and entry.takeovers = 0) then
        has_work := {schema}.change_entry(
            run_id, now, event, in_turn, in_status, in_priority, in_due,
            coalesce((
                select head + r.nth - from_record + 1 from unnest(r_type, r_turn) with ordinality r (type, turn, nth)
                where r.nth >= from_record and r.turn = in_turn
                    and r.type = case event when 'submit' then 'turn.submitted' else 'turn.finished' end
                order by r.nth limit 1
            ), last)
        );
    end if;
end $$;
