-- Which principal's host has an id: nobody takes its place after a restart. Rows come with hosts that connect from here on, where
-- callers are known; ids of before are those of whoever connects first.
CREATE TABLE hosts (
    tenant    TEXT    NOT NULL,
    host      TEXT    NOT NULL,
    principal TEXT    NOT NULL,
    last_seen INTEGER NOT NULL,
    PRIMARY KEY (tenant, host)
) STRICT, WITHOUT ROWID;
