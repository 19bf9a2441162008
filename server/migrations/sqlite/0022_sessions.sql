-- What callers and models say of sessions.

-- Title and labels as the session was created with, as a JSON array, once a caller has changed either. NULL means that
-- they are as they were, which holds for every session that is there already.
ALTER TABLE sessions ADD COLUMN created_as TEXT;

-- The sessions of a user, and of a project. A run changes neither column, so its commits do not write here.
CREATE INDEX sessions_by_user ON sessions (tenant, labels ->> '$.user')
    WHERE labels ->> '$.user' IS NOT NULL;
CREATE INDEX sessions_by_project ON sessions (tenant, labels ->> '$.project')
    WHERE labels ->> '$.project' IS NOT NULL;

-- The model of the run that an event was kept of, which lists of entries show. The runs of the events that are kept already
-- are gone, so nobody knows theirs.
ALTER TABLE kept_events ADD COLUMN model TEXT NOT NULL DEFAULT '';

-- To-do lists of sessions, each as it was after the entry that is the result of its call. items is JSON. A fork has those
-- of the entries that it shares. Sessions that are there already have none.
CREATE TABLE session_todos (
    session_no INTEGER NOT NULL REFERENCES sessions (session_no) ON DELETE CASCADE,
    entry_no   INTEGER NOT NULL,
    items      TEXT    NOT NULL,
    PRIMARY KEY (session_no, entry_no)
) STRICT, WITHOUT ROWID;

-- The beginning of the first user message of a fork, which has no run with it. Other sessions have it in their first run. A
-- fork that is there gets it from the first entries that it shares.
ALTER TABLE sessions ADD COLUMN preview TEXT NOT NULL DEFAULT '';

UPDATE sessions SET preview = substr(trim(replace(replace(replace(coalesce((
    SELECT p.value ->> '$.text'
    FROM session_entries AS i
    LEFT JOIN run_events AS e ON i.keep IS NULL AND e.run_no = i.run_no AND e.seq = i.seq
    LEFT JOIN kept_events AS k ON k.keep = i.keep AND k.run_no = i.run_no AND k.seq = i.seq
    JOIN json_each(coalesce(e.payload, k.payload), '$.message.parts') AS p
    WHERE i.session_no = sessions.session_no AND i.entry_no <= 64
      AND coalesce(e.payload, k.payload) ->> '$.message.role' = 'user'
      AND trim(p.value ->> '$.text') <> ''
    ORDER BY i.entry_no, p.key LIMIT 1), ''), char(10), ' '), char(13), ' '), char(9), ' ')), 1, 200)
WHERE forked_from IS NOT NULL;
