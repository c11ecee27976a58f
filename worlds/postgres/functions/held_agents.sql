-- The given agents, or all that have something held, one index seek each.
create or replace function {schema}.held_agents(in_namespace text, agents text[]) returns setof text language plpgsql as $$
declare
    step text := '';
begin
    if agents is not null then
        return query select unnest(agents);
        return;
    end if;
    loop
        select q.agent into step from {schema}.queue q
        where q.namespace = in_namespace and q.agent > step and q.token is not null
        order by q.agent limit 1;
        exit when not found;
        return next step;
    end loop;
end $$;
