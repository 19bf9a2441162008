//! The tables of both databases: the columns that are copied, and the copy of their rows.

use futures_util::TryStreamExt as _;
use sqlx::postgres::PgArguments;
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, PgConnection, SqliteConnection, query::Query};

use super::value::{Contents, Kind, Value};
use crate::store::{PROJECT_LABEL, USER_LABEL};
use Kind::{Bool, Int, Label, RuleChecksum, Shard, Text};

/// Rows that one INSERT takes at most, and bytes of text after which it takes no further one. They are in memory twice.
const STATEMENT_ROWS: usize = 1_000;
const STATEMENT_BYTES: usize = 4 * 1024 * 1024;

/// A table of the copy: its columns, with the type and the expression that has the value in the source.
pub(super) struct Table {
    pub(super) name: &'static str,
    columns: &'static [(&'static str, Kind, &'static str)],
    /// The rest of the query of the source. It may have `?1`, the first session of the batch, and `?2`, the last one.
    from: &'static str,
}

/// Tables whose rows belong to no session. They are small, and are copied whole.
///
/// `keep` gets its sign in both tables that have it. SQLite counts it from 1 on, while PostgreSQL has the number of the deleted
/// session there, which may be the same.
pub(super) const WHOLE: [Table; 7] = [
    Table {
        name: "specs",
        columns: &[("digest", Text, "digest"), ("spec", Text, "spec")],
        from: "FROM specs",
    },
    Table {
        name: "kept_events",
        columns: &[
            ("keep", Int, "-keep"),
            ("run_no", Int, "run_no"),
            ("seq", Int, "seq"),
            ("run_id", Text, "run_id"),
            ("at", Int, "at"),
            ("status", Int, "status"),
            ("version", Int, "version"),
            ("payload", Text, "payload"),
            ("checksum", Int, "checksum"),
            ("model", Text, "model"),
        ],
        from: "FROM kept_events",
    },
    Table {
        name: "remembered_rules",
        columns: &[
            ("tenant", Text, "tenant"),
            ("rule_id", Text, "rule_id"),
            ("session_id", Text, "session_id"),
            ("request_id", Text, "request_id"),
            ("rule", Text, "rule"),
            ("decided_by", Text, "decided_by"),
            ("decided_at", Int, "decided_at"),
            ("checksum", RuleChecksum, "checksum"),
        ],
        from: "FROM remembered_rules",
    },
    Table {
        name: "tools",
        columns: &[
            ("tenant", Text, "tenant"),
            ("name", Text, "name"),
            ("declaration", Text, "declaration"),
            ("last_seen", Int, "last_seen"),
            ("terms", Text, "terms"),
            ("checksum", Int, "checksum"),
        ],
        from: "FROM tools",
    },
    Table {
        name: "hosts",
        columns: &[
            ("tenant", Text, "tenant"),
            ("host", Text, "host"),
            ("principal", Text, "principal"),
            ("last_seen", Int, "last_seen"),
        ],
        from: "FROM hosts",
    },
    Table {
        name: "usage_kept",
        columns: &[
            ("tenant", Text, "tenant"),
            ("minute", Int, "minute"),
            ("agent", Text, "agent"),
            ("model", Text, "model"),
            ("labels", Text, "labels"),
            ("created_by", Text, "created_by"),
            ("ended", Int, "ended"),
            ("error", Text, "error"),
            ("sums", Text, "sums"),
        ],
        from: "FROM usage_kept",
    },
    Table {
        name: "audit",
        columns: &[
            ("no", Int, "no"),
            ("at", Int, "at"),
            ("who", Text, "who"),
            ("tenant", Text, "tenant"),
            ("peer", Text, "peer"),
            ("what", Text, "what"),
            ("session_id", Text, "session_id"),
            ("run_id", Text, "run_id"),
            ("request_id", Text, "request_id"),
            ("tool", Text, "tool"),
            ("allowed", Bool, "allowed <> 0"),
            ("why", Text, "why"),
            ("prev_hash", Text, "prev_hash"),
            ("hash", Text, "hash"),
        ],
        from: "FROM audit",
    },
];

