-- The callers that created runs and sessions, by name. NULL where nobody was asked who they are: that holds for every row
-- that is there already. Such rows are an operator's.
ALTER TABLE runs ADD COLUMN created_by TEXT;
ALTER TABLE sessions ADD COLUMN created_by TEXT;

-- A caller's own runs, newest first. Without authentication nothing is written here.
CREATE INDEX runs_by_author ON runs (tenant, created_by, created_at DESC, run_id DESC)
    WHERE created_by IS NOT NULL;
