-- The quick way through the door (append_records) for one batch: a run that is worked on by itself waits for nothing
-- but this. Row by row, since a batch has one record or two, and a set-returning function costs more than those.
-- Answers the head before the batch; 0: not taken.
create or replace function {schema}.append_alone(
    at double precision,
    lock bigint,
    in_rid bigint,
    in_epoch bigint,
    in_token bytea,
    prev bytea,
    is_progress boolean,
    id bytea,
    r_type text[],
    r_turn bytea[],
    r_key bytea[],
    r_body bytea[],
    r_checksum bigint[],
    r_key_id bytea[],
    out head bigint,
    out now double precision
) language plpgsql as $$
begin
    perform pg_advisory_xact_lock(lock);
    now := coalesce(at, extract(epoch from clock_timestamp())::double precision);
    select last.seq into head
    from {schema}.queue q
    cross join lateral (
        select r.seq, r.batch from {schema}.records r where r.rid = in_rid order by r.seq desc limit 1
    ) last
    where q.rid = in_rid and q.token = in_token and q.epoch = in_epoch and last.batch = prev
        and (not is_progress or q.takeovers = 0);
    if head is null then
        head := 0;
        return;
    end if;
    for nth in 1..cardinality(r_type) loop
        insert into {schema}.records (rid, seq, time, type, turn, key, epoch, batch, body, checksum, key_id)
        values (
            in_rid, head + nth, now, r_type[nth], r_turn[nth], r_key[nth], in_epoch, id, r_body[nth], r_checksum[nth],
            r_key_id[nth]
        );
    end loop;
end $$;