/// Tables whose rows belong to sessions.
pub(super) const OF_SESSIONS: [Table; 10] = [
    Table {
        name: "sessions",
        columns: &[
            ("session_no", Int, "session_no"),
            ("tenant", Text, "tenant"),
            ("session_id", Text, "session_id"),
            ("shard", Shard, "0"),
            ("title", Text, "title"),
            ("labels", Text, "labels"),
            ("label_user", Label(USER_LABEL), "labels"),
            ("label_project", Label(PROJECT_LABEL), "labels"),
            ("created_as", Text, "created_as"),
            ("created_by", Text, "created_by"),
            ("created_at", Int, "created_at"),
            ("updated_at", Int, "updated_at"),
            ("last_entry", Int, "last_entry"),
            ("last_queue_no", Int, "last_queue_no"),
            ("live_run_no", Int, "live_run_no"),
            ("forked_from", Text, "forked_from"),
            ("forked_at", Int, "forked_at"),
            ("forked_asked", Int, "forked_asked"),
            ("made_title", Text, "made_title"),
            ("summary", Text, "summary"),
            ("summary_upto", Int, "summary_upto"),
            ("preview", Text, "preview"),
        ],
        from: "FROM sessions WHERE session_no BETWEEN ?1 AND ?2",
    },
    Table {
        name: "runs",
        columns: &[
            ("run_no", Int, "r.run_no"),
            ("tenant", Text, "r.tenant"),
            ("run_id", Text, "r.run_id"),
            ("session_no", Int, "r.session_no"),
            ("shard", Shard, "0"),
            ("spec_digest", Text, "p.digest"),
            ("request_digest", Text, "r.request_digest"),
            ("agent", Text, "r.agent"),
            ("model", Text, "r.model"),
            ("labels", Text, "r.labels"),
            ("preview", Text, "r.preview"),
            ("created_by", Text, "r.created_by"),
            ("created_at", Int, "r.created_at"),
        ],
        from: "FROM runs AS r JOIN sessions AS s ON s.session_no = r.session_no
               LEFT JOIN specs AS p ON p.spec_no = r.spec_no WHERE r.session_no BETWEEN ?1 AND ?2",
    },
    Table {
        name: "run_states",
        columns: &[
            ("run_no", Int, "r.run_no"),
            ("tenant", Text, "r.tenant"),
            ("session_no", Int, "r.session_no"),
            ("shard", Shard, "0"),
            ("epoch", Int, "r.epoch"),
            ("last_seq", Int, "r.last_seq"),
            ("status", Int, "r.status"),
            ("goes_on", Bool, "r.goes_on <> 0"),
            ("at_hosts", Bool, "r.at_hosts <> 0"),
            ("wake_at", Int, "r.wake_at"),
            ("queue_no", Int, "r.queue_no"),
            ("error", Text, "r.error"),
            ("usage", Text, "r.usage"),
            ("iterations", Int, "r.iterations"),
            ("tool_calls", Int, "r.tool_calls"),
            ("updated_at", Int, "r.updated_at"),
            ("bytes", Int, "r.bytes"),
        ],
        from: "FROM runs AS r JOIN sessions AS s ON s.session_no = r.session_no
               WHERE r.session_no BETWEEN ?1 AND ?2",
    },
    Table {
        name: "run_events",
        columns: &[
            ("run_no", Int, "e.run_no"),
            ("seq", Int, "e.seq"),
            ("at", Int, "e.at"),
            ("status", Int, "e.status"),
            ("version", Int, "e.version"),
            ("payload", Text, "e.payload"),
            ("checksum", Int, "e.checksum"),
        ],
        from: "FROM runs AS r CROSS JOIN run_events AS e ON e.run_no = r.run_no
               WHERE r.session_no BETWEEN ?1 AND ?2 ORDER BY e.run_no, e.seq",
    },
    Table {
        name: "session_entries",
        columns: &[
            ("session_no", Int, "session_no"),
            ("entry_no", Int, "entry_no"),
            ("run_no", Int, "run_no"),
            ("seq", Int, "seq"),
            ("search_no", Int, "search_no"),
            ("owner", Int, "owner"),
            ("keep", Int, "-keep"),
        ],
        from: "FROM session_entries WHERE session_no BETWEEN ?1 AND ?2 ORDER BY session_no, entry_no",
    },
    Table {
        name: "session_todos",
        columns: &[
            ("session_no", Int, "session_no"),
            ("entry_no", Int, "entry_no"),
            ("items", Text, "items"),
        ],
        from: "FROM session_todos WHERE session_no BETWEEN ?1 AND ?2",
    },
    Table {
        name: "session_blobs",
        columns: &[
            ("session_no", Int, "session_no"),
            ("entry_no", Int, "entry_no"),
            ("digest", Text, "digest"),
        ],
        from: "FROM session_blobs WHERE session_no BETWEEN ?1 AND ?2",
    },
    Table {
        name: "steers",
        columns: &[
            ("tenant", Text, "t.tenant"),
            ("request_id", Text, "t.request_id"),
            ("run_no", Int, "t.run_no"),
            ("seq", Int, "t.seq"),
        ],
        from: "FROM runs AS r CROSS JOIN steers AS t ON t.run_no = r.run_no WHERE r.session_no BETWEEN ?1 AND ?2",
    },
    Table {
        name: "human_requests",
        columns: &[
            ("run_no", Int, "q.run_no"),
            ("question", Text, "q.question"),
            ("tenant", Text, "q.tenant"),
            ("asked_at", Int, "q.asked_at"),
            ("asked_seq", Int, "q.asked_seq"),
            ("answered_seq", Int, "q.answered_seq"),
        ],
        from: "FROM runs AS r CROSS JOIN human_requests AS q ON q.run_no = r.run_no
               WHERE r.session_no BETWEEN ?1 AND ?2",
    },
    Table {
        name: "jobs",
        columns: &[
            ("run_no", Int, "j.run_no"),
            ("kind", Text, "j.kind"),
            ("tenant", Text, "j.tenant"),
            ("due_at", Int, "j.due_at"),
            ("attempts", Int, "j.attempts"),
            ("error", Text, "j.error"),
        ],
        from: "FROM runs AS r CROSS JOIN jobs AS j ON j.run_no = r.run_no WHERE r.session_no BETWEEN ?1 AND ?2",
    },
];

