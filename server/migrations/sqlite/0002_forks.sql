-- Sessions that begin with the entries of another.

-- Of a fork: the session that it was made from, the last entry that both share, and the entry that was asked for,
-- where 0 meant all.
ALTER TABLE sessions ADD COLUMN forked_from TEXT;
ALTER TABLE sessions ADD COLUMN forked_at INTEGER;
ALTER TABLE sessions ADD COLUMN forked_asked INTEGER;

-- Where the event of a shared entry stands. owner: in the journal of a run of this other session. keep: in kept_events,
-- since that session was deleted. Neither: in the journal of a run of the entry's own session.
ALTER TABLE session_entries ADD COLUMN owner TEXT;
ALTER TABLE session_entries ADD COLUMN keep INTEGER;

-- What other sessions have of a session, when it is deleted.
CREATE INDEX session_entries_lent ON session_entries (tenant, owner, run_id, seq)
    WHERE owner IS NOT NULL;

-- Who has a kept event, when one of them is deleted.
CREATE INDEX session_entries_kept ON session_entries (tenant, keep, run_id, seq)
    WHERE keep IS NOT NULL;

-- Events of deleted sessions that forks have as entries; each goes with the last entry that refers to it. keep is a
-- number per deletion, since the ids of what was deleted may be used again.
CREATE TABLE kept_events (
    tenant  TEXT    NOT NULL,
    keep    INTEGER NOT NULL CHECK (keep > 0),
    run_id  TEXT    NOT NULL,
    seq     INTEGER NOT NULL CHECK (seq > 0),
    at      INTEGER NOT NULL,
    kind    TEXT    NOT NULL,
    status  TEXT    NOT NULL,
    version INTEGER NOT NULL,
    payload TEXT    NOT NULL,
    PRIMARY KEY (tenant, keep, run_id, seq)
) STRICT, WITHOUT ROWID;
