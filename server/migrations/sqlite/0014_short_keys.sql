-- Ids are chosen by clients; what still repeated them refers to their rows: a session's live run, the questions of a run,
-- whose ids begin with that of the run, and the first event of a run, which names its session.

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

-- The journal as it is told: a first event has in its place what is stored elsewhere, its session's id and its spec.
DROP VIEW journal;

CREATE VIEW whole_events AS
SELECT e.run_no, e.seq, e.at, e.status, e.version,
       iif(p.spec IS NULL, e.payload,
           json_set(e.payload, '$.session', s.session_id, '$.spec', json(p.spec))) AS payload
FROM run_events AS e
LEFT JOIN runs AS r ON e.seq = 1 AND r.run_no = e.run_no
LEFT JOIN sessions AS s ON s.session_no = r.session_no
LEFT JOIN specs AS p ON p.spec_no = r.spec_no;

-- For people with a SQL shell: the journal with its ids.
CREATE VIEW journal AS
SELECT r.tenant, s.session_id, r.run_id, e.seq, e.at, e.payload ->> '$.kind' AS kind, st.name AS status, e.payload
FROM whole_events AS e
JOIN runs AS r ON r.run_no = e.run_no
JOIN sessions AS s ON s.session_no = r.session_no
LEFT JOIN statuses AS st ON st.status = e.status;
