-- Entries that are due or whose lease is over, in the order in which they are given; up to `width`.
-- Steps from agent to agent and from priority to priority by index: a plain ORDER BY would wade through timers.
create or replace function {schema}.claimable(
    now double precision, in_namespace text, agents text[], reads bigint, width integer
) returns bigint[] language plpgsql as $$
begin
    return array(
        select found.rid
        from (
            select e.rid, e.priority, e.due_at
            from {schema}.due_places(in_namespace, agents) place
            cross join lateral (
                select q.rid, q.priority, q.due_at from {schema}.queue q
                where q.namespace = in_namespace and q.agent = place.agent and q.priority = place.priority
                    and q.token is null and q.due_at is not null and q.due_at <= now and q.min_reader <= reads
                order by q.due_at limit width
            ) e
            union all
            (
                select q.rid, q.priority, coalesce(q.due_at, 0) from {schema}.queue q
                where q.namespace = in_namespace and q.token is not null and q.lease_until <= now
                    and (agents is null or q.agent = any (agents)) and q.min_reader <= reads
                order by q.lease_until limit width
            )
        ) found
        order by found.priority desc, found.due_at, found.rid limit width
    );
end $$;
