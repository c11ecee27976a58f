-- Every statement of the SQLite world, by name. `-- name:` starts one; the comment below it says why it is as it is.

-- name: look
-- All that the door must know of a run, in one go: its row, and the last record. A swept run has no records.
select
    r.rid, r.closed_at, r.gone_until, r.is_emptied, r.epoch, r.token, r.takeovers, r.last_batch, r.last_head, r.last_time,
    r.moved_to, r.building is not null, coalesce(h.seq, 0), h.batch_id, coalesce(h.segment, 0)
from runs r left join records h
    on h.rid = r.rid and h.segment = (select max(segment) from segments where rid = r.rid)
where r.namespace = ? and r.run = ?
order by h.seq desc limit 1;

-- name: head
select max(seq) from records where rid = ?1 and segment = (select max(segment) from segments where rid = ?1);

-- name: last_row
-- What the records of all runs have come to.
select coalesce(max(rowid), 0) from records;

-- name: open_segment
insert into segments (rid, segment, first) values (?, ?, ?);

-- name: find_batch
-- Backwards, since what is asked for again is nearly always at the end. Not indexed: one more index entry a batch
-- costs every append, and this is asked only where the last record is not of the batch before.
select h.seq from segments s cross join records h on h.segment = s.segment and h.rid = s.rid
where s.rid = ?1 and h.batch_id = ?2 and h.seq > ?3
    and s.segment >= (select segment from segments where rid = ?1 and first <= ?3 + 1 order by segment desc limit 1)
order by s.segment desc, h.seq desc limit 1;

-- name: landed
-- First, last and time of a batch, by its last record: its records are neighbours.
select
    coalesce((
        select h.seq from segments s cross join records h on h.segment = s.segment and h.rid = s.rid
        where s.rid = :rid and s.first <= :last and h.seq < :last and h.batch_id <> :batch
        order by s.segment desc, h.seq desc limit 1
    ), 0) + 1,
    :last,
    (select time from records where rid = :rid and seq = :last and segment = (
        select segment from segments where rid = :rid and first <= :last order by segment desc limit 1
    ));

-- name: find_key
select first, last, time, digest from keys where rid = ? and key = ?;

-- name: add_run
insert into runs (namespace, run, agent, created, min_reader, status) values (?, ?, ?, ?, ?, 'pending');

-- name: forget_run
-- An expired tombstone gives its id back.
delete from runs where rid = ? and gone_until is not null;

-- name: forget_keys
delete from keys where rid = ?;

-- name: add_record
insert into records (rid, segment, seq, time, type, turn, key, epoch, batch_id, body, checksum, key_id)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_plain
-- As `add_record`, for values that are not encrypted.
insert into records (rid, segment, seq, time, epoch, batch_id, type, turn, key, body, checksum)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_next
-- The same by a holder that has not looked: nothing goes in unless the claim still holds. The index refuses a seq that is
-- taken in this segment; whoever came between us and opened another one is seen there. What the records of the batch have
-- in common is bound once.
insert into records (rid, seq, time, epoch, batch_id, turn, segment, type, key, body, checksum)
select * from (values (?1, ?2, ?3, ?4, ?5, ?6, ?8, ?9, ?10, ?11, ?12))
where exists (select 1 from runs where rid = ?1 and epoch = ?4 and token = ?7)
    and not exists (select 1 from segments where rid = ?1 and segment > ?8);

-- name: add_key
insert into keys (rid, key, digest, first, last, time) values (?, ?, ?, ?, ?, ?);

-- name: add_blob
-- Named by its digest, so the same blob twice is the same blob.
insert or ignore into blobs (rid, id, checksum, data) values (?, ?, ?, ?);

-- name: note_batch
update runs set last_batch = ?, last_head = ?, last_time = ? where rid = ?;

-- name: add_turn
insert into turns (rid, turn, submitted) values (?, ?, ?);

-- name: count_turn
update runs set turns = turns + 1 where rid = ?;

-- name: finish_turn
-- The first end counts.
update turns set status = ?, finished = ?, ended = ? where rid = ? and turn = ? and finished is null;

-- name: reopen_turn
update turns set status = null, finished = null, ended = null where rid = ? and turn = ?;

-- name: count_unfinished
select count(*) from turns where rid = ? and finished is null;

-- name: oldest_unfinished
select turn, submitted from turns where rid = ? and finished is null order by submitted limit 1;

-- name: get_entry
select agent, priority, due_at, epoch, token, woken, takeovers, draining, min_reader, status
from runs where rid = ?;

