-- Who is at work: one row a worker, said again every few seconds, never relied on.
create table workers (
    namespace text not null,
    worker text not null,
    info blob not null,
    seen real not null,
    primary key (namespace, worker)
) without rowid;
