-- Jobs know their tenant, so that those of each tenant are found without reading those of others: tenants are served in turn.
-- Jobs that are there get the tenant of their run.
ALTER TABLE jobs RENAME TO old_jobs;

CREATE TABLE jobs (
    run_no   INTEGER NOT NULL REFERENCES runs (run_no) ON DELETE CASCADE,
    kind     TEXT    NOT NULL,
    tenant   TEXT    NOT NULL,
    due_at   INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    error    TEXT,
    PRIMARY KEY (run_no, kind)
) STRICT, WITHOUT ROWID;

INSERT INTO jobs (run_no, kind, tenant, due_at, attempts, error)
SELECT j.run_no, j.kind, r.tenant, j.due_at, j.attempts, j.error
FROM old_jobs AS j
JOIN runs AS r ON r.run_no = j.run_no;

DROP TABLE old_jobs;

-- What is due next, of all tenants and of one.
CREATE INDEX jobs_due ON jobs (due_at);
CREATE INDEX jobs_by_tenant ON jobs (tenant, due_at);

-- Bytes of a run's events. Appends keep the number, so the sum over a tenant reads no events. Runs that are there get the sum of
-- theirs.
ALTER TABLE runs ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;

UPDATE runs
SET bytes = (SELECT coalesce(sum(octet_length(e.payload)), 0) FROM run_events AS e WHERE e.run_no = runs.run_no);