-- name: set_entry
update runs
set priority = ?, due_at = ?, epoch = ?, token = ?, woken = ?, takeovers = ?, draining = ?, min_reader = ?, status = ?
where rid = ?;

-- name: close_run
-- Its entry is removed: nothing is due, nobody holds it. The epoch stays for those who ask with an old one.
update runs
set closed_at = ?, due_at = null, token = null, woken = 0, draining = 0,
    status = case status when 'running' then 'pending' else status end
where rid = ?;

-- name: move_run
-- As if it were closed, unless it is; and it says where it went.
update runs
set moved_to = ?, closed_at = coalesce(closed_at, ?), due_at = null, token = null, woken = 0, draining = 0,
    status = case status when 'running' then 'pending' else status end
where rid = ?;

-- name: next_agent
-- Step from one agent that has something unclaimed to the next: few seeks however many runs there are.
select agent from runs indexed by runs_due
where namespace = ? and agent > ? and token is null and due_at is not null
order by agent limit 1;

-- name: next_priority
-- Step from one priority to the next lower one; a plain ORDER BY would wade through timers not yet due.
select priority from runs indexed by runs_due
where namespace = ? and agent = ? and token is null and due_at is not null and priority < ?
order by priority desc limit 1;

-- name: due_entries
select rid, priority, due_at from runs indexed by runs_due
where namespace = ? and agent = ? and priority = ? and token is null and due_at <= ? and min_reader <= ?
order by due_at limit ?;

-- name: next_due
select due_at from runs indexed by runs_due
where namespace = ? and agent = ? and priority = ? and token is null and due_at > ? and min_reader <= ?
order by due_at limit 1;

-- name: expired_leases
-- Of this boot and over, or of another boot, whose clock means nothing any more.
select rid, priority, coalesce(due_at, 0) from runs indexed by runs_held
where namespace = :namespace and boot = :boot and lease_until <= :boottime and token is not null
    and min_reader <= :reads and (:agents is null or agent in (select value from json_each(:agents)))
union all
select rid, priority, coalesce(due_at, 0) from runs indexed by runs_held
where namespace = :namespace and boot < :boot and token is not null
    and min_reader <= :reads and (:agents is null or agent in (select value from json_each(:agents)))
union all
select rid, priority, coalesce(due_at, 0) from runs indexed by runs_held
where namespace = :namespace and boot > :boot and token is not null
    and min_reader <= :reads and (:agents is null or agent in (select value from json_each(:agents)));

-- name: next_lease
select lease_until from runs indexed by runs_held
where namespace = :namespace and boot = :boot and lease_until > :boottime and token is not null
    and min_reader <= :reads and (:agents is null or agent in (select value from json_each(:agents)))
order by lease_until limit 1;

-- name: next_holder
-- Step from one holder to the next: there are as many as worlds are open, not as many as claims.
select holder, holder_file from runs indexed by runs_by_holder
where token is not null and holder > ?
order by holder limit 1;

-- name: held_by
select rid, priority, coalesce(due_at, 0) from runs indexed by runs_by_holder
where holder = :holder and token is not null and namespace = :namespace
    and min_reader <= :reads and (:agents is null or agent in (select value from json_each(:agents)));

-- name: get_lease
-- For a claim that names its run.
select rid, agent, due_at, token is not null, lease_until, boot, holder, holder_file, min_reader
from runs where namespace = ? and run = ? and gone_until is null and closed_at is null;

-- name: take_entry
update runs
set epoch = ?, token = ?, woken = ?, takeovers = ?, draining = ?, status = ?,
    lease_until = ?, boot = ?, holder = ?, holder_file = ?
where rid = ?;

-- name: claimed_run
select run, (select max(seq) from records where rid = r.rid and segment = (select max(segment) from segments where rid = r.rid)) from runs r where rid = ?;

-- name: renew
update runs set lease_until = ?, boot = ? where namespace = ? and run = ? and epoch = ? and token = ?;

-- name: find_run
select rid, closed_at, gone_until, moved_to, building is not null from runs where namespace = ? and run = ?;

-- name: read_records
-- From the segment on in which the first of them lies.
select h.seq, h.time, h.type, h.turn, h.key, h.epoch, h.batch_id, h.body, h.checksum, h.key_id
from segments s cross join records h on h.segment = s.segment and h.rid = s.rid
where s.rid = ?1 and h.seq > ?2
    and s.segment >= (select segment from segments where rid = ?1 and first <= ?2 + 1 order by segment desc limit 1)
order by s.segment, h.seq limit ?3;

