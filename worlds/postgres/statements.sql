-- Every statement of the Postgres world, by name. `-- name:` starts one; the comment below it says why it is as it is.
-- {schema} is put in once, when the world is opened. `at` is null but for tests, which bring a clock of their own.

-- name: lock_run
select pg_advisory_xact_lock($1::bigint);

-- name: append_one
-- The quick way through the door (functions/append_records.sql) for one record of one holder, with nobody else to share
-- a commit with. Sent behind lock_run in the same implicit transaction: a later statement sees what was committed before
-- it got the lock. No row: not taken.
insert into {schema}.records (rid, seq, time, type, turn, key, epoch, batch, body, checksum, key_id)
select
    $1::bigint, head.seq + 1,
    coalesce($2::double precision, extract(epoch from clock_timestamp())::double precision),
    $8::text, $9::bytea, $10::bytea, $3::bigint, $4::bytea, $11::bytea, $12::bigint, $13::bytea
from {schema}.queue q
cross join lateral (select r.seq, r.batch from {schema}.records r where r.rid = $1 order by r.seq desc limit 1) head
where q.rid = $1 and q.token = $5::bytea and q.epoch = $3 and head.batch = $6::bytea
    and (not $7::boolean or q.takeovers = 0)
returning seq, time;

-- name: append_two
-- Likewise for two: the intent and the outcome of a safe call, say. Both have the time of the one row they come from.
insert into {schema}.records (rid, seq, time, type, turn, key, epoch, batch, body, checksum, key_id)
select $1::bigint, head.seq + r.nth, head.now, r.type, r.turn, r.key, $3::bigint, $4::bytea, r.body, r.checksum, r.key_id
from (
    select h.seq, coalesce($2::double precision, extract(epoch from clock_timestamp())::double precision) as now
    from {schema}.queue q
    cross join lateral (
        select r.seq, r.batch from {schema}.records r where r.rid = $1 order by r.seq desc limit 1
    ) h
    where q.rid = $1 and q.token = $5::bytea and q.epoch = $3 and h.batch = $6::bytea
        and (not $7::boolean or q.takeovers = 0)
    offset 0
) head
cross join (values
    (1, $8::text, $9::bytea, $10::bytea, $11::bytea, $12::bigint, $13::bytea),
    (2, $14::text, $15::bytea, $16::bytea, $17::bytea, $18::bigint, $19::bytea)
) r (nth, type, turn, key, body, checksum, key_id)
returning seq, time;

-- name: append_records
select heads, now from {schema}.append_records(
    $1::double precision, $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bytea[], $7::boolean[],
    $8::integer[], $9::integer[], $10::bigint[], $11::bigint[], $12::bytea[], $13::text[], $14::bytea[], $15::bytea[],
    $16::bytea[], $17::bigint[], $18::bytea[]
);

-- name: append_batches
select a.*, case when a.answer = 9 then {schema}.whereabouts(a.rid) end from {schema}.append_batches(
    $1::double precision, $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bytea[], $7::boolean[],
    $8::integer[], $9::integer[], $10::bigint[], $11::bigint[], $12::bytea[], $13::text[], $14::bytea[], $15::bytea[],
    $16::bytea[], $17::bigint[], $18::bytea[],
    $19::text, $20::bigint[], $21::text[], $22::bytea[], $23::bigint[], $24::bytea[], $25::bytea[], $26::bytea[],
    $27::bytea[], $28::bigint[], $29::text[], $30::bigint[], $31::text[], $32::bytea[], $33::text[], $34::bigint[],
    $35::double precision[], $36::integer[], $37::integer[], $38::text[], $39::bytea[], $40::bytea[], $41::bytea[],
    $42::bigint[], $43::bytea[], $44::bytea[], $45::bigint[], $46::bytea[]
) a;

-- name: publish
select taken from {schema}.publish(
    $1::double precision, $2::text, $3::bigint[], $4::text[], $5::bigint[], $6::bytea[], $7::integer[], $8::bytea[],
    $9::bigint[], $10::bytea[]
);

-- name: claim
-- Does not wait for the disk. A crash of the server may undo a claim that was given: then what its holder appends is
-- refused, and what it has appended lies behind the claim in the server's log, so both are there.
select c.*
from
    (select set_config('synchronous_commit', 'off', true) offset 0) s,
    {schema}.claim(
        %(at)s::double precision, %(namespace)s::text, %(tokens)s::bytea[], %(lease_seconds)s::double precision,
        %(agents)s::text[], %(reads)s::bigint, %(run)s::text
    ) c;

