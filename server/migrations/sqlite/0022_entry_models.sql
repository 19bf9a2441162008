-- The model of the run that an event was kept of, which lists of entries show. The runs of the events that are kept already
-- are gone, so nobody knows theirs.
ALTER TABLE kept_events ADD COLUMN model TEXT NOT NULL DEFAULT '';