-- name: read_deltas
-- Up to the record that the reader has reached; what lies behind a later record comes after it.
select seq, sub, time, call, number, data from deltas
where rid = ? and (seq, sub) > (?, ?) and seq <= ? order by seq, sub limit ?;

-- name: get_blob
select data, checksum from blobs where rid = ? and id = ?;

-- name: get_turn
select turn, submitted, status, finished from turns where rid = ? and turn = ?;

-- name: get_info
select
    r.run, r.agent, r.namespace, r.status, r.closed_at is not null and r.building is null, r.created, r.turns, r.epoch, r.takeovers, r.due_at,
    r.rid, r.gone_until,
    (select max(seq) from records where rid = r.rid and segment = (select max(segment) from segments where rid = r.rid)),
    (select turn from turns where rid = r.rid and finished is null order by submitted limit 1),
    r.moved_to, r.building is not null
from runs r where r.namespace = ? and r.run = ?;

-- name: list_runs
select
    r.run, r.agent, r.namespace, r.status, r.closed_at is not null and r.building is null, r.created, r.turns, r.epoch, r.takeovers, r.due_at,
    r.rid, r.gone_until,
    (select max(seq) from records where rid = r.rid and segment = (select max(segment) from segments where rid = r.rid)),
    (select turn from turns where rid = r.rid and finished is null order by submitted limit 1),
    r.moved_to, r.building is not null
from runs r indexed by runs_by_age
where r.namespace = :namespace and r.rid < :before and r.gone_until is null
order by r.rid desc limit :limit;

-- name: list_runs_by_agent
select
    r.run, r.agent, r.namespace, r.status, r.closed_at is not null and r.building is null, r.created, r.turns, r.epoch, r.takeovers, r.due_at,
    r.rid, r.gone_until,
    (select max(seq) from records where rid = r.rid and segment = (select max(segment) from segments where rid = r.rid)),
    (select turn from turns where rid = r.rid and finished is null order by submitted limit 1),
    r.moved_to, r.building is not null
from runs r indexed by runs_by_agent
where r.namespace = :namespace and r.agent = :agent and r.rid < :before and r.gone_until is null
order by r.rid desc limit :limit;

-- name: list_runs_by_status
-- The agent is compared afterwards, where one is given: the status narrows more.
select
    r.run, r.agent, r.namespace, r.status, r.closed_at is not null and r.building is null, r.created, r.turns, r.epoch, r.takeovers, r.due_at,
    r.rid, r.gone_until,
    (select max(seq) from records where rid = r.rid and segment = (select max(segment) from segments where rid = r.rid)),
    (select turn from turns where rid = r.rid and finished is null order by submitted limit 1),
    r.moved_to, r.building is not null
from runs r indexed by runs_by_status
where r.namespace = :namespace and r.status = :status and r.rid < :before and r.gone_until is null
    and (:agent is null or r.agent = :agent)
order by r.rid desc limit :limit;

-- name: last_delta
select sub from deltas where rid = ? and seq = ? order by sub desc limit 1;

-- name: add_delta
insert into deltas (rid, seq, sub, time, call, number, data) values (?, ?, ?, ?, ?, ?, ?);

-- name: signs
-- How far each watched run has come: what another process wrote shows here.
select
    r.run, r.gone_until, r.moved_to,
    (select max(seq) from records where rid = r.rid and segment = (select max(segment) from segments where rid = r.rid)),
    (select seq from deltas where rid = r.rid order by seq desc, sub desc limit 1),
    (select sub from deltas where rid = r.rid order by seq desc, sub desc limit 1)
from runs r where r.run in (select value from json_each(?)) and r.namespace = ?;

-- name: sweepable
select rid from runs indexed by runs_closed
where namespace = ? and closed_at <= ? and closed_at is not null and gone_until is null
order by closed_at limit ?;

-- name: sweepable_moved
select rid from runs
where namespace = ? and run in (select value from json_each(?)) and moved_to is not null and gone_until is null
limit ?;

-- name: bury
update runs set gone_until = ?, due_at = null, token = null, digest = ? where rid = ?;

-- name: checksums
select h.checksum
from segments s cross join records h on h.segment = s.segment and h.rid = s.rid
where s.rid = ?1 and h.seq > ?2
    and s.segment >= (select segment from segments where rid = ?1 and first <= ?2 + 1 order by segment desc limit 1)
order by s.segment, h.seq limit ?3;

-- name: unemptied
-- A sweep that was interrupted left these; the next one goes on with them.
select rid from runs indexed by runs_gone
where namespace = ? and gone_until is not null and is_emptied = 0 limit ?;