-- name: renew
-- Those that nobody else has locked at this moment.
with held as materialized (
    select q.rid, r.run, q.epoch
    from unnest(%(runs)s::text[], %(epochs)s::bigint[], %(tokens)s::bytea[]) c (run, epoch, token)
    join {schema}.runs r on r.namespace = %(namespace)s::text and r.run = c.run
    join {schema}.queue q on q.rid = r.rid and q.epoch = c.epoch and q.token = c.token
    for update of q skip locked
)
update {schema}.queue q
set lease_until = coalesce(%(at)s::double precision, extract(epoch from clock_timestamp())::double precision)
    + %(lease_seconds)s::double precision
from held where q.rid = held.rid
returning held.run, held.epoch, q.token;

-- name: still_held
-- A claim that was skipped is not a lost claim: which of these hold?
select c.run, c.epoch, c.token
from unnest(%(runs)s::text[], %(epochs)s::bigint[], %(tokens)s::bytea[]) c (run, epoch, token)
join {schema}.runs r on r.namespace = %(namespace)s::text and r.run = c.run
join {schema}.queue q on q.rid = r.rid and q.epoch = c.epoch and q.token = c.token;

-- name: renew_waiting
-- Waits for whoever has them locked; in order, so that nobody waits in a circle.
with held as materialized (
    select q.rid, r.run, q.epoch
    from unnest(%(runs)s::text[], %(epochs)s::bigint[], %(tokens)s::bytea[]) c (run, epoch, token)
    join {schema}.runs r on r.namespace = %(namespace)s::text and r.run = c.run
    join {schema}.queue q on q.rid = r.rid and q.epoch = c.epoch and q.token = c.token
    order by q.rid
    for update of q
)
update {schema}.queue q
set lease_until = coalesce(%(at)s::double precision, extract(epoch from clock_timestamp())::double precision)
    + %(lease_seconds)s::double precision
from held where q.rid = held.rid
returning held.run, held.epoch, q.token;

-- name: find_run
-- Where it is, whether it is closed, whether it was swept, whether its tombstone holds the id still, and whether it
-- was moved.
select
    r.rid, r.closed_at is not null, r.gone_until is not null,
    coalesce(
        r.gone_until > coalesce(%(at)s::double precision, extract(epoch from clock_timestamp())::double precision), false
    ),
    r.moved_to
from {schema}.runs r where r.namespace = %(namespace)s::text and r.run = %(run)s::text;

-- name: read_records
-- The run and its records as of one moment: a sweep cannot come between.
select
    r.rid, r.closed_at is not null, r.gone_until is not null,
    coalesce(
        r.gone_until > coalesce(%(at)s::double precision, extract(epoch from clock_timestamp())::double precision), false
    ),
    r.moved_to,
    e.seq, e.time, e.type, e.turn, e.key, e.epoch, e.batch, e.body, e.checksum, e.key_id
from {schema}.runs r left join lateral (
    select * from {schema}.records where rid = r.rid and seq > %(after)s::bigint order by seq limit %(limit)s::bigint
) e on true
where r.namespace = %(namespace)s::text and r.run = %(run)s::text;

-- name: read_page
-- Likewise for a follower, and whether deltas lie behind its place: most runs have none, and are read in one trip.
select
    r.rid, r.closed_at is not null, r.gone_until is not null,
    coalesce(
        r.gone_until > coalesce(%(at)s::double precision, extract(epoch from clock_timestamp())::double precision), false
    ),
    r.moved_to,
    e.seq, e.time, e.type, e.turn, e.key, e.epoch, e.batch, e.body, e.checksum, e.key_id,
    exists (select from {schema}.deltas d where d.rid = r.rid and (d.seq, d.sub) > (%(after)s::bigint, %(sub)s::bigint))
from {schema}.runs r left join lateral (
    select * from {schema}.records where rid = r.rid and seq > %(after)s::bigint order by seq limit %(limit)s::bigint
) e on true
where r.namespace = %(namespace)s::text and r.run = %(run)s::text;