/// The values of one column for one INSERT: it takes an array per column.
enum Values {
    Int(Vec<Option<i64>>),
    Text(Vec<Option<String>>),
    Bool(Vec<Option<bool>>),
}

impl Table {
    /// The query of the source. Rows with a shard have the columns that it follows from.
    fn select(&self) -> String {
        let columns: Vec<_> = self.columns.iter().map(|(name, _, of)| format!("{of} AS {name}")).collect();
        let has_shard = self.columns.iter().any(|(_, kind, _)| *kind == Shard);
        let session = if has_shard && self.name != "sessions" { ", s.session_id" } else { "" };
        format!("SELECT {}{session} {}", columns.join(", "), self.from)
    }

    fn insert(&self) -> String {
        let names: Vec<_> = self.columns.iter().map(|(name, _, _)| *name).collect();
        let arrays = self.columns.iter().zip(1..).map(|((_, kind, _), no)| match kind {
            Int | Shard | RuleChecksum => format!("${no}::bigint[]"),
            Text | Label(_) => format!("${no}::text[]"),
            Bool => format!("${no}::boolean[]"),
        });
        let arrays: Vec<_> = arrays.collect();
        format!(
            "INSERT INTO {} ({}) SELECT * FROM unnest({})",
            self.name,
            names.join(", "),
            arrays.join(", ")
        )
    }

    fn empty(&self) -> Vec<Values> {
        let of = |kind: Kind| match kind {
            Int | Shard | RuleChecksum => Values::Int(Vec::new()),
            Text | Label(_) => Values::Text(Vec::new()),
            Bool => Values::Bool(Vec::new()),
        };
        self.columns.iter().map(|(_, kind, _)| of(*kind)).collect()
    }

