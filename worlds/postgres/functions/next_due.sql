-- When the next unclaimed entry falls due or the next lease is over; null: nothing in sight. What is due already and
-- was not given (somebody else had it for this moment) counts too.
create or replace function {schema}.next_due(in_namespace text, agents text[], reads bigint)
returns double precision language plpgsql as $$
begin
    return least(
        (
            select min(e.due_at)
            from {schema}.due_places(in_namespace, agents, reads) place
            cross join lateral (
                select q.due_at from {schema}.queue q
                where q.namespace = in_namespace and q.agent = place.agent and q.priority = place.priority
                    and q.min_reader = place.reader and q.token is null and q.due_at is not null
                order by q.due_at limit 1
            ) e
        ),
        (
            select min(e.lease_until)
            from {schema}.held_agents(in_namespace, agents) held (agent)
            cross join lateral (
                select q.lease_until from {schema}.queue q
                where q.namespace = in_namespace and q.agent = held.agent and q.token is not null
                    and q.min_reader <= reads
                order by q.lease_until limit 1
            ) e
        )
    );
end $$;
