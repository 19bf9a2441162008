//! The SQL of PostgreSQL, where it differs.

use std::collections::BTreeMap;

use crate::store::postgres::rows::{indexed, is_indexed_whole};
use crate::store::sql::query::Query;
use crate::store::sql::reader::Dialect;
use crate::store::support::codec::text as json;
use crate::store::{PROJECT_LABEL, USER_LABEL};

/// PostgreSQL's words for the shared queries. A list of shards is a text, so that values are texts and numbers alone.
pub(in crate::store) struct PostgresDialect;

impl Dialect for PostgresDialect {
    const ENTRIES: &str = "
    WITH sizes AS (
        SELECT i.entry_no, coalesce(octet_length(e.payload), octet_length(k.payload), 0)::bigint AS size
        FROM session_entries AS i
        LEFT JOIN run_events AS e ON i.keep IS NULL AND e.run_no = i.run_no AND e.seq = i.seq
        LEFT JOIN kept_events AS k ON k.keep = i.keep AND k.run_no = i.run_no AND k.seq = i.seq
        WHERE i.session_no = (SELECT session_no FROM sessions WHERE tenant = $1 AND session_id = $2)
          AND i.entry_no > $3
        ORDER BY i.entry_no LIMIT $4 + 1),
    sums AS (SELECT entry_no, sum(size) OVER (ORDER BY entry_no) - size AS before FROM sizes)
    SELECT i.entry_no, coalesce(r.run_id, k.run_id) AS run_id, i.seq, coalesce(e.at, k.at) AS at,
           coalesce(e.status, k.status) AS status, coalesce(e.version, k.version) AS version,
           coalesce(e.payload, k.payload) AS payload, CASE WHEN i.keep IS NULL THEN e.checksum ELSE k.checksum END AS checksum,
           coalesce(r.model, k.model) AS model, (SELECT max(entry_no) FROM sizes) AS upto
    FROM session_entries AS i
    LEFT JOIN runs AS r ON i.keep IS NULL AND r.run_no = i.run_no
    LEFT JOIN run_events AS e ON i.keep IS NULL AND e.run_no = i.run_no AND e.seq = i.seq
    LEFT JOIN kept_events AS k ON k.keep = i.keep AND k.run_no = i.run_no AND k.seq = i.seq
    WHERE i.session_no = (SELECT session_no FROM sessions WHERE tenant = $1 AND session_id = $2)
      AND i.entry_no > $3 AND i.entry_no <= (SELECT max(entry_no) FROM sums WHERE before < $5)
    ORDER BY i.entry_no LIMIT $4";

    const SESSIONS: &str = "
    SELECT s.*, greatest(s.updated_at, s.last_entry_at) AS touched_at, live.run_id AS live_run,
           last.status AS last_status, last.agent AS last_agent, last.model AS last_model,
           shown.preview AS shown_preview
    FROM sessions AS s
    LEFT JOIN runs AS live ON live.run_no = s.live_run_no
    LEFT JOIN run_rows AS last ON last.run_no = coalesce(s.live_run_no, (
        SELECT r.run_no FROM runs AS r WHERE r.session_no = s.session_no
        ORDER BY r.created_at DESC, r.run_no DESC LIMIT 1))
    CROSS JOIN LATERAL (
        SELECT CASE WHEN s.preview <> '' THEN s.preview ELSE coalesce((
            SELECT f.preview FROM (
                SELECT r.preview FROM runs AS r WHERE r.session_no = s.session_no ORDER BY r.created_at LIMIT 8) AS f
            WHERE f.preview <> '' LIMIT 1), '') END AS preview) AS shown
    WHERE s.tenant = ";

    const TOUCHED_AT: &str = "greatest(s.updated_at, s.last_entry_at)";

    const SHOWN_PREVIEW: &str = "shown.preview";

    const STORED_BYTES: &str = "
    SELECT (SELECT coalesce(sum(coalesce(t.bytes, (SELECT sum(octet_length(e.payload)) FROM run_events AS e
                                                   WHERE e.run_no = t.run_no))), 0)::bigint
            FROM runs AS r JOIN run_states AS t ON t.run_no = r.run_no WHERE r.tenant = $1)
         + (SELECT coalesce(sum(size_bytes), 0)::bigint FROM blobs WHERE tenant = $1) AS bytes";

    const STORED_BYTES_OF: &str = "
    SELECT (SELECT coalesce(sum(coalesce(t.bytes, (SELECT sum(octet_length(e.payload)) FROM run_events AS e
                                                   WHERE e.run_no = t.run_no))), 0)::bigint
            FROM runs AS r JOIN run_states AS t ON t.run_no = r.run_no
            WHERE r.tenant = $1 AND r.created_by = $2)
         + (SELECT coalesce(sum(size_bytes), 0)::bigint FROM blobs WHERE tenant = $1 AND owner = $2) AS bytes";

    const RUNS: &str = "
    SELECT r.*, s.session_id FROM run_rows AS r
    JOIN sessions AS s ON s.session_no = r.session_no
    WHERE r.tenant = ";

