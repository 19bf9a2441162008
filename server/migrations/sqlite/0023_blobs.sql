-- Contents that are too large for a message. Their bytes are files in the folder beside the database, whose names end in
-- their digests. A database that is there already has none.

-- Blobs of each tenant, by the 64 digits of their SHA-256. owner is the caller that stored the blob where callers see their
-- own alone, else ''. stored is 0 from before the file gets its name until it has it, and again from before the file is
-- deleted: what a crash leaves behind is found by its row.
CREATE TABLE blobs (
    tenant     TEXT    NOT NULL,
    digest     TEXT    NOT NULL,
    owner      TEXT    NOT NULL,
    size_bytes INTEGER NOT NULL,
    media_type TEXT    NOT NULL,
    touched_at INTEGER NOT NULL,
    stored     INTEGER NOT NULL,
    PRIMARY KEY (tenant, digest, owner)
) STRICT, WITHOUT ROWID;

-- All that have one file.
CREATE INDEX blobs_by_digest ON blobs (digest);

-- The blobs that the entries of a session name. A fork has those of the entries that it shares.
CREATE TABLE session_blobs (
    session_no INTEGER NOT NULL REFERENCES sessions (session_no) ON DELETE CASCADE,
    entry_no   INTEGER NOT NULL,
    digest     TEXT    NOT NULL,
    PRIMARY KEY (session_no, entry_no, digest)
) STRICT, WITHOUT ROWID;

CREATE INDEX session_blobs_by_digest ON session_blobs (digest);
