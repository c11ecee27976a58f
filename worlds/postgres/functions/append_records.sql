-- The quick way through the door: batches of holders that bring records and change nothing else, one a run.
-- Taken are those of which one look says that nothing is in the way: the claim holds, and the batch before is the
-- last one in the log, so this one cannot have landed. Their heads before it are answered; 0 is for a batch that was
-- not taken and has to go the long way (append_batches), where it is found out why.
create or replace function {schema}.append_records(
    at double precision,
    locks bigint[],
    b_rid bigint[],
    b_epoch bigint[],
    b_token bytea[],
    b_prev bytea[],
    -- Whether the batch reports progress, which changes nothing while nobody has taken over.
    b_progress boolean[],
    r_batch integer[],
    r_nth integer[],
    r_rid bigint[],
    r_epoch bigint[],
    r_id bytea[],
    r_type text[],
    r_turn bytea[],
    r_key bytea[],
    r_body bytea[],
    r_checksum bigint[],
    r_key_id bytea[],
    out heads bigint[],
    out now double precision
) language plpgsql as $$
begin
    perform pg_advisory_xact_lock(lock) from unnest(locks) lock;
    now := coalesce(at, extract(epoch from clock_timestamp())::double precision);
    heads := array(
        select coalesce((
            select head.seq
            from {schema}.queue q
            cross join lateral (
                select r.seq, r.batch from {schema}.records r where r.rid = b.rid order by r.seq desc limit 1
            ) head
            where q.rid = b.rid and q.token = b.token and q.epoch = b.epoch
                and head.batch = b.prev and (not b.progress or q.takeovers = 0)
        ), 0)
        from unnest(b_rid, b_epoch, b_token, b_prev, b_progress)
            with ordinality b (rid, epoch, token, prev, progress, nth)
        order by b.nth
    );
    insert into {schema}.records (rid, seq, time, type, turn, key, epoch, batch, body, checksum, key_id)
    select r.rid, heads[r.batch] + r.nth, now, r.type, r.turn, r.key, r.epoch, r.id, r.body, r.checksum, r.key_id
    from unnest(r_batch, r_nth, r_rid, r_epoch, r_id, r_type, r_turn, r_key, r_body, r_checksum, r_key_id)
        r (batch, nth, rid, epoch, id, type, turn, key, body, checksum, key_id)
    where heads[r.batch] > 0;
end $$;