-- name: read_deltas
-- Up to the record that the reader has reached; what lies behind a later record comes after it.
select seq, sub, time, call, number, data from {schema}.deltas
where rid = %(rid)s::bigint and (seq, sub) > (%(seq)s::bigint, %(sub)s::bigint) and seq <= %(reached)s::bigint
order by seq, sub limit %(limit)s::bigint;

-- name: get_blob
select data, checksum from {schema}.blobs where rid = %(rid)s::bigint and id = %(blob)s;

-- name: get_turn
select
    r.rid, r.closed_at is not null, r.gone_until is not null,
    coalesce(
        r.gone_until > coalesce(%(at)s::double precision, extract(epoch from clock_timestamp())::double precision), false
    ),
    r.moved_to,
    t.turn, t.submitted, t.status, t.finished
from {schema}.runs r left join {schema}.turns t on t.rid = r.rid and t.turn = %(turn)s
where r.namespace = %(namespace)s::text and r.run = %(run)s::text;

-- name: get_info
select
    r.rid, r.closed_at is not null, r.gone_until is not null,
    coalesce(
        r.gone_until > coalesce(%(at)s::double precision, extract(epoch from clock_timestamp())::double precision), false
    ),
    r.moved_to,
    r.run, r.agent, r.namespace, q.status, r.closed_at is not null, r.created, r.turns, q.epoch, q.takeovers, q.due_at,
    r.rid,
    (select seq from {schema}.records where rid = r.rid order by seq desc limit 1),
    (select turn from {schema}.turns where rid = r.rid and finished is null order by submitted limit 1),
    r.moved_to, r.building is not null
from {schema}.runs r left join {schema}.queue q on q.rid = r.rid
where r.namespace = %(namespace)s::text and r.run = %(run)s::text;

-- name: list_runs
-- In listings rows are compared, and nothing for being equal: else the planner takes that for ordered by rid, and walks
-- through all runs where it knows nothing of a small namespace, agent or status. So it is the index of that order.
select
    r.run, r.agent, r.namespace, q.status, r.closed_at is not null, r.created, r.turns, q.epoch, q.takeovers, q.due_at,
    r.rid,
    (select seq from {schema}.records where rid = r.rid order by seq desc limit 1),
    (select turn from {schema}.turns where rid = r.rid and finished is null order by submitted limit 1),
    r.moved_to, r.building is not null
from {schema}.runs r join {schema}.queue q on q.rid = r.rid
where r.namespace >= %(namespace)s::text and (r.namespace, r.rid) < (%(namespace)s::text, %(before)s::bigint)
    and r.gone_until is null
order by r.namespace desc, r.rid desc limit %(limit)s::bigint;

-- name: list_runs_by_agent
select
    r.run, r.agent, r.namespace, q.status, r.closed_at is not null, r.created, r.turns, q.epoch, q.takeovers, q.due_at,
    r.rid,
    (select seq from {schema}.records where rid = r.rid order by seq desc limit 1),
    (select turn from {schema}.turns where rid = r.rid and finished is null order by submitted limit 1),
    r.moved_to, r.building is not null
from {schema}.runs r join {schema}.queue q on q.rid = r.rid
where (r.namespace, r.agent) >= (%(namespace)s::text, %(agent)s::text)
    and (r.namespace, r.agent, r.rid) < (%(namespace)s::text, %(agent)s::text, %(before)s::bigint)
    and r.gone_until is null
order by r.namespace desc, r.agent desc, r.rid desc limit %(limit)s::bigint;

-- name: list_runs_by_status
-- The agent is compared afterwards, where one is given: the status narrows more.
select
    r.run, r.agent, r.namespace, q.status, r.closed_at is not null, r.created, r.turns, q.epoch, q.takeovers, q.due_at,
    r.rid,
    (select seq from {schema}.records where rid = r.rid order by seq desc limit 1),
    (select turn from {schema}.turns where rid = r.rid and finished is null order by submitted limit 1),
    r.moved_to, r.building is not null
from {schema}.queue q join {schema}.runs r on r.rid = q.rid
where (q.namespace, q.status) >= (%(namespace)s::text, %(status)s::text)
    and (q.namespace, q.status, q.rid) < (%(namespace)s::text, %(status)s::text, %(before)s::bigint)
    and r.gone_until is null and (%(agent)s::text is null or q.agent = %(agent)s::text)
