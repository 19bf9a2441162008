-- Runs that wait for a human while hosts have calls of them, which ask.

-- Whether hosts have calls of the run: then it goes on by itself, whatever its status.
ALTER TABLE runs ADD COLUMN at_hosts INTEGER NOT NULL DEFAULT 0;

-- What a start has to continue. Queries repeat these conditions word for word, else the index is not used.
DROP INDEX runs_unfinished;
CREATE INDEX runs_unfinished ON runs (tenant, run_id)
    WHERE (at_hosts = 1 OR status NOT IN ('completed', 'failed', 'aborted', 'awaiting_human', 'paused'))
      AND wake_at IS NULL AND queue_no IS NULL;
