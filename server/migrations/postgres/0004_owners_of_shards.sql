-- Each shard of sessions has an owner of its own from here on: see docs/internals/replicas.md. Before, the row of ownership had
-- the one owner of them all. That row stays: as long as a replica of an earlier version is named there, nobody claims a shard.
-- Afterwards it names the owner of shard 0, to which replicas of an earlier version send the calls of their callers.

-- of_shards: the row only repeats who owns shard 0. False: its owner, if there is one, owns the whole database.
ALTER TABLE ownership ADD COLUMN of_shards boolean NOT NULL DEFAULT false;

-- Replicas of an earlier version take no shards, so nobody leaves them a part. The row of each that comes later says the same
-- until it can work.
UPDATE replicas SET draining = true WHERE NOT draining;

-- Owners of shards; null where there is none. term rises with every claim, and begins above those of the whole database.
CREATE TABLE shards (
    shard    bigint NOT NULL PRIMARY KEY,
    owner_no bigint,
    term     bigint NOT NULL
) WITH (fillfactor = 50);

INSERT INTO shards (shard, term) SELECT each.shard, o.term FROM generate_series(0, 1023) AS each (shard), ownership AS o;

-- What several writers at a time need, beside the owners.

-- Numbers of search documents, by the server that gives them out: those above first and below until. upto: the last one that the
-- search index has. A server adds its row with its block of numbers; the numbers of a row come in their order, so those above upto
-- are all that the index lacks. is_done: nobody gives out any of them any more, and the index has them all. New blocks begin at
-- 2^56. Everything below is of earlier versions, or of a copy, and goes on where the row of meta stands: an owner of an earlier
-- version fills the index by that row, which is of no use afterwards.
CREATE TABLE search_blocks (
    first    bigint  NOT NULL PRIMARY KEY,
    until    bigint  NOT NULL,
    upto     bigint  NOT NULL,
    owner_no bigint,
    is_done  boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);

INSERT INTO search_blocks (first, until, upto) SELECT 0, 72057594037927936, value FROM meta WHERE key = 'documents';

-- Specs whose last run may be gone. A replica deletes no spec with a session: another one, which knows that it is stored, may be
-- about to begin a run with it. Those that are here for long, and have no run, are deleted later.
CREATE TABLE unused_specs (
    digest text        COLLATE "C" NOT NULL PRIMARY KEY,
    since  timestamptz NOT NULL DEFAULT now()
);
