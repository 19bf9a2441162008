-- To-do lists of sessions, each as it was after the entry that is the result of its call. items is JSON. A fork has those
-- of the entries that it shares. Sessions that are there already have none.
CREATE TABLE session_todos (
    session_no INTEGER NOT NULL REFERENCES sessions (session_no) ON DELETE CASCADE,
    entry_no   INTEGER NOT NULL,
    items      TEXT    NOT NULL,
    PRIMARY KEY (session_no, entry_no)
) STRICT, WITHOUT ROWID;
