-- Gives up to `wanted` entries to a worker: highest priority first, then the longest due. Candidates come by index, agent
-- by agent and priority by priority, so that a million runs cost as much as ten; each is then taken alone, without
-- waiting for anybody: its row by SKIP LOCKED, and its run's lock only if that is free. Whoever appends has that lock
-- from before it compares the claim until it has committed, so no claim slips in between. A door takes the lock first
-- and the row second, and this never waits for the lock: no circle.
-- One row a claim, and a last one without a run that says in how many seconds the next entry may be claimable.
create or replace function {schema}.claim(
    at double precision,
    in_namespace text,
    tokens bytea[],
    lease_seconds double precision,
    agents text[],
    reads bigint,
    in_run text
) returns table (
    run text,
    rid bigint,
    epoch bigint,
    token bytea,
    agent text,
    turn bytea,
    submitted bigint,
    head bigint,
    takeovers bigint,
    taken_over boolean,
    min_reader bigint,
    next_seconds double precision
) language plpgsql as $$
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
    entry {schema}.queue;
begin
    if wanted > 0 then
        loop
            if in_run is not null then
                candidates := array(
                    select q.rid from {schema}.runs r join {schema}.queue q on q.rid = r.rid
                    where r.namespace = in_namespace and r.run = in_run
                );
            else
                candidates := {schema}.claimable(now, in_namespace, agents, reads, width);
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
                select q.* into entry from {schema}.queue q
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
                    select r.seq from {schema}.records r where r.rid = candidate order by r.seq desc limit 1
                );
                turn := null; submitted := 0;
                select t.turn, t.submitted into turn, submitted from {schema}.turns t
                where t.rid = candidate and t.finished is null order by t.submitted limit 1;
                update {schema}.queue q
                set epoch = q.epoch + 1, token = tokens[taken], woken = false, draining = false,
                    takeovers = q.takeovers + case when q.token is not null and not q.draining then 1 else 0 end,
                    status = case when turn is null then q.status else 'running' end,
                    lease_until = now + lease_seconds
                where q.rid = candidate
                returning q.epoch, q.token, q.agent, q.takeovers, q.min_reader
                into epoch, token, agent, takeovers, min_reader;
                run := (select r.run from {schema}.runs r where r.rid = candidate);
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
            from {schema}.runs r join {schema}.queue q on q.rid = r.rid
            where r.namespace = in_namespace and r.run = in_run
                and (agents is null or q.agent = any (agents)) and q.min_reader <= reads
        );
    else
        next_seconds := {schema}.next_due(in_namespace, agents, reads) - now;
    end if;
    return next;
end $$;
