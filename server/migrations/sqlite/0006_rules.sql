-- Decisions that were remembered with their rules: derived from the answers in the journal, and deleted on their own.
-- session_id is null where the rule is for every run. rule is JSON.
CREATE TABLE remembered_rules (
    tenant     TEXT    NOT NULL,
    rule_id    TEXT    NOT NULL,
    session_id TEXT,
    request_id TEXT    NOT NULL,
    rule       TEXT    NOT NULL,
    decided_by TEXT    NOT NULL,
    decided_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, rule_id),
    FOREIGN KEY (tenant, session_id) REFERENCES sessions (tenant, session_id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- The rules of a session, or of every run, the oldest first.
CREATE INDEX remembered_rules_by_session ON remembered_rules (tenant, session_id, decided_at, rule_id);
