-- The door for a group: all locks first, then the batches that may go the quick way, then the others one by one, in
-- the order offered. No run is in both kinds. `b_records` and `b_blobs` count how many of the arrays are a batch's.
create or replace function {schema}.append_batches(
    at double precision,
    locks bigint[],
    q_rid bigint[],
    q_epoch bigint[],
    q_token bytea[],
    q_prev bytea[],
    q_progress boolean[],
    qr_batch integer[],
    qr_nth integer[],
    qr_rid bigint[],
    qr_epoch bigint[],
    qr_id bytea[],
    qr_type text[],
    qr_turn bytea[],
    qr_key bytea[],
    qr_body bytea[],
    qr_checksum bigint[],
    qr_key_id bytea[],
    namespace text,
    b_lock bigint[],
    b_run text[],
    b_id bytea[],
    b_epoch bigint[],
    b_token bytea[],
    b_prev bytea[],
    b_key bytea[],
    b_digest bytea[],
    b_at_head bigint[],
    b_agent text[],
    b_min_reader bigint[],
    b_event text[],
    b_turn bytea[],
    b_status text[],
    b_priority bigint[],
    b_due double precision[],
    b_records integer[],
    b_blobs integer[],
    r_type text[],
    r_turn bytea[],
    r_key bytea[],
    r_body bytea[],
    r_checksum bigint[],
    r_key_id bytea[],
    l_id bytea[],
    l_checksum bigint[],
    l_data bytea[]
) returns table (
    answer smallint,
    rid bigint,
    first bigint,
    last bigint,
    landed double precision,
    holds boolean,
    current bigint,
    has_work boolean
) language plpgsql as $$
declare
    quick record;
    now double precision;
    record_at integer := 1;
    record_to integer;
    blob_at integer := 1;
    blob_to integer;
begin
    perform {schema}.lock_runs(locks);
    now := coalesce(at, extract(epoch from clock_timestamp())::double precision);
    if cardinality(q_rid) > 0 then
        quick := {schema}.append_records(
            now, '{}', q_rid, q_epoch, q_token, q_prev, q_progress,
            qr_batch, qr_nth, qr_rid, qr_epoch, qr_id, qr_type, qr_turn, qr_key, qr_body, qr_checksum, qr_key_id
        );
        for nth in 1..cardinality(q_rid) loop
            -- 0: not taken. The rest is what the author knows of its batch.
            answer := case when quick.heads[nth] > 0 then 1 else 0 end;
            first := quick.heads[nth] + 1; landed := now; rid := q_rid[nth]; has_work := false;
            return next;
        end loop;
    end if;
    for nth in 1..cardinality(b_id) loop
        record_to := record_at + b_records[nth] - 1;
        blob_to := blob_at + b_blobs[nth] - 1;
        return query select * from {schema}.append_batch(
            namespace, now, b_lock[nth], b_run[nth], b_id[nth], b_epoch[nth], b_token[nth], b_prev[nth], b_key[nth],
            b_digest[nth], b_at_head[nth], b_agent[nth], b_min_reader[nth], b_event[nth], b_turn[nth], b_status[nth],
            b_priority[nth], b_due[nth],
            r_type[record_at:record_to], r_turn[record_at:record_to], r_key[record_at:record_to],
            r_body[record_at:record_to], r_checksum[record_at:record_to], r_key_id[record_at:record_to],
            l_id[blob_at:blob_to], l_checksum[blob_at:blob_to], l_data[blob_at:blob_to]
        );
        record_at := record_to + 1;
        blob_at := blob_to + 1;
    end loop;
end $$;
