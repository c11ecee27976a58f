-- Runs that move between stores. Older code finds the door of a run that is being built up, or was moved, shut.
-- compatible from: 2

alter table {schema}.runs
    -- Where the run lives now. It is closed here from then on; a tombstone with an address keeps its id for ever.
    add column moved_to text collate "C",
    -- While a copy of the run is being built up: its image (msgpack, without what has rows of its own). Until it is
    -- settled nothing is due, nobody holds it, and the door is shut.
    add column building bytea;
