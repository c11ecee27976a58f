-- An index that writes where the log ends. By (rid, seq) every run of a group rewrote a page of its own.
-- compatible from: 4

-- So many records, of whatever runs, that follow each other make a segment (`door.py`); those from before are segment 0.
alter table records add column segment integer not null default 0;
-- Under its old name it would be found by older workers that are still running, and they name no segment.
alter table records rename column batch to batch_id;

-- Where a run has records: its segments, in the order of its log, and the seq with which each begins.
create table segments (
    rid integer not null,
    segment integer not null,
    first integer not null,
    primary key (rid, segment)
) without rowid;

insert into segments select rid, 0, min(seq) from records group by rid;

create unique index records_by_segment on records (segment, rid, seq);
drop index records_by_seq;
