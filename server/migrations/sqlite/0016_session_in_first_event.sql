-- The first event of a run has its session's id again, as it was before version 14: what is stored is the event without
-- its spec, which alone stands elsewhere.

UPDATE run_events
SET payload = json_set(payload, '$.session', s.session_id)
FROM runs AS r
JOIN sessions AS s ON s.session_no = r.session_no
WHERE run_events.run_no = r.run_no AND run_events.seq = 1 AND r.spec_no IS NOT NULL;

-- The journal with each first event whole: its spec is put back.
DROP VIEW journal;
DROP VIEW whole_events;

CREATE VIEW whole_events AS
SELECT e.run_no, e.seq, e.at, e.status, e.version,
       iif(p.spec IS NULL, e.payload, json_set(e.payload, '$.spec', json(p.spec))) AS payload
FROM run_events AS e
LEFT JOIN runs AS r ON e.seq = 1 AND r.run_no = e.run_no
LEFT JOIN specs AS p ON p.spec_no = r.spec_no;

-- For people with a SQL shell: the journal with its ids.
CREATE VIEW journal AS
SELECT r.tenant, s.session_id, r.run_id, e.seq, e.at, e.payload ->> '$.kind' AS kind, st.name AS status, e.payload
FROM whole_events AS e
JOIN runs AS r ON r.run_no = e.run_no
JOIN sessions AS s ON s.session_no = r.session_no
LEFT JOIN statuses AS st ON st.status = e.status;
