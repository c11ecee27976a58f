-- The locks of a group, in the order given: everybody sorts, so nobody waits in a circle. Held until the commit.
-- A function of its own, since what is looked up afterwards must be seen by a later snapshot than the wait's.
create or replace function {schema}.lock_runs(locks bigint[]) returns void language plpgsql as $$
begin
    perform pg_advisory_xact_lock(lock) from unnest(locks) lock;
end $$;
