-- A random name of this database, which its replicas tell each other: each database counts its replicas from 1, so their numbers
-- alone do not say that two replicas share one. A copy has the same name.
CREATE TABLE cluster_identity (
    only_one boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (only_one),
    id       text    NOT NULL
);

INSERT INTO cluster_identity (id) VALUES (gen_random_uuid()::text);