order by q.namespace desc, q.status desc, q.rid desc limit %(limit)s::bigint;

-- name: signs
-- How far each watched run has come: what another process wrote shows here.
select
    r.run, r.gone_until, r.moved_to,
    (select seq from {schema}.records where rid = r.rid order by seq desc limit 1),
    (select seq from {schema}.deltas where rid = r.rid order by seq desc, sub desc limit 1),
    (select sub from {schema}.deltas where rid = r.rid order by seq desc, sub desc limit 1)
from unnest(%(runs)s::text[]) w (run)
join {schema}.runs r on r.namespace = %(namespace)s::text and r.run = w.run;

-- name: sweepable
-- By a time that stands still during the statement: only that can be looked up in an index.
select rid from {schema}.runs
where namespace = %(namespace)s::text and closed_at is not null and gone_until is null
    and closed_at <= coalesce(%(at)s::double precision, extract(epoch from statement_timestamp())::double precision)
        - %(seconds)s::double precision
order by closed_at limit %(limit)s::bigint;

-- name: sweepable_moved
select rid from {schema}.runs
where namespace = %(namespace)s::text and run = any (%(runs)s::text[]) and moved_to is not null and gone_until is null
limit %(limit)s::bigint;

-- name: bury
select {schema}.bury(%(at)s::double precision, %(rid)s::bigint, %(seconds)s::double precision);

-- name: unemptied
-- A sweep that was interrupted left these; the next one goes on with them.
select rid from {schema}.runs
where namespace = %(namespace)s::text and gone_until is not null and not is_emptied limit %(limit)s::bigint;

-- name: empty
select {schema}.empty(%(rid)s::bigint, %(limit)s::integer);

-- name: forget
select {schema}.forget(%(at)s::double precision, %(namespace)s::text, %(limit)s::integer);

-- name: next_with_deltas
-- Step from one run that has deltas to the next.
select d.rid, r.namespace from {schema}.deltas d join {schema}.runs r on r.rid = d.rid
where d.rid > %(rid)s::bigint order by d.rid limit 1;

-- name: drop_old_deltas
-- Those of turns that ended long enough ago.
delete from {schema}.deltas where rid = %(rid)s::bigint and seq < coalesce((
    select max(finished) from {schema}.turns
    where rid = %(rid)s::bigint and finished is not null
        and ended <= coalesce(%(at)s::double precision, extract(epoch from clock_timestamp())::double precision)
            - %(seconds)s::double precision
), 0);

-- name: note_worker
-- Others who forget the same silent ones at this moment are let be.
with now as (
    select coalesce(%(at)s::double precision, extract(epoch from clock_timestamp())::double precision) as now
), silent as (
    select w.worker from {schema}.workers w, now
    where w.namespace = %(namespace)s::text and w.seen < now.now - %(seconds)s::double precision
        and w.worker <> %(worker)s::bytea
    for update of w skip locked
), forgotten as (
    delete from {schema}.workers w using silent where w.namespace = %(namespace)s::text and w.worker = silent.worker
)
insert into {schema}.workers as w (namespace, worker, info, seen)
select %(namespace)s::text, %(worker)s::bytea, %(info)s::bytea, now.now from now
on conflict (namespace, worker) do update set info = excluded.info, seen = excluded.seen;

-- name: forget_worker
delete from {schema}.workers where namespace = %(namespace)s::text and worker = %(worker)s::bytea;

-- name: list_workers
select info, seen from {schema}.workers
where namespace = %(namespace)s::text
    and seen >= coalesce(%(at)s::double precision, extract(epoch from clock_timestamp())::double precision)
        - %(seconds)s::double precision
order by worker;

-- name: count_runs
-- Looks at every run: for people who ask now and then. The cases are those of `queue.standing`.
select
    q.agent,
    case
        when q.token is not null then 'held'
        when q.due_at <= now.now then 'due'
        when q.due_at is not null then 'later'
        when q.status in ('parked', 'blocked') then q.status
        else 'idle'
    end as place,
    count(*),
    min(q.due_at)
from (
    select coalesce(%(at)s::double precision, extract(epoch from clock_timestamp())::double precision) as now
) now, {schema}.queue q join {schema}.runs r on r.rid = q.rid
where q.namespace = %(namespace)s::text and r.closed_at is null and r.building is null
group by 1, 2;

