//! The SQL of SQLite, where it differs.

use std::collections::BTreeMap;

use crate::store::USER_LABEL;
use crate::store::sql::query::Query;
use crate::store::sql::reader::Dialect;

/// SQLite's words for the shared queries.
pub(in crate::store) struct SqliteDialect;

impl Dialect for SqliteDialect {
    const ENTRIES: &str = "
    WITH sizes AS (
        SELECT i.entry_no, coalesce(octet_length(e.payload), octet_length(k.payload), 0) AS size
        FROM session_entries AS i
        LEFT JOIN run_events AS e ON i.keep IS NULL AND e.run_no = i.run_no AND e.seq = i.seq
        LEFT JOIN kept_events AS k ON k.keep = i.keep AND k.run_no = i.run_no AND k.seq = i.seq
        WHERE i.session_no = (SELECT session_no FROM sessions WHERE tenant = $1 AND session_id = $2)
          AND i.entry_no > $3
        ORDER BY i.entry_no LIMIT $4 + 1),
    sums AS (SELECT entry_no, sum(size) OVER (ORDER BY entry_no) - size AS before FROM sizes)
    SELECT i.entry_no, coalesce(r.run_id, k.run_id) AS run_id, i.seq, coalesce(e.at, k.at) AS at,
           coalesce(e.status, k.status) AS status, coalesce(e.version, k.version) AS version,
           coalesce(e.payload, k.payload) AS payload, iif(i.keep IS NULL, e.checksum, k.checksum) AS checksum,
           coalesce(r.model, k.model) AS model, (SELECT max(entry_no) FROM sizes) AS upto
    FROM session_entries AS i
    LEFT JOIN runs AS r ON i.keep IS NULL AND r.run_no = i.run_no
    LEFT JOIN run_events AS e ON i.keep IS NULL AND e.run_no = i.run_no AND e.seq = i.seq
    LEFT JOIN kept_events AS k ON k.keep = i.keep AND k.run_no = i.run_no AND k.seq = i.seq
    WHERE i.session_no = (SELECT session_no FROM sessions WHERE tenant = $1 AND session_id = $2)
      AND i.entry_no > $3 AND i.entry_no <= (SELECT max(entry_no) FROM sums WHERE before < $5)
    ORDER BY i.entry_no LIMIT $4";

    const SESSIONS: &str = "
    SELECT s.*, s.updated_at AS touched_at, live.run_id AS live_run, last.status AS last_status,
           last.agent AS last_agent, last.model AS last_model, iif(s.preview <> '', s.preview, coalesce((
               SELECT preview FROM (
                   SELECT r.preview FROM runs AS r WHERE r.session_no = s.session_no ORDER BY r.created_at LIMIT 8)
               WHERE preview <> '' LIMIT 1), '')) AS shown_preview
    FROM sessions AS s
    LEFT JOIN runs AS live ON live.run_no = s.live_run_no
    LEFT JOIN runs AS last ON last.run_no = coalesce(s.live_run_no, (
        SELECT r.run_no FROM runs AS r WHERE r.session_no = s.session_no
        ORDER BY r.created_at DESC, r.run_no DESC LIMIT 1))
    WHERE s.tenant = ";

    const TOUCHED_AT: &str = "s.updated_at";

    const SHOWN_PREVIEW: &str = "shown_preview";

    const STORED_BYTES: &str = "
    SELECT (SELECT coalesce(sum(bytes), 0) FROM runs WHERE tenant = $1)
         + (SELECT coalesce(sum(size_bytes), 0) FROM blobs WHERE tenant = $1) AS bytes";

    const STORED_BYTES_OF: &str = "
    SELECT (SELECT coalesce(sum(bytes), 0) FROM runs WHERE tenant = $1 AND created_by = $2)
         + (SELECT coalesce(sum(size_bytes), 0) FROM blobs WHERE tenant = $1 AND owner = $2) AS bytes";

    const RUNS: &str = "
    SELECT r.*, s.session_id FROM runs AS r
    JOIN sessions AS s ON s.session_no = r.session_no
    WHERE r.tenant = ";

