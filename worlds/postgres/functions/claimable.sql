-- Entries that are due or whose lease is over, in the order in which they are given; up to `width`.
-- Steps by index from agent to agent, from priority to priority and from reader to reader: a plain ORDER BY would wade
-- through timers, and through what others can read.
create or replace function {schema}.claimable(
    now double precision, in_namespace text, agents text[], reads bigint, width integer
) returns bigint[] language plpgsql as $$
begin
    return array(
        select found.rid
        from (
            select e.rid, e.priority, e.due_at
            from {schema}.due_places(in_namespace, agents, reads) place
            cross join lateral (
                select q.rid, q.priority, q.due_at from {schema}.queue q
                where q.namespace = in_namespace and q.agent = place.agent and q.priority = place.priority
                    and q.min_reader = place.reader and q.token is null and q.due_at is not null and q.due_at <= now
                order by q.due_at limit width
            ) e
            union all
            select e.rid, e.priority, coalesce(e.due_at, 0)
            from {schema}.held_agents(in_namespace, agents) held (agent)
            cross join lateral (
                select q.rid, q.priority, q.due_at from {schema}.queue q
                where q.namespace = in_namespace and q.agent = held.agent and q.token is not null
                    and q.lease_until <= now and q.min_reader <= reads
                order by q.lease_until limit width
            ) e
        ) found
        order by found.priority desc, found.due_at, found.rid limit width
    );
end $$;