-- name: drop_records
delete from records where rowid in (
    select h.rowid from segments s cross join records h on h.segment = s.segment and h.rid = s.rid
    where s.rid = :rid order by s.segment, h.seq limit :limit
);

-- name: drop_segments
-- Behind the last of their records.
delete from segments
where rid = :rid and segment in (select segment from segments where rid = :rid order by segment limit :limit);

-- name: drop_blobs
delete from blobs where rowid in (select rowid from blobs where rid = :rid limit :limit);

-- name: drop_deltas
delete from deltas
where rid = :rid and (seq, sub) in (select seq, sub from deltas where rid = :rid order by seq, sub limit :limit);

-- name: drop_turns
delete from turns where rid = :rid and turn in (select turn from turns where rid = :rid limit :limit);

-- name: drop_moved_keys
-- Those of a run that was moved are known where it lives now.
delete from keys where rid = :rid and key in (select key from keys where rid = :rid limit :limit)
    and exists (select 1 from runs where rid = :rid and moved_to is not null);

-- name: mark_emptied
update runs set is_emptied = 1 where rid = ?;

-- name: expired_tombstones
select rid from runs indexed by runs_gone
where namespace = ? and gone_until <= ? and gone_until is not null and is_emptied = 1 limit ?;

-- name: next_with_deltas
-- Step from one run that has deltas to the next.
select d.rid, r.namespace from deltas d join runs r on r.rid = d.rid where d.rid > ? order by d.rid limit 1;

-- name: drop_old_deltas
-- Those of turns that ended long enough ago.
delete from deltas where rid = :rid and seq < coalesce(
    (select max(finished) from turns where rid = :rid and finished is not null and ended <= :before), 0);

-- name: name_of
select run, moved_to from runs where rid = ?;

-- name: note_worker
insert or replace into workers (namespace, worker, info, seen) values (?, ?, ?, ?);

-- name: forget_worker
delete from workers where namespace = ? and worker = ?;

-- name: forget_workers
delete from workers where namespace = ? and seen < ?;

-- name: list_workers
select info, seen from workers where namespace = ? and seen >= ? order by worker;

-- name: count_runs
-- Looks at every run: for people who ask now and then. The cases are those of `queue.standing`.
select
    agent,
    case
        when token is not null then 'held'
        when due_at <= :now then 'due'
        when due_at is not null then 'later'
        when status in ('parked', 'blocked') then status
        else 'idle'
    end as place,
    count(*),
    min(due_at)
from runs
where namespace = :namespace and closed_at is null and gone_until is null and building is null
group by 1, 2;

-- name: image
select
    rid, gone_until, moved_to, agent, created, min_reader, case when building is null then closed_at end, epoch, status, priority, due_at, takeovers,
    building is not null, token is not null, lease_until, boot, holder, holder_file,
    (select max(seq) from records where rid = r.rid and segment = (select max(segment) from segments where rid = r.rid))
from runs r where namespace = ? and run = ?;

-- name: turns_of
select turn, submitted, status, finished from turns where rid = ?;

-- name: keys_of
select key, digest, first, last, time from keys where rid = ? order by key;

-- name: blobs_of
select id from blobs where rid = ? order by id;

-- name: get_building
select building from runs where rid = ?;

-- name: is_untouched
-- A settled copy that nobody has touched, and whose last record is that one.
select 1 from runs r join records h
    on h.rid = r.rid and h.seq = ?1
    and h.segment = (select segment from segments where rid = ?2 and first <= ?1 order by segment desc limit 1)
where r.rid = ?2 and r.closed_at is null and r.token is null and r.due_at is null and r.epoch <= ?3
    and (r.status = 'blocked' or not exists (select 1 from turns where rid = r.rid and finished is null))
    and h.batch_id = ?4 and h.time = ?5 and h.body = ?6;

-- name: build_run
-- Closed, for workers of the version before, at a time that no sweep comes to.
update runs
set closed_at = 9e15, agent = ?, created = ?, min_reader = ?, turns = ?, status = ?, priority = ?, epoch = ?, takeovers = ?, building = ?
where rid = ?;

-- name: forget_turns
delete from turns where rid = ?;

-- name: build_turn
insert into turns (rid, turn, submitted, status, finished) values (?, ?, ?, ?, ?);

-- name: settle_run
-- With a token it is claimed by nobody who lives: of no boot.
update runs set
    building = null, status = :status, due_at = :due_at, closed_at = :closed,
    token = :token, lease_until = 0, boot = '', holder = null, holder_file = null
where rid = :rid;
