-- Callers change titles and labels of sessions, and look for the sessions of a user or a project.

-- Title and labels as the session was created with, as a JSON array, once a caller has changed either. NULL means that
-- they are as they were, which holds for every session that is there already.
ALTER TABLE sessions ADD COLUMN created_as TEXT;

-- The sessions of a user, and of a project. A run changes neither column, so its commits do not write here.
CREATE INDEX sessions_by_user ON sessions (tenant, labels ->> '$.user')
    WHERE labels ->> '$.user' IS NOT NULL;
CREATE INDEX sessions_by_project ON sessions (tenant, labels ->> '$.project')
    WHERE labels ->> '$.project' IS NOT NULL;
