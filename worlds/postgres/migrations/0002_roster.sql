-- Who is at work: one row a worker, said again every few seconds, never relied on.
-- An unlogged table would be empty on a standby that takes over, and saves nothing at this pace.

create table {schema}.workers (
    namespace text collate "C" not null,
    worker bytea not null,
    -- msgpack, by the version of the worker that says it.
    info bytea not null,
    seen double precision not null,
    primary key (namespace, worker)
);
