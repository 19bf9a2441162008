-- The index of what was said is a file of its own, beside this one: it can be deleted at any time, and is filled again.
-- What was in this file is not taken over.

-- By which a file beside this one knows that it belongs to it.
INSERT INTO meta (key, value) VALUES ('identity', random());

DELETE FROM meta WHERE key IN ('search_filled', 'search_renewed');

-- What was said while nothing was indexed has numbers now as everything has: one for each message, whoever shares it.
CREATE TABLE unnumbered (
    keep      INTEGER NOT NULL,
    run_no    INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    search_no INTEGER NOT NULL,
    PRIMARY KEY (keep, run_no, seq)
) STRICT, WITHOUT ROWID;

INSERT INTO unnumbered (keep, run_no, seq, search_no)
SELECT keep, run_no, seq,
       row_number() OVER (ORDER BY keep, run_no, seq) + (SELECT coalesce(max(search_no), 0) FROM session_entries)
FROM (
    SELECT DISTINCT coalesce(i.keep, 0) AS keep, i.run_no, i.seq
    FROM session_entries AS i
    LEFT JOIN run_events AS e ON i.keep IS NULL AND e.run_no = i.run_no AND e.seq = i.seq
    LEFT JOIN kept_events AS k ON k.keep = i.keep AND k.run_no = i.run_no AND k.seq = i.seq
    WHERE i.search_no IS NULL
      AND coalesce(e.payload, k.payload) ->> '$.kind' IN ('input_added', 'input_held', 'assistant_message'));

UPDATE session_entries
SET search_no = n.search_no
FROM unnumbered AS n
WHERE session_entries.search_no IS NULL
  AND n.keep = coalesce(session_entries.keep, 0)
  AND n.run_no = session_entries.run_no AND n.seq = session_entries.seq;

DROP TABLE unnumbered;

DROP TABLE search_index;

-- Documents of deleted sessions that the index may still have.
CREATE TABLE search_deleted (
    search_no INTEGER NOT NULL PRIMARY KEY
) STRICT;
