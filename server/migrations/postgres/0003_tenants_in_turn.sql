-- An owner of an earlier version may go on while this is applied, so nothing here reads or writes many rows.

-- Jobs know their tenant, so that those of each tenant are found without reading those of others: tenants are served in turn.
-- Jobs that are there have none yet, and neither has one that an earlier version adds: each start fills them in.
ALTER TABLE jobs ADD COLUMN tenant text COLLATE "C";

CREATE INDEX jobs_by_tenant ON jobs (tenant, due_at, run_no, kind);

-- Bytes of a run's events. Appends keep the number, so the sum over a tenant reads no events. Runs that are there have none, and
-- neither have those that an earlier version begins: their events are added up at each question.
ALTER TABLE run_states ADD COLUMN bytes bigint;
