-- Runs have ids that clients choose; what still repeated them refers to runs by their numbers: a session's live run, and
-- the questions of a run, whose ids begin with that of the run.

DROP INDEX human_requests_by_run;
DROP INDEX human_requests_open;

ALTER TABLE human_requests RENAME TO old_human_requests;

-- Where in the journal each question to a human and its answer stand. Open while answered_seq is null. A question's id
-- is that of its run, a colon and what stands here.
CREATE TABLE human_requests (
    run_no       INTEGER NOT NULL REFERENCES runs (run_no) ON DELETE CASCADE,
    question     TEXT    NOT NULL,
    tenant       TEXT    NOT NULL,
    asked_at     INTEGER NOT NULL,
    asked_seq    INTEGER NOT NULL,
    answered_seq INTEGER,
    PRIMARY KEY (run_no, question)
) STRICT, WITHOUT ROWID;

INSERT INTO human_requests (run_no, question, tenant, asked_at, asked_seq, answered_seq)
SELECT q.run_no, substr(q.request_id, length(r.run_id) + 2), q.tenant, q.asked_at, q.asked_seq, q.answered_seq
FROM old_human_requests AS q
JOIN runs AS r ON r.run_no = q.run_no;

DROP TABLE old_human_requests;

-- The inbox, oldest first.
CREATE INDEX human_requests_open ON human_requests (tenant, asked_at)
    WHERE answered_seq IS NULL;

-- live_run_no: the one run that may add entries now.
ALTER TABLE sessions ADD COLUMN live_run_no INTEGER;

UPDATE sessions
SET live_run_no = (SELECT r.run_no FROM runs AS r WHERE r.tenant = sessions.tenant AND r.run_id = sessions.live_run)
WHERE live_run IS NOT NULL;

ALTER TABLE sessions DROP COLUMN live_run;
