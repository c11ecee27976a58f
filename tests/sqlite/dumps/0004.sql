BEGIN TRANSACTION;
CREATE TABLE blobs (
    rid integer not null,
    id text not null,
    checksum integer not null,
    data blob not null,
    unique (rid, id)
);
INSERT INTO "blobs" VALUES(1,'b1',579872904,X'6120626C6F62');
CREATE TABLE deltas (
    rid integer not null,
    seq integer not null,
    sub integer not null,
    time real not null,
    call text not null,
    number integer not null,
    data blob not null,
    primary key (rid, seq, sub)
) without rowid;
INSERT INTO "deltas" VALUES(1,5,1,1.79608246693976926801e+09,'c',1,X'22706965636522');
CREATE TABLE keys (
    rid integer not null,
    key text not null,
    digest blob not null,
    first integer not null,
    last integer not null,
    time real not null,
    primary key (rid, key)
) without rowid;
INSERT INTO "keys" VALUES(1,'submit:t1',X'646967657374',1,2,1.79608246691217637068e+09);
INSERT INTO "keys" VALUES(2,'submit:t1',X'646967657374',1,2,1.79608246695545029645e+09);
INSERT INTO "keys" VALUES(3,'close',X'646967657374',4,4,1.79608246695901584621e+09);
INSERT INTO "keys" VALUES(3,'submit:t1',X'646967657374',1,2,1.79608246695674228675e+09);
CREATE TABLE records (
    rid integer not null,
    seq integer not null,
    time real not null,
    type text not null,
    turn text,
    key text,
    epoch integer not null,
    batch_id blob not null,
    body blob not null,
    checksum integer not null,
    key_id text
, segment integer not null default 0);
INSERT INTO "records" VALUES(1,1,1.79608246691217637068e+09,'run.created',NULL,NULL,0,X'3BC799DD361678D43F247746BD722592',X'82A56167656E74A56167656E74A56E6F6E6365C4106E6E6E6E6E6E6E6E6E6E6E6E6E6E6E6E',547040207,NULL,1);
INSERT INTO "records" VALUES(1,2,1.79608246691217637068e+09,'turn.submitted','t1',NULL,0,X'3BC799DD361678D43F247746BD722592',X'82A5696E707574C4072268656C6C6F22AC696E7075745F646967657374C406646967657374',1865879389,NULL,1);
INSERT INTO "records" VALUES(1,3,1.79608246692471837996e+09,'turn.started','t1',NULL,1,X'E1CED35C14AA2B5B87744DFF0CCCF97E',X'82A6776F726B6572A177A7617474656D707401',2904681126,NULL,1);
INSERT INTO "records" VALUES(1,4,1796082466.92709,'call.outcome','t1','c',1,X'60DE3016B38CED1BC82FAB7304619713',X'82A6737461747573A26F6BA576616C7565C40131',1969635166,NULL,1);
INSERT INTO "records" VALUES(1,5,1.79608246693119120596e+09,'call.outcome','t1','d',1,X'F5ED93D6948E823F70B58269D86769A8',X'82A6737461747573A26F6BA576616C7565C40131',2913289336,NULL,2);
INSERT INTO "records" VALUES(1,6,1.79608246694022536272e+09,'turn.finished','t1',NULL,1,X'C43B23001EFF9BBD49D9A5D3846CB814',X'81A6737461747573A9737563636565646564',1439212297,NULL,2);
INSERT INTO "records" VALUES(2,1,1.79608246695545029645e+09,'run.created',NULL,NULL,0,X'9D49C7F57B622BB62979D45742B59BBC',X'82A56167656E74A56167656E74A56E6F6E6365C4106E6E6E6E6E6E6E6E6E6E6E6E6E6E6E6E',2691791145,NULL,2);
INSERT INTO "records" VALUES(2,2,1.79608246695545029645e+09,'turn.submitted','t1',NULL,0,X'9D49C7F57B622BB62979D45742B59BBC',X'82A5696E707574C4072268656C6C6F22AC696E7075745F646967657374C406646967657374',652124738,NULL,2);
INSERT INTO "records" VALUES(3,1,1.79608246695674228675e+09,'run.created',NULL,NULL,0,X'A509C3B9EF2FD911EE13C23E9835BF28',X'82A56167656E74A56167656E74A56E6F6E6365C4106E6E6E6E6E6E6E6E6E6E6E6E6E6E6E6E',2483341593,NULL,3);
INSERT INTO "records" VALUES(3,2,1.79608246695674228675e+09,'turn.submitted','t1',NULL,0,X'A509C3B9EF2FD911EE13C23E9835BF28',X'82A5696E707574C4072268656C6C6F22AC696E7075745F646967657374C406646967657374',3401566,NULL,3);
INSERT INTO "records" VALUES(3,3,1.79608246695829987518e+09,'turn.finished','t1',NULL,1,X'1B9E8B601B808AC3AE2A9055BB35462A',X'81A6737461747573A9737563636565646564',2383215650,NULL,3);
INSERT INTO "records" VALUES(3,4,1.79608246695901584621e+09,'run.closed',NULL,NULL,0,X'23E8DBCFFE74E28653BD3E8B6F87A127',X'80',4189105719,NULL,3);
CREATE TABLE runs (
    rid integer primary key autoincrement,
    namespace text not null,
    run text not null,
    agent text not null,
    created real not null,
    turns integer not null default 0,
    status text not null,
    priority integer not null default 0,
    due_at real,
    epoch integer not null default 0,
    token blob,
    woken integer not null default 0,
    takeovers integer not null default 0,
    draining integer not null default 0,
    min_reader integer not null default 1,
    -- The holder's last batch that brought no record, for lack of a record that carries its id.
    last_batch blob,
    last_head integer,
    last_time real,
    -- The lease, on the clock that `boot` names; the holder's byte in the lock file that `holder_file` names.
    lease_until real,
    boot text,
    holder integer,
    holder_file integer,
    closed_at real,
    -- A tombstone: until when it holds the id, whether its records are gone, and what they hashed to.
    gone_until real,
    is_emptied integer not null default 0,
    digest blob
, moved_to text, building blob);
INSERT INTO "runs" VALUES(1,'default','order-42','agent',1.79608246691217637068e+09,1,'succeeded',0,NULL,1,NULL,0,0,0,1,NULL,NULL,NULL,83875.932708452,'01e1a55e-3656-4b11-86a4-457ebfec8171',4605258998366553028,2279829,NULL,NULL,0,NULL,NULL,NULL);
INSERT INTO "runs" VALUES(2,'default','order-43','agent',1.79608246695545029645e+09,1,'pending',0,1.79608246695545029645e+09,0,NULL,0,0,0,1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL);
INSERT INTO "runs" VALUES(3,'default','order-44','agent',1.79608246695674228675e+09,1,'succeeded',0,NULL,1,NULL,0,0,0,1,NULL,NULL,NULL,83875.967032669,'01e1a55e-3656-4b11-86a4-457ebfec8171',4605258998366553028,2279829,1.79608246695901584621e+09,NULL,0,NULL,NULL,NULL);
CREATE TABLE segments (
    rid integer not null,
    segment integer not null,
    first integer not null,
    primary key (rid, segment)
) without rowid;
INSERT INTO "segments" VALUES(1,1,1);
INSERT INTO "segments" VALUES(1,2,5);
INSERT INTO "segments" VALUES(2,2,1);
INSERT INTO "segments" VALUES(3,3,1);
CREATE TABLE turns (
    rid integer not null,
    turn text not null,
    submitted integer not null,
    status text,
    finished integer,
    ended real,
    primary key (rid, turn)
) without rowid;
INSERT INTO "turns" VALUES(1,'t1',2,'succeeded',6,1.79608246694022536272e+09);
INSERT INTO "turns" VALUES(2,'t1',2,NULL,NULL,NULL);
INSERT INTO "turns" VALUES(3,'t1',2,'succeeded',3,1.79608246695829987518e+09);
CREATE TABLE versions (version integer primary key, compatible_from integer not null);
INSERT INTO "versions" VALUES(1,1);
INSERT INTO "versions" VALUES(2,2);
INSERT INTO "versions" VALUES(3,2);
INSERT INTO "versions" VALUES(4,4);
CREATE TABLE workers (
    namespace text not null,
    worker text not null,
    info blob not null,
    seen real not null,
    primary key (namespace, worker)
) without rowid;
CREATE UNIQUE INDEX runs_by_name on runs (namespace, run);
CREATE INDEX runs_by_age on runs (namespace, rid) where gone_until is null;
CREATE INDEX runs_by_status on runs (namespace, status, rid) where gone_until is null;
CREATE INDEX runs_by_agent on runs (namespace, agent, rid) where gone_until is null;
CREATE INDEX runs_due on runs (namespace, agent, priority, due_at) where token is null and due_at is not null;
CREATE INDEX runs_held on runs (namespace, boot, lease_until) where token is not null;
CREATE INDEX runs_by_holder on runs (holder, holder_file) where token is not null;
CREATE INDEX runs_closed on runs (namespace, closed_at) where closed_at is not null and gone_until is null;
CREATE INDEX runs_gone on runs (namespace, gone_until) where gone_until is not null;
CREATE TRIGGER records_never_change before update on records
begin
    select raise(abort, 'records are append-only');
end;
CREATE TRIGGER records_never_go before delete on records
when (select gone_until from runs where rid = old.rid) is null
begin
    select raise(abort, 'records are append-only');
end;
CREATE INDEX turns_unfinished on turns (rid, submitted) where finished is null;
CREATE UNIQUE INDEX records_by_segment on records (segment, rid, seq);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('runs',3);
COMMIT;
PRAGMA application_id = 1246907980;
PRAGMA user_version = 4;