    const RECORDS: &str = "
    SELECT e.seq, e.at, e.status, e.version, e.payload, e.checksum, p.digest AS spec_digest, p.spec
    FROM runs AS r
    JOIN run_events AS e ON e.run_no = r.run_no
    LEFT JOIN specs AS p ON e.seq = 1 AND p.digest = r.spec_digest
    WHERE r.tenant = $1 AND r.run_id = $2 AND e.seq > $3
    ORDER BY e.seq LIMIT $4";

    const STRETCH: &str = "
    WITH sizes AS (
        SELECT e.seq, (octet_length(e.payload) + coalesce(octet_length(p.spec), 0))::bigint AS size
        FROM runs AS r
        JOIN run_events AS e ON e.run_no = r.run_no
        LEFT JOIN specs AS p ON e.seq = 1 AND p.digest = r.spec_digest
        WHERE r.tenant = $1 AND r.run_id = $2 AND e.seq > $3
        ORDER BY e.seq LIMIT $4),
    sums AS (SELECT seq, sum(size) OVER (ORDER BY seq) - size AS before FROM sizes)
    SELECT e.seq, e.at, e.status, e.version, e.payload, e.checksum, p.digest AS spec_digest, p.spec,
           (SELECT max(seq) FROM sizes) AS upto
    FROM runs AS r
    JOIN run_events AS e ON e.run_no = r.run_no
    LEFT JOIN specs AS p ON e.seq = 1 AND p.digest = r.spec_digest
    WHERE r.tenant = $1 AND r.run_id = $2 AND e.seq > $3
      AND e.seq <= (SELECT max(seq) FROM sums WHERE before < $5)
    ORDER BY e.seq";

    const SESSION_RUNS: &str = "
    WITH of AS MATERIALIZED (
        SELECT session_no, live_run_no FROM sessions WHERE tenant = $1 AND session_id = $2),
    wanted AS MATERIALIZED (
        SELECT live_run_no AS run_no FROM of
        UNION
        SELECT q.run_no FROM run_states AS q
        WHERE q.session_no = (SELECT session_no FROM of) AND q.queue_no IS NOT NULL
        UNION
        (SELECT n.run_no FROM runs AS n
         WHERE n.session_no = (SELECT session_no FROM of) AND n.run_no > $3
         ORDER BY n.run_no LIMIT $4))
    SELECT (SELECT coalesce(max(n.run_no), 0) FROM runs AS n
            WHERE n.session_no = (SELECT session_no FROM of)) AS last_no,
           r.*, $2 AS session_id
    FROM (SELECT 1) AS one
    LEFT JOIN (wanted AS w JOIN run_rows AS r ON r.run_no = w.run_no) ON true";

    const CALL_TITLES: &str = "
    WITH spans AS (
        SELECT run_no, seq,
               CASE WHEN lead(run_no) OVER stretch = run_no THEN lead(seq) OVER stretch ELSE seq + $5 + 1 END
                   AS upto
        FROM session_entries
        WHERE session_no = (SELECT session_no FROM sessions WHERE tenant = $1 AND session_id = $2)
          AND entry_no > $3 AND entry_no <= $4 AND keep IS NULL
        WINDOW stretch AS (ORDER BY entry_no))
    SELECT r.run_id, e.seq, e.at, e.status, e.version, e.payload, e.checksum
    FROM spans
    JOIN runs AS r ON r.run_no = spans.run_no
    JOIN run_events AS e ON e.run_no = spans.run_no AND e.seq > spans.seq AND e.seq < spans.upto
    WHERE e.payload LIKE '{\"kind\":\"call\\_proposed\"%'";

    const UNFINISHED: &str = "
    SELECT r.tenant, r.run_id FROM run_states AS t
    JOIN runs AS r ON r.run_no = t.run_no
    WHERE t.goes_on AND ($1::text::bigint[] IS NULL OR t.shard = ANY ($1::text::bigint[]))
    ORDER BY t.run_no";

    const DUE: &str = "
    SELECT r.tenant, r.run_id, t.wake_at FROM run_states AS t
    JOIN runs AS r ON r.run_no = t.run_no
    WHERE t.wake_at IS NOT NULL AND ($2::text::bigint[] IS NULL OR t.shard = ANY ($2::text::bigint[]))
    ORDER BY t.wake_at LIMIT $1";

    const FIRST_QUEUED: &str = "
    SELECT r.run_id FROM run_states AS t JOIN runs AS r ON r.run_no = t.run_no
    WHERE t.session_no = $1 AND t.queue_no IS NOT NULL
    ORDER BY t.queue_no LIMIT 1";

    const NEXT_QUEUED: &str = "
    SELECT r.run_id FROM sessions AS s
    JOIN run_states AS t ON t.session_no = s.session_no
    JOIN runs AS r ON r.run_no = t.run_no
    WHERE s.tenant = $1 AND s.session_id = $2 AND t.queue_no IS NOT NULL AND s.live_run_no IS NULL
    ORDER BY t.queue_no LIMIT 1";

