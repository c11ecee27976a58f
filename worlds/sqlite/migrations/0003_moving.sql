-- Runs that move between stores. Older code finds the door of a run that is being built up, or was moved, shut.
-- compatible from: 2

-- Where the run lives now. It is closed here from then on; a tombstone with an address keeps its id for ever.
alter table runs add column moved_to text;
-- While a copy of the run is being built up: its image (msgpack, without what has rows of its own). Until it is settled
-- nothing is due, nobody holds it, and the door is shut.
alter table runs add column building blob;
