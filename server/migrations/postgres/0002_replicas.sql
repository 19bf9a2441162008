-- Several replicas of the server over one database, one of which owns it: see docs/internals/replicas.md. A server without
-- [cluster] leaves these tables empty. Nothing that is there changes: the row of an owner is not fenced.

-- fenced: nothing is committed under this row any more. pid: the backend of the connection that commits.
ALTER TABLE owners
    ADD COLUMN fenced boolean NOT NULL DEFAULT false,
    ADD COLUMN pid    integer;

-- Replicas: one row for each start. Numbers are those of owners, so none is used twice. A replica raises beat while it lives.
-- fenced: it may own nothing any more; beat stands still from then on. ended_at: its fence is complete. lease: milliseconds
-- for which beat must stand still before anybody may set fenced. configuration: a digest of the part that should be the same
-- for all.
CREATE TABLE replicas (
    replica_no bigint      NOT NULL PRIMARY KEY DEFAULT nextval('owners_owner_no_seq'),
    address    text        NOT NULL,
    version    text        NOT NULL,
    configuration text     NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    lease      bigint      NOT NULL,
    beat       bigint      NOT NULL DEFAULT 0,
    draining   boolean     NOT NULL DEFAULT false,
    fenced     boolean     NOT NULL DEFAULT false,
    ended_at   timestamptz
) WITH (fillfactor = 50);

-- The replica that owns the database; null while none does. term rises with every claim. It has one row.
CREATE TABLE ownership (
    only_one boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (only_one),
    owner_no bigint,
    term     bigint  NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

INSERT INTO ownership DEFAULT VALUES;
