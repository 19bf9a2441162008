-- What runs have used is added up when it is asked for, from the sums in their rows and, for a run that spans several buckets
-- of time, from its journal. Nothing is written for it while runs go on.

-- The column usage of runs has more numbers from here on: unpriced_calls, model_calls, failed_model_attempts, tool_calls and
-- failed_tool_calls follow on cost_micros. Rows that are there keep their six numbers; their runs count by their journals.

-- Runs that have ended, by the time of their end. A run enters it once.
CREATE INDEX runs_by_end ON runs (tenant, updated_at, created_at)
    WHERE status >= 9;

-- Runs that wait for an operator. They have neither a task nor a time to wake at, so nothing else finds them.
CREATE INDEX runs_paused ON runs (tenant)
    WHERE status = 8;

-- What runs of deleted sessions have used, by the minute: usage is an account, and stays. Sessions that were deleted before have
-- left nothing. ended: runs that ended; error: the code of the error with which they failed. sums is a JSON list like the column
-- usage of runs.
CREATE TABLE usage_kept (
    tenant     TEXT    NOT NULL,
    minute     INTEGER NOT NULL,
    agent      TEXT    NOT NULL,
    model      TEXT    NOT NULL,
    labels     TEXT    NOT NULL,
    created_by TEXT,
    ended      INTEGER NOT NULL,
    error      TEXT,
    sums       TEXT    NOT NULL
) STRICT;

CREATE INDEX usage_kept_by_time ON usage_kept (tenant, minute);

-- A caller's own sessions, the last touched first. Without authentication nothing is written here.
CREATE INDEX sessions_by_author ON sessions (tenant, created_by, updated_at)
    WHERE created_by IS NOT NULL;
