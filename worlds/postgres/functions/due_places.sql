-- Agent, priority and reader of what is unclaimed and can be read, one index seek each.
create or replace function {schema}.due_places(in_namespace text, agents text[], reads bigint)
returns table (agent text, priority bigint, reader bigint) language plpgsql as $$
#variable_conflict use_column
declare
    wanted text[];
    step text := '';
begin
    if agents is not null then
        wanted := agents;
    else
        loop
            select q.agent into step from {schema}.queue q
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
            select q.priority into priority from {schema}.queue q
            where q.namespace = in_namespace and q.agent = due_places.agent and q.priority < due_places.priority
                and q.token is null and q.due_at is not null
            order by q.priority desc limit 1;
            exit when not found;
            reader := -1;
            loop
                select q.min_reader into reader from {schema}.queue q
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