    const RECORDS: &str = "
    SELECT e.seq, e.at, e.status, e.version, e.payload, e.checksum, p.digest AS spec_digest, p.spec
    FROM runs AS r
    JOIN run_events AS e ON e.run_no = r.run_no
    LEFT JOIN specs AS p ON e.seq = 1 AND p.spec_no = r.spec_no
    WHERE r.tenant = $1 AND r.run_id = $2 AND e.seq > $3
    ORDER BY e.seq LIMIT $4";

    const STRETCH: &str = "
    WITH sizes AS (
        SELECT e.seq, octet_length(e.payload) + coalesce(octet_length(p.spec), 0) AS size
        FROM runs AS r
        JOIN run_events AS e ON e.run_no = r.run_no
        LEFT JOIN specs AS p ON e.seq = 1 AND p.spec_no = r.spec_no
        WHERE r.tenant = $1 AND r.run_id = $2 AND e.seq > $3
        ORDER BY e.seq LIMIT $4),
    sums AS (SELECT seq, sum(size) OVER (ORDER BY seq) - size AS before FROM sizes)
    SELECT e.seq, e.at, e.status, e.version, e.payload, e.checksum, p.digest AS spec_digest, p.spec,
           (SELECT max(seq) FROM sizes) AS upto
    FROM runs AS r
    JOIN run_events AS e ON e.run_no = r.run_no
    LEFT JOIN specs AS p ON e.seq = 1 AND p.spec_no = r.spec_no
    WHERE r.tenant = $1 AND r.run_id = $2 AND e.seq > $3
      AND e.seq <= (SELECT max(seq) FROM sums WHERE before < $5)
    ORDER BY e.seq";

    const SESSION_RUNS: &str = "
    WITH of AS (SELECT session_no, live_run_no FROM sessions WHERE tenant = $1 AND session_id = $2)
    SELECT (SELECT coalesce(max(n.run_no), 0) FROM runs AS n
            WHERE n.session_no = (SELECT session_no FROM of)) AS last_no,
           r.*, $2 AS session_id
    FROM (SELECT 1) AS one
    LEFT JOIN runs AS r ON r.run_no IN (
        SELECT live_run_no FROM of
        UNION ALL
        SELECT q.run_no FROM runs AS q
        WHERE q.session_no = (SELECT session_no FROM of) AND q.queue_no IS NOT NULL
        UNION ALL
        SELECT run_no FROM (
            SELECT n.run_no FROM runs AS n
            WHERE n.session_no = (SELECT session_no FROM of) AND n.run_no > $3
            ORDER BY n.run_no LIMIT $4))";

    const CALL_TITLES: &str = "
    WITH spans AS (
        SELECT run_no, seq,
               iif(lead(run_no) OVER stretch = run_no, lead(seq) OVER stretch, seq + $5 + 1) AS upto
        FROM session_entries
        WHERE session_no = (SELECT session_no FROM sessions WHERE tenant = $1 AND session_id = $2)
          AND entry_no > $3 AND entry_no <= $4 AND keep IS NULL
        WINDOW stretch AS (ORDER BY entry_no))
    SELECT r.run_id, e.seq, e.at, e.status, e.version, e.payload, e.checksum
    FROM spans
    CROSS JOIN runs AS r ON r.run_no = spans.run_no
    CROSS JOIN run_events AS e ON e.run_no = spans.run_no AND e.seq > spans.seq AND e.seq < spans.upto
    WHERE e.payload GLOB '{\"kind\":\"call_proposed\"*'";

    const UNFINISHED: &str = "
    SELECT tenant, run_id FROM runs INDEXED BY runs_unfinished
    WHERE goes_on = 1
    ORDER BY run_no";

    const DUE: &str = "
    SELECT tenant, run_id, wake_at FROM runs
    WHERE wake_at IS NOT NULL
    ORDER BY wake_at LIMIT $1";

    const FIRST_QUEUED: &str = "
    SELECT run_id FROM runs WHERE session_no = $1 AND queue_no IS NOT NULL
    ORDER BY queue_no LIMIT 1";

