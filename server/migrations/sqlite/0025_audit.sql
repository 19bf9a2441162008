-- The audit log: who did what, from where, and whether it was allowed. Each row has the hash of the one before it, so that a
-- row that is changed, inserted or taken out breaks the chain. Rows are written with [audit] only, and never deleted by the
-- server. Nothing that is there is in it.
CREATE TABLE audit (
    no         INTEGER PRIMARY KEY,
    at         INTEGER NOT NULL,
    who        TEXT    NOT NULL,
    tenant     TEXT    NOT NULL,
    peer       TEXT    NOT NULL,
    what       TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    run_id     TEXT    NOT NULL,
    request_id TEXT    NOT NULL,
    tool       TEXT    NOT NULL,
    allowed    INTEGER NOT NULL,
    why        TEXT    NOT NULL,
    prev_hash  TEXT    NOT NULL,
    hash       TEXT    NOT NULL
) STRICT;

-- An operator reads the rows of one tenant.
CREATE INDEX audit_by_tenant ON audit (tenant, no);
