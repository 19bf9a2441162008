-- What was said can be found by its words.

-- The index's document of an entry: the same for all entries that share an event. Null where nothing of it is indexed.
ALTER TABLE session_entries ADD COLUMN search_no INTEGER;

-- The entries of a document, and the last number that was given out.
CREATE INDEX session_entries_searched ON session_entries (search_no, tenant, session_id)
    WHERE search_no IS NOT NULL;

-- The index alone, by search_no: the texts are in the journal and nowhere else.
CREATE VIRTUAL TABLE search_index USING fts5 (
    text,
    content = '',
    contentless_delete = 1,
    tokenize = 'porter unicode61 remove_diacritics 2'
);