    const ANY_QUEUED: &str = "
    SELECT coalesce((SELECT true FROM run_states WHERE queue_no IS NOT NULL
                     ORDER BY session_no, queue_no LIMIT 1), false) AS queues";

    const QUEUE_HEADS: &str = "
    SELECT r.tenant, r.run_id FROM run_states AS t
    JOIN runs AS r ON r.run_no = t.run_no
    JOIN sessions AS s ON s.session_no = t.session_no
    WHERE t.queue_no IS NOT NULL AND s.live_run_no IS NULL AND ($1::text::bigint[] IS NULL OR t.shard = ANY ($1::text::bigint[]))
      AND NOT EXISTS (
          SELECT 1 FROM run_states AS before
          WHERE before.session_no = t.session_no
            AND before.queue_no IS NOT NULL AND before.queue_no < t.queue_no)
    ORDER BY t.session_no";

    const INTERRUPTED: &str = "
    SELECT r.tenant, live.run_id AS live_run, r.run_id FROM run_states AS t
    JOIN runs AS r ON r.run_no = t.run_no
    JOIN sessions AS s ON s.session_no = t.session_no
    JOIN runs AS live ON live.run_no = s.live_run_no
    WHERE t.queue_no IS NOT NULL AND t.queue_no < 1099511627776 AND ($1::text::bigint[] IS NULL OR t.shard = ANY ($1::text::bigint[]))
      AND NOT EXISTS (
          SELECT 1 FROM run_states AS before
          WHERE before.session_no = t.session_no
            AND before.queue_no IS NOT NULL AND before.queue_no < t.queue_no)";

    const INTERRUPTED_IN: &str = "
    SELECT r.tenant, live.run_id AS live_run, r.run_id FROM sessions AS s
    JOIN runs AS live ON live.run_no = s.live_run_no
    JOIN run_states AS t ON t.session_no = s.session_no
    JOIN runs AS r ON r.run_no = t.run_no
    WHERE s.tenant = $1 AND s.session_id = $2 AND t.queue_no IS NOT NULL AND t.queue_no < 1099511627776
    ORDER BY t.queue_no LIMIT 1";

    const TENANTS_WITH_JOBS: &str = "
    WITH RECURSIVE each_one (tenant) AS (
        SELECT (SELECT min(j.tenant) FROM jobs AS j WHERE j.tenant > $1)
        UNION ALL
        SELECT (SELECT min(j.tenant) FROM jobs AS j WHERE j.tenant > one.tenant)
        FROM each_one AS one WHERE one.tenant IS NOT NULL
    )
    SELECT one.tenant FROM each_one AS one
    WHERE EXISTS (
        SELECT 1 FROM jobs AS j
        WHERE j.tenant = one.tenant AND j.due_at <= $2
          AND ($4::text::bigint[] IS NULL OR EXISTS (
              SELECT 1 FROM runs AS r WHERE r.run_no = j.run_no AND r.shard = ANY ($4::text::bigint[]))))
    LIMIT $3";

    const DUE_JOBS: &str = "
    SELECT j.tenant, r.run_id, s.session_id, j.kind, j.due_at, j.attempts, j.error
    FROM jobs AS j
    JOIN runs AS r ON r.run_no = j.run_no
    JOIN sessions AS s ON s.session_no = r.session_no
    WHERE j.tenant = $1 AND j.due_at <= $2 AND ($4::text::bigint[] IS NULL OR r.shard = ANY ($4::text::bigint[]))
    ORDER BY j.due_at, j.run_no, j.kind LIMIT $3";

    const LIKE: &str = " ILIKE ";

    const POSITION: &str = "strpos";

    /// The column is the server's own text, so a label is found as text: only between two labels a quote follows on a comma or a
    /// brace.
    fn labels(query: &mut Query, column: &str, labels: &BTreeMap<String, String>) {
        for (key, value) in labels {
            label(query, column, key, value);
        }
    }

    fn session_label(query: &mut Query, key: &str, value: &str) {
        let column = if key == USER_LABEL { "s.label_user" } else { "s.label_project" };
        if is_indexed_whole(value) {
            query.push(" AND ").push(column).push(" = ").bind(value);
            return;
        }
        // Earlier versions had long labels whole there, as far as the index took them.
        query
            .push(" AND ")
            .push(column)
            .push(" IN (")
            .bind(&*indexed(value))
            .push(", ")
            .bind(value)
            .push(")");
        label(query, "s.labels", key, value);
    }

    fn session_of(query: &mut Query, user: &str, project: Option<&str>) {
        Self::session_label(query, USER_LABEL, user);
        match project {
            Some(project) => Self::session_label(query, PROJECT_LABEL, project),
            None => drop(query.push(" AND s.label_project IS NULL")),
        }
    }
}

fn label(query: &mut Query, column: &str, key: &str, value: &str) {
    let label = format!(",{}:{}", json(&key), json(&value));
    query.push(" AND strpos(',' || substr(").push(column).push(", 2), ").bind(label).push(") > 0");
}
