set check_function_bodies = off;
CREATE SCHEMA dumped_store;

CREATE FUNCTION dumped_store.append_batch(in_namespace text, now double precision, lock bigint, in_run text, id bytea, in_epoch bigint, in_token bytea, prev bytea, in_key bytea, in_digest bytea, at_head bigint, in_agent text, in_min_reader bigint, event text, in_turn bytea, in_status text, in_priority bigint, in_due double precision, r_type text[], r_turn bytea[], r_key bytea[], r_body bytea[], r_checksum bigint[], r_key_id bytea[], l_id bytea[], l_checksum bigint[], l_data bytea[], OUT answer smallint, OUT run_id bigint, OUT first bigint, OUT last bigint, OUT landed double precision, OUT holds boolean, OUT current bigint, OUT has_work boolean) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    is_held constant boolean := in_epoch is not null;
    from_record integer := case when in_agent is null then 1 else 2 end;
    closed_at double precision;
    gone_until double precision;
    is_emptied boolean;
    is_shut boolean;
    entry "dumped_store".queue;
    head bigint := 0;
    head_batch bytea;
    known record;
    behind bigint := 0;
begin
    has_work := false;
    select r.rid, r.closed_at, r.gone_until, r.is_emptied, r.moved_to is not null or r.building is not null
    into run_id, closed_at, gone_until, is_emptied, is_shut
    from "dumped_store".runs r where r.namespace = in_namespace and r.run = in_run;
    if gone_until is not null then
        if gone_until > now or not is_emptied then
            answer := 9;
            return;
        end if;
        if in_agent is not null and not is_held then
            delete from "dumped_store".keys k where k.rid = run_id;
            delete from "dumped_store".runs r where r.rid = run_id;
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
        insert into "dumped_store".runs (namespace, run, agent, created) values (in_namespace, in_run, in_agent, now)
        returning rid into run_id;
        insert into "dumped_store".queue (rid, namespace, agent, lock, min_reader, status)
        values (run_id, in_namespace, in_agent, lock, in_min_reader, 'pending');
        from_record := 1;
    else
        select r.seq, r.batch into head, head_batch
        from "dumped_store".records r where r.rid = run_id order by r.seq desc limit 1;
        if is_held then
            select q.* into entry
            from "dumped_store".queue q where q.rid = run_id;
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
                    select r.seq into behind from "dumped_store".records r
                    where r.rid = run_id and r.batch = prev order by r.seq desc limit 1;
                end if;
                select r.seq, r.time into known from "dumped_store".records r
                where r.rid = run_id and r.batch = id and r.seq > coalesce(behind, 0) order by r.seq desc limit 1;
                if found then
                    answer := 2; last := known.seq; landed := known.time;
                    first := 1 + coalesce((
                        select r.seq from "dumped_store".records r
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
            from "dumped_store".keys k where k.rid = run_id and k.key = in_key;
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
    insert into "dumped_store".records (rid, seq, time, type, turn, key, epoch, batch, body, checksum, key_id)
    select
        run_id, head + r.nth - from_record + 1, now, r.type, r.turn, r.key, coalesce(in_epoch, 0), id, r.body, r.checksum,
        r.key_id
    from unnest(r_type, r_turn, r_key, r_body, r_checksum, r_key_id)
        with ordinality r (type, turn, key, body, checksum, key_id, nth)
    where r.nth >= from_record;
    if not is_held then
        insert into "dumped_store".keys (rid, key, digest, first, last, time)
        values (run_id, in_key, in_digest, append_batch.first, append_batch.last, now);
    elsif last < first then
        -- The entry stands in for a record that carries the id.
        update "dumped_store".queue q set last_batch = id, last_head = head, last_time = now where q.rid = run_id;
    end if;
    if cardinality(l_id) > 0 then
        -- Named by its digest, so the same blob twice is the same blob.
        insert into "dumped_store".blobs (rid, id, checksum, data)
        select run_id, b.id, b.checksum, b.data from unnest(l_id, l_checksum, l_data) b (id, checksum, data)
        on conflict do nothing;
    end if;
    if event is not null and not (event = 'progress' and entry.takeovers = 0) then
        has_work := "dumped_store".change_entry(
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

CREATE FUNCTION dumped_store.append_batches(at double precision, locks bigint[], q_rid bigint[], q_epoch bigint[], q_token bytea[], q_prev bytea[], q_progress boolean[], qr_batch integer[], qr_nth integer[], qr_rid bigint[], qr_epoch bigint[], qr_id bytea[], qr_type text[], qr_turn bytea[], qr_key bytea[], qr_body bytea[], qr_checksum bigint[], qr_key_id bytea[], namespace text, b_lock bigint[], b_run text[], b_id bytea[], b_epoch bigint[], b_token bytea[], b_prev bytea[], b_key bytea[], b_digest bytea[], b_at_head bigint[], b_agent text[], b_min_reader bigint[], b_event text[], b_turn bytea[], b_status text[], b_priority bigint[], b_due double precision[], b_records integer[], b_blobs integer[], r_type text[], r_turn bytea[], r_key bytea[], r_body bytea[], r_checksum bigint[], r_key_id bytea[], l_id bytea[], l_checksum bigint[], l_data bytea[]) RETURNS TABLE(answer smallint, rid bigint, first bigint, last bigint, landed double precision, holds boolean, current bigint, has_work boolean)
    LANGUAGE plpgsql
    AS $$
declare
    quick record;
    now double precision;
    record_at integer := 1;
    record_to integer;
    blob_at integer := 1;
    blob_to integer;
begin
    perform "dumped_store".lock_runs(locks);
    now := coalesce(at, extract(epoch from clock_timestamp())::double precision);
    if cardinality(q_rid) > 0 then
        quick := "dumped_store".append_records(
            now, '{}', q_rid, q_epoch, q_token, q_prev, q_progress,
            qr_batch, qr_nth, qr_rid, qr_epoch, qr_id, qr_type, qr_turn, qr_key, qr_body, qr_checksum, qr_key_id
        );
        for nth in 1..cardinality(q_rid) loop
            -- 0: not taken. The rest is what the author knows of its batch.
            answer := case when quick.heads[nth] > 0 then 1 else 0 end;
            first := quick.heads[nth] + 1; landed := now; rid := q_rid[nth]; has_work := false;
            return next;
        end loop;
    end if;
    for nth in 1..cardinality(b_id) loop
        record_to := record_at + b_records[nth] - 1;
        blob_to := blob_at + b_blobs[nth] - 1;
        return query select * from "dumped_store".append_batch(
            namespace, now, b_lock[nth], b_run[nth], b_id[nth], b_epoch[nth], b_token[nth], b_prev[nth], b_key[nth],
            b_digest[nth], b_at_head[nth], b_agent[nth], b_min_reader[nth], b_event[nth], b_turn[nth], b_status[nth],
            b_priority[nth], b_due[nth],
            r_type[record_at:record_to], r_turn[record_at:record_to], r_key[record_at:record_to],
            r_body[record_at:record_to], r_checksum[record_at:record_to], r_key_id[record_at:record_to],
            l_id[blob_at:blob_to], l_checksum[blob_at:blob_to], l_data[blob_at:blob_to]
        );
        record_at := record_to + 1;
        blob_at := blob_to + 1;
    end loop;
end $$;

CREATE FUNCTION dumped_store.append_records(at double precision, locks bigint[], b_rid bigint[], b_epoch bigint[], b_token bytea[], b_prev bytea[], b_progress boolean[], r_batch integer[], r_nth integer[], r_rid bigint[], r_epoch bigint[], r_id bytea[], r_type text[], r_turn bytea[], r_key bytea[], r_body bytea[], r_checksum bigint[], r_key_id bytea[], OUT heads bigint[], OUT now double precision) RETURNS record
    LANGUAGE plpgsql
    AS $$
begin
    perform pg_advisory_xact_lock(lock) from unnest(locks) lock;
    now := coalesce(at, extract(epoch from clock_timestamp())::double precision);
    heads := array(
        select coalesce((
            select head.seq
            from "dumped_store".queue q
            cross join lateral (
                select r.seq, r.batch from "dumped_store".records r where r.rid = b.rid order by r.seq desc limit 1
            ) head
            where q.rid = b.rid and q.token = b.token and q.epoch = b.epoch
                and head.batch = b.prev and (not b.progress or q.takeovers = 0)
        ), 0)
        from unnest(b_rid, b_epoch, b_token, b_prev, b_progress)
            with ordinality b (rid, epoch, token, prev, progress, nth)
        order by b.nth
    );
    insert into "dumped_store".records (rid, seq, time, type, turn, key, epoch, batch, body, checksum, key_id)
    select r.rid, heads[r.batch] + r.nth, now, r.type, r.turn, r.key, r.epoch, r.id, r.body, r.checksum, r.key_id
    from unnest(r_batch, r_nth, r_rid, r_epoch, r_id, r_type, r_turn, r_key, r_body, r_checksum, r_key_id)
        r (batch, nth, rid, epoch, id, type, turn, key, body, checksum, key_id)
    where heads[r.batch] > 0;
end $$;

CREATE FUNCTION dumped_store.build(at double precision, in_namespace text, lock bigint, in_run text, in_agent text, in_created double precision, in_min_reader bigint, in_status text, in_priority bigint, in_epoch bigint, in_takeovers bigint, in_building bytea, t_turn bytea[], t_submitted bigint[], t_status text[], t_finished bigint[], k_key bytea[], k_digest bytea[], k_first bigint[], k_last bigint[], k_time double precision[], r_seq bigint[], r_time double precision[], r_type text[], r_turn bytea[], r_key bytea[], r_epoch bigint[], r_batch bytea[], r_body bytea[], r_checksum bigint[], r_key_id bytea[], l_id bytea[], l_checksum bigint[], l_data bytea[], OUT answer smallint, OUT head bigint, OUT moved_to text) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    now double precision;
    known "dumped_store".runs;
    run_id bigint;
begin
    perform pg_advisory_xact_lock(lock);
    now := coalesce(at, extract(epoch from clock_timestamp())::double precision);
    select r.* into known from "dumped_store".runs r where r.namespace = in_namespace and r.run = in_run;
    run_id := known.rid;
    head := 0;
    if known.gone_until is not null then
        if (known.gone_until > now and known.moved_to is null) or not known.is_emptied then
            answer := 3; moved_to := known.moved_to;
            return;
        end if;
        run_id := null;
    elsif run_id is not null and known.building is null
        and not "dumped_store".is_untouched(run_id, in_epoch, r_seq, r_time, r_batch, r_body)
    then
        answer := 2;
        return;
    elsif run_id is not null then
        head := coalesce((
            select r.seq from "dumped_store".records r where r.rid = run_id order by r.seq desc limit 1
        ), 0);
    end if;
    if cardinality(r_seq) > 0 and r_seq[1] > head + 1 then
        answer := 4;
        return;
    end if;
    if run_id is null then
        delete from "dumped_store".keys k where k.rid = known.rid;
        delete from "dumped_store".runs r where r.rid = known.rid;
        insert into "dumped_store".runs (namespace, run, agent, created)
        values (in_namespace, in_run, in_agent, in_created)
        returning rid into run_id;
        insert into "dumped_store".queue (rid, namespace, agent, lock, status)
        values (run_id, in_namespace, in_agent, lock, in_status);
    end if;
    update "dumped_store".runs r
    set agent = in_agent, created = in_created, turns = cardinality(t_turn), building = in_building
    where r.rid = run_id;
    update "dumped_store".queue q
    set agent = in_agent, priority = in_priority, epoch = in_epoch, takeovers = in_takeovers,
        min_reader = in_min_reader, status = in_status
    where q.rid = run_id;
    insert into "dumped_store".records (rid, seq, time, type, turn, key, epoch, batch, body, checksum, key_id)
    select run_id, r.*
    from unnest(r_seq, r_time, r_type, r_turn, r_key, r_epoch, r_batch, r_body, r_checksum, r_key_id)
        r (seq, time, type, turn, key, epoch, batch, body, checksum, key_id)
    where r.seq > head;
    head := greatest(head, r_seq[cardinality(r_seq)]);
    insert into "dumped_store".blobs (rid, id, checksum, data)
    select run_id, b.id, b.checksum, b.data from unnest(l_id, l_checksum, l_data) b (id, checksum, data)
    on conflict do nothing;
    delete from "dumped_store".turns t where t.rid = run_id;
    insert into "dumped_store".turns (rid, turn, submitted, status, finished)
    select run_id, t.* from unnest(t_turn, t_submitted, t_status, t_finished) t (turn, submitted, status, finished);
    delete from "dumped_store".keys k where k.rid = run_id;
    insert into "dumped_store".keys (rid, key, digest, first, last, time)
    select run_id, k.* from unnest(k_key, k_digest, k_first, k_last, k_time) k (key, digest, first, last, time);
    answer := 1;
end $$;

CREATE FUNCTION dumped_store.bury(at double precision, in_rid bigint, seconds double precision) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
    log bytea;
begin
    perform pg_advisory_xact_lock(q.lock) from "dumped_store".queue q where q.rid = in_rid;
    -- The tombstone keeps the id, what the log hashed to, and the keys.
    select sha256(coalesce(string_agg(int8send(r.checksum), '' order by r.seq), '')) into log
    from "dumped_store".records r where r.rid = in_rid;
    update "dumped_store".runs r
    -- An address is kept for ever.
    set gone_until = case
            when r.moved_to is not null then 'infinity'
            else coalesce(at, extract(epoch from clock_timestamp())::double precision) + seconds
        end,
        digest = log
    where r.rid = in_rid and r.closed_at is not null and r.gone_until is null;
    if found then
        delete from "dumped_store".queue q where q.rid = in_rid;
        return true;
    end if;
    return false;
end $$;

CREATE FUNCTION dumped_store.change_entry(run_id bigint, now double precision, event text, in_turn bytea, in_status text, in_priority bigint, in_due double precision, seq bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
    entry "dumped_store".queue;
    unfinished bigint;
begin
    case event
        when 'submit' then
            insert into "dumped_store".turns (rid, turn, submitted) values (run_id, in_turn, seq);
            update "dumped_store".runs r set turns = r.turns + 1 where r.rid = run_id;
        when 'finish' then
            -- The first end counts.
            update "dumped_store".turns t set status = in_status, finished = seq, ended = now
            where t.rid = run_id and t.turn = in_turn and t.finished is null;
        when 'retry' then
            update "dumped_store".turns t set status = null, finished = null, ended = null
            where t.rid = run_id and t.turn = in_turn;
        when 'close', 'move' then
            -- A move says where to, in place of a status.
            update "dumped_store".runs r
            set closed_at = coalesce(r.closed_at, now), moved_to = case event when 'move' then in_status end
            where r.rid = run_id;
            -- Nothing is due, nobody holds it. The epoch stays for those who ask with an old one.
            update "dumped_store".queue q
            set due_at = null, token = null, woken = false, draining = false,
                status = case q.status when 'running' then 'pending' else q.status end
            where q.rid = run_id;
            return false;
        else
            null;
    end case;

    select q.* into entry from "dumped_store".queue q where q.rid = run_id for update;
    select count(*) into unfinished from "dumped_store".turns t where t.rid = run_id and t.finished is null;
    case event
        when 'submit' then
            if unfinished > 1 then
                return false;
            end if;
            entry.status := 'pending';
            if entry.token is null then
                entry.priority := in_priority;
                entry.due_at := coalesce(in_due, now);
            else
                entry.woken := true;
            end if;
        when 'park' then
            entry.due_at := in_due; entry.status := 'parked'; entry.takeovers := 0;
        when 'wake' then
            if entry.token is not null then
                entry.woken := true;
            elsif entry.status = 'blocked' or unfinished = 0 then
                return false;
            else
                -- Never later than it was: a run that is signalled often must not lose its place in the queue.
                entry.due_at := least(entry.due_at, now);
            end if;
        when 'progress' then
            entry.takeovers := 0;
        when 'finish' then
            entry.takeovers := 0;
            entry.due_at := case when unfinished > 0 or entry.woken then now end;
            entry.status := case when unfinished > 0 then 'pending' else in_status end;
        when 'block' then
            entry.due_at := null; entry.status := 'blocked';
        when 'release' then
            if unfinished = 0 then
                entry.due_at := null;
            else
                entry.due_at := now + in_due; entry.status := 'pending';
            end if;
        when 'drain' then
            entry.draining := true;
        when 'retry' then
            entry.due_at := now; entry.takeovers := 0; entry.status := 'pending';
    end case;
    if event in ('park', 'finish', 'block', 'release') then
        -- Nobody holds it any more. The epoch stays: the next claim counts on from it.
        entry.token := null; entry.woken := false; entry.draining := false;
    end if;
    update "dumped_store".queue q
    set priority = entry.priority, due_at = entry.due_at, token = entry.token, woken = entry.woken,
        takeovers = entry.takeovers, draining = entry.draining, status = entry.status
    where q.rid = run_id;
    return entry.token is null and entry.due_at is not null;
end $$;

CREATE FUNCTION dumped_store.claim(at double precision, in_namespace text, tokens bytea[], lease_seconds double precision, agents text[], reads bigint, in_run text) RETURNS TABLE(run text, rid bigint, epoch bigint, token bytea, agent text, turn bytea, submitted bigint, head bigint, takeovers bigint, taken_over boolean, min_reader bigint, next_seconds double precision)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    now constant double precision := coalesce(at, extract(epoch from clock_timestamp())::double precision);
    wanted constant integer := cardinality(tokens);
    width integer := cardinality(tokens) + 16;
    candidates bigint[];
    candidate bigint;
    taken integer := 0;
    tried bigint[] := '{}';
    is_left boolean := false;
    entry "dumped_store".queue;
begin
    if wanted > 0 then
        loop
            if in_run is not null then
                candidates := array(
                    select q.rid from "dumped_store".runs r join "dumped_store".queue q on q.rid = r.rid
                    where r.namespace = in_namespace and r.run = in_run
                );
            else
                candidates := "dumped_store".claimable(now, in_namespace, agents, reads, width);
            end if;
            foreach candidate in array candidates loop
                if candidate = any (tried) then
                    continue;
                end if;
                if taken = wanted then
                    is_left := true;
                    exit;
                end if;
                tried := tried || candidate;
                select q.* into entry from "dumped_store".queue q
                where q.rid = candidate
                    and case when q.token is null then q.due_at <= now else q.lease_until <= now end
                    and (agents is null or q.agent = any (agents)) and q.min_reader <= reads
                for update skip locked;
                if not found or not pg_try_advisory_xact_lock(entry.lock) then
                    continue;
                end if;
                taken := taken + 1;
                taken_over := entry.token is not null;
                -- Statements of their own: what they see was committed before the lock was got.
                head := (
                    select r.seq from "dumped_store".records r where r.rid = candidate order by r.seq desc limit 1
                );
                turn := null; submitted := 0;
                select t.turn, t.submitted into turn, submitted from "dumped_store".turns t
                where t.rid = candidate and t.finished is null order by t.submitted limit 1;
                update "dumped_store".queue q
                set epoch = q.epoch + 1, token = tokens[taken], woken = false, draining = false,
                    takeovers = q.takeovers + case when q.token is not null and not q.draining then 1 else 0 end,
                    status = case when turn is null then q.status else 'running' end,
                    lease_until = now + lease_seconds
                where q.rid = candidate
                returning q.epoch, q.token, q.agent, q.takeovers, q.min_reader
                into epoch, token, agent, takeovers, min_reader;
                run := (select r.run from "dumped_store".runs r where r.rid = candidate);
                rid := candidate;
                submitted := coalesce(submitted, 0);
                return next;
            end loop;
            exit when taken = wanted or in_run is not null or cardinality(candidates) < width;
            -- Others are taking the same ones: look further.
            width := width * 4;
            exit when width > 10000;
        end loop;
    end if;
    run := null;
    if is_left then
        next_seconds := 0;
    elsif in_run is not null then
        next_seconds := (
            select case when q.token is null then q.due_at else q.lease_until end - now
            from "dumped_store".runs r join "dumped_store".queue q on q.rid = r.rid
            where r.namespace = in_namespace and r.run = in_run
                and (agents is null or q.agent = any (agents)) and q.min_reader <= reads
        );
    else
        next_seconds := "dumped_store".next_due(in_namespace, agents, reads) - now;
    end if;
    return next;
end $$;

CREATE FUNCTION dumped_store.claimable(now double precision, in_namespace text, agents text[], reads bigint, width integer) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
begin
    return array(
        select found.rid
        from (
            select e.rid, e.priority, e.due_at
            from "dumped_store".due_places(in_namespace, agents, reads) place
            cross join lateral (
                select q.rid, q.priority, q.due_at from "dumped_store".queue q
                where q.namespace = in_namespace and q.agent = place.agent and q.priority = place.priority
                    and q.min_reader = place.reader and q.token is null and q.due_at is not null and q.due_at <= now
                order by q.due_at limit width
            ) e
            union all
            select e.rid, e.priority, coalesce(e.due_at, 0)
            from "dumped_store".held_agents(in_namespace, agents) held (agent)
            cross join lateral (
                select q.rid, q.priority, q.due_at from "dumped_store".queue q
                where q.namespace = in_namespace and q.agent = held.agent and q.token is not null
                    and q.lease_until <= now and q.min_reader <= reads
                order by q.lease_until limit width
            ) e
        ) found
        order by found.priority desc, found.due_at, found.rid limit width
    );
end $$;

CREATE FUNCTION dumped_store.due_places(in_namespace text, agents text[], reads bigint) RETURNS TABLE(agent text, priority bigint, reader bigint)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    wanted text[];
    step text := '';
begin
    if agents is not null then
        wanted := agents;
    else
        loop
            select q.agent into step from "dumped_store".queue q
            where q.namespace = in_namespace and q.agent > step and q.token is null and q.due_at is not null
            order by q.agent limit 1;
            exit when not found;
            wanted := wanted || step;
        end loop;
    end if;
    if wanted is null then
        return;
    end if;
    foreach agent in array wanted loop
        priority := 9223372036854775807;
        loop
            select q.priority into priority from "dumped_store".queue q
            where q.namespace = in_namespace and q.agent = due_places.agent and q.priority < due_places.priority
                and q.token is null and q.due_at is not null
            order by q.priority desc limit 1;
            exit when not found;
            reader := -1;
            loop
                select q.min_reader into reader from "dumped_store".queue q
                where q.namespace = in_namespace and q.agent = due_places.agent and q.priority = due_places.priority
                    and q.min_reader > due_places.reader and q.min_reader <= reads
                    and q.token is null and q.due_at is not null
                order by q.min_reader limit 1;
                exit when not found;
                return next;
            end loop;
        end loop;
    end loop;
end $$;

CREATE FUNCTION dumped_store.empty(in_rid bigint, size integer) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    delete from "dumped_store".records where rid = in_rid
        and seq in (select r.seq from "dumped_store".records r where r.rid = in_rid order by r.seq limit size);
    if found then return false; end if;
    delete from "dumped_store".deltas where rid = in_rid and (seq, sub) in (
        select d.seq, d.sub from "dumped_store".deltas d where d.rid = in_rid order by d.seq, d.sub limit size);
    if found then return false; end if;
    delete from "dumped_store".blobs where rid = in_rid
        and id in (select b.id from "dumped_store".blobs b where b.rid = in_rid limit size);
    if found then return false; end if;
    delete from "dumped_store".turns where rid = in_rid;
    -- Those of a run that was moved are known where it lives now.
    delete from "dumped_store".keys k using "dumped_store".runs r where k.rid = in_rid and r.rid = in_rid and r.moved_to is not null;
    update "dumped_store".runs r set is_emptied = true where r.rid = in_rid;
    return true;
end $$;

CREATE FUNCTION dumped_store.forget(at double precision, in_namespace text, size integer) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
    over bigint[] := array(
        select r.rid from "dumped_store".runs r
        where r.namespace = in_namespace and r.gone_until is not null and r.is_emptied
            -- A time that stands still during the statement: only that can be looked up in an index.
            and r.gone_until <= coalesce(at, extract(epoch from statement_timestamp())::double precision)
        limit size for update skip locked
    );
begin
    delete from "dumped_store".keys k where k.rid = any (over);
    delete from "dumped_store".runs r where r.rid = any (over);
    return cardinality(over);
end $$;

CREATE FUNCTION dumped_store.held_agents(in_namespace text, agents text[]) RETURNS SETOF text
    LANGUAGE plpgsql
    AS $$
declare
    step text := '';
begin
    if agents is not null then
        return query select unnest(agents);
        return;
    end if;
    loop
        select q.agent into step from "dumped_store".queue q
        where q.namespace = in_namespace and q.agent > step and q.token is not null
        order by q.agent limit 1;
        exit when not found;
        return next step;
    end loop;
end $$;

CREATE FUNCTION dumped_store.is_untouched(in_rid bigint, in_epoch bigint, r_seq bigint[], r_time double precision[], r_batch bytea[], r_body bytea[]) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
    last "dumped_store".records;
    place bigint;
begin
    select e.* into last from "dumped_store".records e where e.rid = in_rid order by e.seq desc limit 1;
    place := array_position(r_seq, last.seq);
    return coalesce(
        r_time[place] = last.time and r_batch[place] = last.batch and r_body[place] = last.body, false
    ) and exists (
        select from "dumped_store".runs r join "dumped_store".queue q on q.rid = r.rid
        where r.rid = in_rid and r.closed_at is null and r.moved_to is null
            and q.token is null and q.due_at is null and q.epoch <= in_epoch
            and (q.status = 'blocked' or not exists (
                select from "dumped_store".turns t where t.rid = in_rid and t.finished is null
            ))
    );
end $$;

CREATE FUNCTION dumped_store.lock_runs(locks bigint[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    perform pg_advisory_xact_lock(lock) from unnest(locks) lock;
end $$;

CREATE FUNCTION dumped_store.next_due(in_namespace text, agents text[], reads bigint) RETURNS double precision
    LANGUAGE plpgsql
    AS $$
begin
    return least(
        (
            select min(e.due_at)
            from "dumped_store".due_places(in_namespace, agents, reads) place
            cross join lateral (
                select q.due_at from "dumped_store".queue q
                where q.namespace = in_namespace and q.agent = place.agent and q.priority = place.priority
                    and q.min_reader = place.reader and q.token is null and q.due_at is not null
                order by q.due_at limit 1
            ) e
        ),
        (
            select min(e.lease_until)
            from "dumped_store".held_agents(in_namespace, agents) held (agent)
            cross join lateral (
                select q.lease_until from "dumped_store".queue q
                where q.namespace = in_namespace and q.agent = held.agent and q.token is not null
                    and q.min_reader <= reads
                order by q.lease_until limit 1
            ) e
        )
    );
end $$;

CREATE FUNCTION dumped_store.publish(at double precision, namespace text, locks bigint[], p_run text[], p_epoch bigint[], p_token bytea[], p_count integer[], d_call bytea[], d_number bigint[], d_data bytea[], OUT taken boolean[]) RETURNS boolean[]
    LANGUAGE plpgsql
    AS $$
declare
    now double precision;
    run_id bigint;
    head bigint;
    last_sub bigint;
    delta_at integer := 1;
begin
    perform set_config('synchronous_commit', 'off', true);
    perform "dumped_store".lock_runs(locks);
    now := coalesce(at, extract(epoch from clock_timestamp())::double precision);
    for nth in 1..cardinality(p_run) loop
        select r.rid into run_id
        from "dumped_store".runs r join "dumped_store".queue q on q.rid = r.rid
        where r.namespace = publish.namespace and r.run = p_run[nth] and q.epoch = p_epoch[nth] and q.token = p_token[nth];
        taken[nth] := found;
        if found then
            select r.seq into head from "dumped_store".records r where r.rid = run_id order by r.seq desc limit 1;
            last_sub := coalesce((
                select d.sub from "dumped_store".deltas d where d.rid = run_id and d.seq = head order by d.sub desc limit 1
            ), 0);
            insert into "dumped_store".deltas (rid, seq, sub, time, call, number, data)
            select run_id, head, last_sub + d.nth, now, d.call, d.number, d.data
            from unnest(
                d_call[delta_at:delta_at + p_count[nth] - 1],
                d_number[delta_at:delta_at + p_count[nth] - 1],
                d_data[delta_at:delta_at + p_count[nth] - 1]
            ) with ordinality d (call, number, data, nth);
        end if;
        delta_at := delta_at + p_count[nth];
    end loop;
end $$;

CREATE FUNCTION dumped_store.refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    raise exception 'records are append-only' using errcode = 'integrity_constraint_violation';
end $$;

CREATE FUNCTION dumped_store.refuse_delete() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
declare
    tombstone double precision;
begin
    select gone_until into tombstone from "dumped_store".runs where rid = old.rid;
    if tombstone is not null then
        return old;
    end if;
    raise exception 'records are append-only' using errcode = 'integrity_constraint_violation';
end $$;

CREATE FUNCTION dumped_store.settle(lock bigint, in_rid bigint, in_building bytea, in_head bigint, in_status text, in_due double precision, in_closed double precision) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    perform pg_advisory_xact_lock(lock);
    update "dumped_store".runs r set building = null, closed_at = in_closed
    where r.rid = in_rid and r.building = in_building and in_head = coalesce((
        select e.seq from "dumped_store".records e where e.rid = in_rid order by e.seq desc limit 1
    ), 0);
    if not found then
        return false;
    end if;
    -- `running`: by a holder that is no more, whose lease is over.
    update "dumped_store".queue q
    set status = in_status, due_at = in_due,
        token = case when in_status = 'running' then '\x00'::bytea end,
        lease_until = case when in_status = 'running' then 0 end
    where q.rid = in_rid;
    return true;
end $$;

CREATE FUNCTION dumped_store.whereabouts(in_rid bigint) RETURNS text
    LANGUAGE plpgsql
    AS $$
begin
    return (
        select coalesce(r.moved_to, case when r.building is not null then '' end)
        from "dumped_store".runs r where r.rid = in_rid
    );
end $$;

CREATE TABLE dumped_store.blobs (
    rid bigint NOT NULL,
    id bytea NOT NULL,
    checksum bigint NOT NULL,
    data bytea NOT NULL
);
ALTER TABLE ONLY dumped_store.blobs ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE dumped_store.deltas (
    rid bigint NOT NULL,
    seq bigint NOT NULL,
    sub bigint NOT NULL,
    "time" double precision NOT NULL,
    call bytea NOT NULL,
    number bigint NOT NULL,
    data bytea NOT NULL
);

CREATE TABLE dumped_store.keys (
    rid bigint NOT NULL,
    key bytea NOT NULL,
    digest bytea NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    "time" double precision NOT NULL
);

CREATE TABLE dumped_store.queue (
    rid bigint NOT NULL,
    namespace text NOT NULL COLLATE pg_catalog."C",
    agent text NOT NULL COLLATE pg_catalog."C",
    lock bigint NOT NULL,
    priority bigint DEFAULT 0 NOT NULL,
    due_at double precision,
    lease_until double precision,
    epoch bigint DEFAULT 0 NOT NULL,
    token bytea,
    woken boolean DEFAULT false NOT NULL,
    takeovers bigint DEFAULT 0 NOT NULL,
    draining boolean DEFAULT false NOT NULL,
    min_reader bigint DEFAULT 1 NOT NULL,
    status text NOT NULL COLLATE pg_catalog."C",
    last_batch bytea,
    last_head bigint,
    last_time double precision
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE dumped_store.records (
    rid bigint NOT NULL,
    seq bigint NOT NULL,
    "time" double precision NOT NULL,
    type text NOT NULL COLLATE pg_catalog."C",
    turn bytea,
    key bytea,
    epoch bigint NOT NULL,
    batch bytea NOT NULL,
    body bytea NOT NULL,
    checksum bigint NOT NULL,
    key_id bytea
);
ALTER TABLE ONLY dumped_store.records ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE dumped_store.runs (
    rid bigint NOT NULL,
    namespace text NOT NULL COLLATE pg_catalog."C",
    run text NOT NULL COLLATE pg_catalog."C",
    agent text NOT NULL COLLATE pg_catalog."C",
    created double precision NOT NULL,
    turns bigint DEFAULT 0 NOT NULL,
    closed_at double precision,
    gone_until double precision,
    is_emptied boolean DEFAULT false NOT NULL,
    digest bytea,
    moved_to text COLLATE pg_catalog."C",
    building bytea
)
WITH (fillfactor='90');

ALTER TABLE dumped_store.runs ALTER COLUMN rid ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME dumped_store.runs_rid_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE dumped_store.turns (
    rid bigint NOT NULL,
    turn bytea NOT NULL,
    submitted bigint NOT NULL,
    status text COLLATE pg_catalog."C",
    finished bigint,
    ended double precision
);

CREATE TABLE dumped_store.versions (
    version integer NOT NULL,
    applied timestamp with time zone DEFAULT now(),
    compatible_from integer
);

CREATE TABLE dumped_store.workers (
    namespace text NOT NULL COLLATE pg_catalog."C",
    worker bytea NOT NULL,
    info bytea NOT NULL,
    seen double precision NOT NULL
);

INSERT INTO dumped_store.blobs VALUES (1, '\x6231', 579872904, '\x6120626c6f62');

INSERT INTO dumped_store.deltas VALUES (1, 5, 1, 1796028189.339914, '\x63', 1, '\x22706965636522');

INSERT INTO dumped_store.keys VALUES (1, '\x7375626d69743a7431', '\x646967657374', 1, 2, 1796028189.265451);
INSERT INTO dumped_store.keys VALUES (2, '\x7375626d69743a7431', '\x646967657374', 1, 2, 1796028189.347821);
INSERT INTO dumped_store.keys VALUES (3, '\x7375626d69743a7431', '\x646967657374', 1, 2, 1796028189.354975);
INSERT INTO dumped_store.keys VALUES (3, '\x636c6f7365', '\x646967657374', 4, 4, 1796028189.371888);

INSERT INTO dumped_store.queue VALUES (1, 'default', 'agent', -7516135538876261528, 0, NULL, 1796028219.309658, 1, NULL, false, 0, false, 1, 'succeeded', NULL, NULL, NULL);
INSERT INTO dumped_store.queue VALUES (2, 'default', 'agent', -8210982198367368955, 0, 1796028189.347821, NULL, 0, NULL, false, 0, false, 1, 'pending', NULL, NULL, NULL);
INSERT INTO dumped_store.queue VALUES (3, 'default', 'agent', -6106507526732501688, 0, NULL, 1796028219.360924, 1, NULL, false, 0, false, 1, 'succeeded', NULL, NULL, NULL);

INSERT INTO dumped_store.records VALUES (1, 1, 1796028189.265451, 'run.created', NULL, NULL, 0, '\xba22477ccb7bd18a76435768dd5e9e13', '\x82a56167656e74a56167656e74a56e6f6e6365c4106e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e', 547040207, NULL);
INSERT INTO dumped_store.records VALUES (1, 2, 1796028189.265451, 'turn.submitted', '\x7431', NULL, 0, '\xba22477ccb7bd18a76435768dd5e9e13', '\x82a5696e707574c4072268656c6c6f22ac696e7075745f646967657374c406646967657374', 1865879389, NULL);
INSERT INTO dumped_store.records VALUES (1, 3, 1796028189.323456, 'turn.started', '\x7431', NULL, 1, '\xfd1e826ee08fa05c337089ed7e49e697', '\x82a6776f726b6572a177a7617474656d707401', 2904681126, NULL);
INSERT INTO dumped_store.records VALUES (1, 4, 1796028189.32829, 'call.outcome', '\x7431', '\x63', 1, '\xbc0d92d5a499b178e00f735e0827d80c', '\x82a6737461747573a26f6ba576616c7565c40131', 1969635166, NULL);
INSERT INTO dumped_store.records VALUES (1, 5, 1796028189.335972, 'call.outcome', '\x7431', '\x64', 1, '\xda0e5b502bc0bc5003052d6ff5f6d39a', '\x82a6737461747573a26f6ba576616c7565c40131', 2913289336, NULL);
INSERT INTO dumped_store.records VALUES (1, 6, 1796028189.342439, 'turn.finished', '\x7431', NULL, 1, '\xc40c8ba7e41b5dc814c0a08283cd8694', '\x81a6737461747573a9737563636565646564', 1439212297, NULL);
INSERT INTO dumped_store.records VALUES (2, 1, 1796028189.347821, 'run.created', NULL, NULL, 0, '\xa51b7f4cb1dd7fa2bb798e7d0aed6ecb', '\x82a56167656e74a56167656e74a56e6f6e6365c4106e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e', 2691791145, NULL);
INSERT INTO dumped_store.records VALUES (2, 2, 1796028189.347821, 'turn.submitted', '\x7431', NULL, 0, '\xa51b7f4cb1dd7fa2bb798e7d0aed6ecb', '\x82a5696e707574c4072268656c6c6f22ac696e7075745f646967657374c406646967657374', 652124738, NULL);
INSERT INTO dumped_store.records VALUES (3, 1, 1796028189.354975, 'run.created', NULL, NULL, 0, '\x8275647a75f0f5f12d1c0ef15a8ad24f', '\x82a56167656e74a56167656e74a56e6f6e6365c4106e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e', 2483341593, NULL);
INSERT INTO dumped_store.records VALUES (3, 2, 1796028189.354975, 'turn.submitted', '\x7431', NULL, 0, '\x8275647a75f0f5f12d1c0ef15a8ad24f', '\x82a5696e707574c4072268656c6c6f22ac696e7075745f646967657374c406646967657374', 3401566, NULL);
INSERT INTO dumped_store.records VALUES (3, 3, 1796028189.362826, 'turn.finished', '\x7431', NULL, 1, '\xb356bc2492f68e04c50acc5acd4731f5', '\x81a6737461747573a9737563636565646564', 2383215650, NULL);
INSERT INTO dumped_store.records VALUES (3, 4, 1796028189.371888, 'run.closed', NULL, NULL, 0, '\x224e8bbcd6f746029ee9b0387c2d5eed', '\x80', 4189105719, NULL);

INSERT INTO dumped_store.runs OVERRIDING SYSTEM VALUE VALUES (1, 'default', 'order-42', 'agent', 1796028189.265451, 1, NULL, NULL, false, NULL, NULL, NULL);
INSERT INTO dumped_store.runs OVERRIDING SYSTEM VALUE VALUES (2, 'default', 'order-43', 'agent', 1796028189.347821, 1, NULL, NULL, false, NULL, NULL, NULL);
INSERT INTO dumped_store.runs OVERRIDING SYSTEM VALUE VALUES (3, 'default', 'order-44', 'agent', 1796028189.354975, 1, 1796028189.371888, NULL, false, NULL, NULL, NULL);

INSERT INTO dumped_store.turns VALUES (1, '\x7431', 2, 'succeeded', 6, 1796028189.342439);
INSERT INTO dumped_store.turns VALUES (2, '\x7431', 2, NULL, NULL, NULL);
INSERT INTO dumped_store.turns VALUES (3, '\x7431', 2, 'succeeded', 3, 1796028189.362826);

INSERT INTO dumped_store.versions VALUES (1, '2026-11-30 08:43:09.144357+00', 1);
INSERT INTO dumped_store.versions VALUES (2, '2026-11-30 08:43:09.144357+00', 2);
INSERT INTO dumped_store.versions VALUES (3, '2026-11-30 08:43:09.144357+00', 2);
INSERT INTO dumped_store.versions VALUES (4, '2026-11-30 08:43:09.144357+00', 2);
INSERT INTO dumped_store.versions VALUES (5, '2026-11-30 08:43:09.144357+00', 2);

SELECT pg_catalog.setval('dumped_store.runs_rid_seq', 3, true);

ALTER TABLE ONLY dumped_store.blobs
    ADD CONSTRAINT blobs_pkey PRIMARY KEY (rid, id);

ALTER TABLE ONLY dumped_store.deltas
    ADD CONSTRAINT deltas_pkey PRIMARY KEY (rid, seq, sub);

ALTER TABLE ONLY dumped_store.keys
    ADD CONSTRAINT keys_pkey PRIMARY KEY (rid, key);

ALTER TABLE ONLY dumped_store.queue
    ADD CONSTRAINT queue_pkey PRIMARY KEY (rid);

ALTER TABLE ONLY dumped_store.records
    ADD CONSTRAINT records_pkey PRIMARY KEY (rid, seq);

ALTER TABLE ONLY dumped_store.runs
    ADD CONSTRAINT runs_namespace_run_key UNIQUE (namespace, run);

ALTER TABLE ONLY dumped_store.runs
    ADD CONSTRAINT runs_pkey PRIMARY KEY (rid);

ALTER TABLE ONLY dumped_store.turns
    ADD CONSTRAINT turns_pkey PRIMARY KEY (rid, turn);

ALTER TABLE ONLY dumped_store.versions
    ADD CONSTRAINT versions_pkey PRIMARY KEY (version);

ALTER TABLE ONLY dumped_store.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (namespace, worker);

CREATE INDEX queue_by_status ON dumped_store.queue USING btree (namespace, status, rid);

CREATE INDEX queue_due ON dumped_store.queue USING btree (namespace, agent, priority, min_reader, due_at) WHERE ((token IS NULL) AND (due_at IS NOT NULL));

CREATE INDEX queue_held ON dumped_store.queue USING btree (namespace, agent, lease_until) WHERE (token IS NOT NULL);

CREATE INDEX runs_by_age ON dumped_store.runs USING btree (namespace, rid) WHERE (gone_until IS NULL);

CREATE INDEX runs_by_agent ON dumped_store.runs USING btree (namespace, agent, rid) WHERE (gone_until IS NULL);

CREATE INDEX runs_closed ON dumped_store.runs USING btree (namespace, closed_at) WHERE ((closed_at IS NOT NULL) AND (gone_until IS NULL));

CREATE INDEX runs_gone ON dumped_store.runs USING btree (namespace, gone_until) WHERE (gone_until IS NOT NULL);

CREATE INDEX runs_unemptied ON dumped_store.runs USING btree (namespace, rid) WHERE ((gone_until IS NOT NULL) AND (NOT is_emptied));

CREATE INDEX turns_unfinished ON dumped_store.turns USING btree (rid, submitted) WHERE (finished IS NULL);

CREATE TRIGGER records_never_change BEFORE UPDATE ON dumped_store.records FOR EACH ROW EXECUTE FUNCTION dumped_store.refuse_change();

CREATE TRIGGER records_never_go BEFORE DELETE ON dumped_store.records FOR EACH ROW EXECUTE FUNCTION dumped_store.refuse_delete();

CREATE TRIGGER records_never_vanish BEFORE TRUNCATE ON dumped_store.records FOR EACH STATEMENT EXECUTE FUNCTION dumped_store.refuse_change();
