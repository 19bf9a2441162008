-- A checksum of each event over its run's id and all that its row says, see `store/checksum.rs`. It is null in the rows of
-- older servers, which nobody can verify. That of a first event covers the digest of its spec, too.

ALTER TABLE run_events ADD COLUMN checksum INTEGER;
ALTER TABLE kept_events ADD COLUMN checksum INTEGER;