-- name: image
-- The whole of it as of one moment.
select
    r.rid, r.closed_at is not null, r.gone_until is not null,
    coalesce(
        r.gone_until > coalesce(%(at)s::double precision, extract(epoch from clock_timestamp())::double precision), false
    ),
    r.moved_to, r.agent, r.created, q.min_reader, r.closed_at, q.epoch, q.status, q.priority, q.due_at, q.takeovers,
    coalesce(
        q.token is not null
        and q.lease_until > coalesce(%(at)s::double precision, extract(epoch from clock_timestamp())::double precision),
        false
    ),
    q.token is not null,
    r.building is not null,
    coalesce((select seq from {schema}.records where rid = r.rid order by seq desc limit 1), 0),
    array(select turn from {schema}.turns where rid = r.rid order by submitted, turn),
    array(select submitted from {schema}.turns where rid = r.rid order by submitted, turn),
    array(select status from {schema}.turns where rid = r.rid order by submitted, turn),
    array(select finished from {schema}.turns where rid = r.rid order by submitted, turn),
    array(select key from {schema}.keys where rid = r.rid order by key),
    array(select digest from {schema}.keys where rid = r.rid order by key),
    array(select first from {schema}.keys where rid = r.rid order by key),
    array(select last from {schema}.keys where rid = r.rid order by key),
    array(select time from {schema}.keys where rid = r.rid order by key),
    array(select id from {schema}.blobs where rid = r.rid order by id)
from {schema}.runs r left join {schema}.queue q on q.rid = r.rid
where r.namespace = %(namespace)s::text and r.run = %(run)s::text;

-- name: build
select answer, head, moved_to from {schema}.build(
    %(at)s::double precision, %(namespace)s::text, %(lock)s::bigint, %(run)s::text, %(agent)s::text,
    %(created)s::double precision, %(min_reader)s::bigint, %(status)s::text, %(priority)s::bigint, %(epoch)s::bigint,
    %(takeovers)s::bigint, %(building)s::bytea,
    %(t_turn)s::bytea[], %(t_submitted)s::bigint[], %(t_status)s::text[], %(t_finished)s::bigint[],
    %(k_key)s::bytea[], %(k_digest)s::bytea[], %(k_first)s::bigint[], %(k_last)s::bigint[],
    %(k_time)s::double precision[],
    %(r_seq)s::bigint[], %(r_time)s::double precision[], %(r_type)s::text[], %(r_turn)s::bytea[], %(r_key)s::bytea[],
    %(r_epoch)s::bigint[], %(r_batch)s::bytea[], %(r_body)s::bytea[], %(r_checksum)s::bigint[], %(r_key_id)s::bytea[],
    %(l_id)s::bytea[], %(l_checksum)s::bigint[], %(l_data)s::bytea[]
);

-- name: get_building
select
    r.rid, r.closed_at is not null, r.gone_until is not null,
    coalesce(
        r.gone_until > coalesce(%(at)s::double precision, extract(epoch from clock_timestamp())::double precision), false
    ),
    r.moved_to, r.building, coalesce((select seq from {schema}.records where rid = r.rid order by seq desc limit 1), 0)
from {schema}.runs r where r.namespace = %(namespace)s::text and r.run = %(run)s::text;

-- name: settle
select {schema}.settle(
    %(lock)s::bigint, %(rid)s::bigint, %(building)s::bytea, %(head)s::bigint, %(status)s::text,
    %(due_at)s::double precision, %(closed)s::double precision
);

-- name: notify
-- Tried and given back at once: which ears are free? Held for the transaction it would look like an ear to others.
-- Of work everybody is told.
with tried as materialized (
    select ear, case
        when pg_try_advisory_lock($3::integer, ear::integer) then pg_advisory_unlock($3::integer, ear::integer)
        else false
    end as is_free
    from unnest($4::bigint[]) ear
)
select
    array(select ear from tried where is_free),
    case when $5::boolean or exists (select from tried where not is_free) then pg_notify($1::text, $2::text) end;

-- name: hold_ears
select count(pg_advisory_lock_shared($1::integer, ear::integer)) from unnest($2::bigint[]) ear;

-- name: drop_ears
select count(pg_advisory_unlock_shared($1::integer, ear::integer)) from unnest($2::bigint[]) ear;
