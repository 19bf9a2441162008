-- PostgreSQL writes a changed row in place, without its indexes, if no column changes that an index names, in its condition too.
-- So while a run goes on, updated_at of the run and of its session stay behind by up to a second. They are exact for a run that
-- rests or has ended, and for a session without a live run. An owner of an earlier version moves them with each event.

-- The time of the last event or entry. Null in rows that an earlier version wrote: there updated_at has it. The later one counts.
ALTER TABLE run_states ADD COLUMN last_event_at bigint;
ALTER TABLE sessions ADD COLUMN last_entry_at bigint;

CREATE OR REPLACE VIEW run_rows AS
SELECT r.run_no, r.tenant, r.run_id, r.session_no, r.shard, r.spec_digest, r.request_digest, r.agent, r.model, r.labels,
       r.preview, r.created_by, r.created_at, t.epoch, t.last_seq, t.status, t.goes_on, t.at_hosts, t.wake_at, t.queue_no,
       t.error, t.usage, t.iterations, t.tool_calls, greatest(t.updated_at, t.last_event_at) AS updated_at
FROM runs AS r
JOIN run_states AS t ON t.run_no = r.run_no;

-- Indexes that name the status are replaced. Of many runs, this is left to the server, which does it beside the work of others.
DO $$
BEGIN
    IF (SELECT count(*) FROM (SELECT FROM run_states LIMIT 10001) AS few) <= 10000 THEN
        CREATE INDEX runs_at_rest ON run_states (tenant, updated_at) WHERE NOT goes_on;
        DROP INDEX runs_by_end, runs_paused, sessions_live;
    END IF;
END $$;