    const NEXT_QUEUED: &str = "
    SELECT r.run_id FROM sessions AS s
    JOIN runs AS r ON r.session_no = s.session_no
    WHERE s.tenant = $1 AND s.session_id = $2 AND r.queue_no IS NOT NULL AND s.live_run_no IS NULL
    ORDER BY r.queue_no LIMIT 1";

    const ANY_QUEUED: &str = "
    SELECT coalesce((SELECT true FROM runs INDEXED BY runs_queued WHERE queue_no IS NOT NULL
                     ORDER BY session_no, queue_no LIMIT 1), false) AS queues";

    const QUEUE_HEADS: &str = "
    SELECT r.tenant, r.run_id FROM runs AS r
    JOIN sessions AS s ON s.session_no = r.session_no
    WHERE r.queue_no IS NOT NULL AND s.live_run_no IS NULL
      AND NOT EXISTS (
          SELECT 1 FROM runs AS before
          WHERE before.session_no = r.session_no
            AND before.queue_no IS NOT NULL AND before.queue_no < r.queue_no)
    ORDER BY r.session_no";

    const INTERRUPTED: &str = "
    SELECT r.tenant, live.run_id AS live_run, r.run_id FROM runs AS r
    JOIN sessions AS s ON s.session_no = r.session_no
    JOIN runs AS live ON live.run_no = s.live_run_no
    WHERE r.queue_no IS NOT NULL AND r.queue_no < 1099511627776
      AND NOT EXISTS (
          SELECT 1 FROM runs AS before
          WHERE before.session_no = r.session_no
            AND before.queue_no IS NOT NULL AND before.queue_no < r.queue_no)";

    const INTERRUPTED_IN: &str = "
    SELECT r.tenant, live.run_id AS live_run, r.run_id FROM sessions AS s
    JOIN runs AS live ON live.run_no = s.live_run_no
    JOIN runs AS r ON r.session_no = s.session_no
    WHERE s.tenant = $1 AND s.session_id = $2 AND r.queue_no IS NOT NULL AND r.queue_no < 1099511627776
    ORDER BY r.queue_no LIMIT 1";

    const TENANTS_WITH_JOBS: &str = "
    WITH RECURSIVE each_one (tenant) AS (
        SELECT (SELECT min(j.tenant) FROM jobs AS j WHERE j.tenant > $1)
        UNION ALL
        SELECT (SELECT min(j.tenant) FROM jobs AS j WHERE j.tenant > one.tenant)
        FROM each_one AS one WHERE one.tenant IS NOT NULL
    )
    SELECT one.tenant FROM each_one AS one
    WHERE EXISTS (SELECT 1 FROM jobs AS j WHERE j.tenant = one.tenant AND j.due_at <= $2)
    LIMIT $3";

    const DUE_JOBS: &str = "
    SELECT j.tenant, r.run_id, s.session_id, j.kind, j.due_at, j.attempts, j.error
    FROM jobs AS j
    JOIN runs AS r ON r.run_no = j.run_no
    JOIN sessions AS s ON s.session_no = r.session_no
    WHERE j.tenant = $1 AND j.due_at <= $2
    ORDER BY j.due_at, j.run_no, j.kind LIMIT $3";

    const LIKE: &str = " LIKE ";

    const POSITION: &str = "instr";

    fn labels(query: &mut Query, column: &str, labels: &BTreeMap<String, String>) {
        for (key, value) in labels {
            query.push(" AND EXISTS (SELECT 1 FROM json_each(").push(column).push(") AS j WHERE j.key = ");
            query.bind(key.as_str()).push(" AND j.value = ").bind(value.as_str()).push(")");
        }
    }

    fn session_label(query: &mut Query, key: &str, value: &str) {
        let user = key == USER_LABEL;
        query.push(if user { " AND s.labels ->> '$.user' = " } else { " AND s.labels ->> '$.project' = " });
        query.bind(value);
    }

    fn session_of(query: &mut Query, user: &str, project: Option<&str>) {
        query.push(" AND s.labels ->> '$.user' = ").bind(user);
        let project = project.map_or_else(String::new, |project| format!("={project}"));
        query.push(" AND coalesce('=' || (s.labels ->> '$.project'), '') = ").bind(project);
    }
}