    /// Adds a row. Returns the bytes of its texts.
    fn push(&self, row: &SqliteRow, values: &mut [Values]) -> Result<usize, sqlx::Error> {
        let mut bytes = 0;
        for ((name, kind, _), values) in self.columns.iter().zip(values) {
            match (values, Value::of_source(row, name, *kind)?) {
                (Values::Int(list), Value::Int(number)) => list.push(number),
                (Values::Bool(list), Value::Bool(is_so)) => list.push(is_so),
                (Values::Text(list), Value::Text(text)) => {
                    bytes += text.as_ref().map_or(0, String::len);
                    list.push(text);
                }
                _ => unreachable!("a column has values of its kind"),
            }
        }
        Ok(bytes)
    }

    /// Deletes the rows of the copy.
    pub(super) async fn clear(&self, copy: &mut PgConnection) -> Result<(), sqlx::Error> {
        let sql = format!("DELETE FROM {}", self.name);
        sqlx::query(AssertSqlSafe(sql)).execute(copy).await.map(|_| ())
    }

    /// The contents that a whole table of the source would have in a copy.
    pub(super) async fn contents_of_source(
        &self,
        source: &mut SqliteConnection,
    ) -> Result<Contents, sqlx::Error> {
        let mut contents = Contents::default();
        let mut found = sqlx::query(AssertSqlSafe(self.select())).bind(i64::MIN).bind(i64::MAX).fetch(source);
        while let Some(row) = found.try_next().await? {
            contents.add(self.columns.iter().map(|(name, kind, _)| Value::of_source(&row, name, *kind)))?;
        }
        Ok(contents)
    }

    pub(super) async fn contents_of_copy(&self, copy: &mut PgConnection) -> Result<Contents, sqlx::Error> {
        let names: Vec<_> = self.columns.iter().map(|(name, _, _)| *name).collect();
        let sql = format!("SELECT {} FROM {}", names.join(", "), self.name);
        let mut contents = Contents::default();
        let mut found = sqlx::query(AssertSqlSafe(sql)).fetch(copy);
        while let Some(row) = found.try_next().await? {
            contents.add(self.columns.iter().map(|(name, kind, _)| Value::of_copy(&row, name, *kind)))?;
        }
        Ok(contents)
    }

    /// Copies the rows of a query. Returns their number.
    pub(super) async fn copy(
        &self,
        from: &mut SqliteConnection,
        to: &mut PgConnection,
        sessions: Option<(i64, i64)>,
    ) -> Result<u64, sqlx::Error> {
        let (select, insert) = (AssertSqlSafe(self.select()), self.insert());
        let query = sqlx::query(select);
        let query = match sessions {
            Some((first, last)) => query.bind(first).bind(last),
            None => query,
        };
        let mut found = query.fetch(from);
        let (mut values, mut rows, mut bytes, mut copied) = (self.empty(), 0, 0, 0);
        loop {
            let row = found.try_next().await?;
            if let Some(row) = &row {
                bytes += self.push(row, &mut values)?;
                rows += 1;
            }
            if rows > 0 && (row.is_none() || rows == STATEMENT_ROWS || bytes >= STATEMENT_BYTES) {
                let full = std::mem::replace(&mut values, self.empty());
                bound(sqlx::query(AssertSqlSafe(insert.clone())), full).execute(&mut *to).await?;
                copied += rows as u64;
                (rows, bytes) = (0, 0);
            }
            if row.is_none() {
                return Ok(copied);
            }
        }
    }
}

fn bound(
    query: Query<'_, sqlx::Postgres, PgArguments>,
    values: Vec<Values>,
) -> Query<'_, sqlx::Postgres, PgArguments> {
    values.into_iter().fold(query, |query, values| match values {
        Values::Int(list) => query.bind(list),
        Values::Text(list) => query.bind(list),
        Values::Bool(list) => query.bind(list),
    })
}
