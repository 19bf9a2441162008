-- Rows of large sessions that were deleted. Nobody finds them any more: the rows of the sessions and of their runs are gone.
-- They are deleted in slices, by whichever server comes first.

-- Runs whose events are left.
CREATE TABLE deleted_runs (
    run_no bigint NOT NULL PRIMARY KEY
);

-- Sessions whose entries, to-do lists and names of blobs are left.
CREATE TABLE deleted_sessions (
    session_no bigint NOT NULL PRIMARY KEY
);
