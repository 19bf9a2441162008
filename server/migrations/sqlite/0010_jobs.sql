-- Work that follows runs, and what it leaves in their sessions.

-- What is still to be done. A row is written with the end of its run and goes when the job is done; kind says what,
-- and of which hook or source. attempts are those that failed, error is why the last one did.
CREATE TABLE jobs (
    tenant     TEXT    NOT NULL,
    run_id     TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    due_at     INTEGER NOT NULL,
    attempts   INTEGER NOT NULL DEFAULT 0,
    error      TEXT,
    PRIMARY KEY (tenant, run_id, kind),
    FOREIGN KEY (tenant, run_id) REFERENCES runs (tenant, run_id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- What is due.
CREATE INDEX jobs_due ON jobs (due_at, tenant, run_id, kind);

-- The title that the model gave, which shows where nobody else gave one.
ALTER TABLE sessions ADD COLUMN made_title TEXT NOT NULL DEFAULT '';

-- The model's summary of the session, and the last entry that it takes into account.
ALTER TABLE sessions ADD COLUMN summary TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN summary_upto INTEGER NOT NULL DEFAULT 0;
