-- Runs that wait for their session.

-- A run's place in its session's queue: lower comes first. Null once it has entered the session, or is over.
ALTER TABLE runs ADD COLUMN queue_no INTEGER;

-- The last place that was given out.
ALTER TABLE sessions ADD COLUMN last_queue_no INTEGER NOT NULL DEFAULT 0;

-- A session's queue, in its order.
CREATE INDEX runs_queued ON runs (tenant, session_id, queue_no)
    WHERE queue_no IS NOT NULL;

-- What a start has to continue. Queries repeat these conditions word for word, else the index is not used.
DROP INDEX runs_unfinished;
CREATE INDEX runs_unfinished ON runs (tenant, run_id)
    WHERE status NOT IN ('completed', 'failed', 'aborted', 'awaiting_human', 'paused')
      AND wake_at IS NULL AND queue_no IS NULL;
