-- What an event makes of the run's queue entry and turns, in the transaction of its batch. Restates journal.worlds.queue,
-- which is the model. `seq` is where the event's record of a turn lies. Answers whether the entry may have become
-- claimable.
create or replace function {schema}.change_entry(
    run_id bigint,
    now double precision,
    event text,
    in_turn bytea,
    in_status text,
    in_priority bigint,
    in_due double precision,
    seq bigint
) returns boolean language plpgsql as $$
declare
    entry {schema}.queue;
    unfinished bigint;
begin
    case event
        when 'submit' then
            insert into {schema}.turns (rid, turn, submitted) values (run_id, in_turn, seq);
            update {schema}.runs r set turns = r.turns + 1 where r.rid = run_id;
        when 'finish' then
            -- The first end counts.
            update {schema}.turns t set status = in_status, finished = seq, ended = now
            where t.rid = run_id and t.turn = in_turn and t.finished is null;
        when 'retry' then
            update {schema}.turns t set status = null, finished = null, ended = null
            where t.rid = run_id and t.turn = in_turn;
        when 'close', 'move' then
            -- A move says where to, in place of a status.
            update {schema}.runs r
            set closed_at = coalesce(r.closed_at, now), moved_to = case event when 'move' then in_status end
            where r.rid = run_id;
            -- Nothing is due, nobody holds it. The epoch stays for those who ask with an old one.
            update {schema}.queue q
            set due_at = null, token = null, woken = false, draining = false,
                status = case q.status when 'running' then 'pending' else q.status end
            where q.rid = run_id;
            return false;
        else
            null;
    end case;

    select q.* into entry from {schema}.queue q where q.rid = run_id for update;
    select count(*) into unfinished from {schema}.turns t where t.rid = run_id and t.finished is null;
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
    update {schema}.queue q
    set priority = entry.priority, due_at = entry.due_at, token = entry.token, woken = entry.woken,
        takeovers = entry.takeovers, draining = entry.draining, status = entry.status
    where q.rid = run_id;
    return entry.token is null and entry.due_at is not null;
end $$;
