-- Stores deltas behind the head of their runs, fenced like the door, in the order given; answers which were taken.
-- They may be lost in a crash, so nobody waits for the disk.
create or replace function {schema}.publish(
    at double precision,
    namespace text,
    locks bigint[],
    p_run text[],
    p_epoch bigint[],
    p_token bytea[],
    p_count integer[],
    d_call bytea[],
    d_number bigint[],
    d_data bytea[],
    out taken boolean[]
) language plpgsql as $$
declare
    now double precision;
    run_id bigint;
    head bigint;
    last_sub bigint;
    delta_at integer := 1;
begin
    perform set_config('synchronous_commit', 'off', true);
    perform {schema}.lock_runs(locks);
    now := coalesce(at, extract(epoch from clock_timestamp())::double precision);
    for nth in 1..cardinality(p_run) loop
        select r.rid into run_id
        from {schema}.runs r join {schema}.queue q on q.rid = r.rid
        where r.namespace = publish.namespace and r.run = p_run[nth] and q.epoch = p_epoch[nth] and q.token = p_token[nth];
        taken[nth] := found;
        if found then
            select r.seq into head from {schema}.records r where r.rid = run_id order by r.seq desc limit 1;
            last_sub := coalesce((
                select d.sub from {schema}.deltas d where d.rid = run_id and d.seq = head order by d.sub desc limit 1
            ), 0);
            insert into {schema}.deltas (rid, seq, sub, time, call, number, data)
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
