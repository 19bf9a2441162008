-- Which principal's host has an id: nobody takes its place after a restart. Rows come with hosts that connect from here on, where
-- callers are known; ids of before are those of whoever connects first.
CREATE TABLE hosts (
    tenant    text   COLLATE "C" NOT NULL,
    host      text   COLLATE "C" NOT NULL,
    principal text   NOT NULL,
    last_seen bigint NOT NULL,
    PRIMARY KEY (tenant, host)
);
