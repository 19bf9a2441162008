//! The tables of both databases: the columns that are copied, and the copy of their rows.

use futures_util::TryStreamExt as _;
use sqlx::postgres::PgArguments;
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, PgConnection, SqliteConnection, query::Query};

use super::value::{ColumnKind, Contents, CopiedValue};
use crate::store::{PROJECT_LABEL, USER_LABEL};
use ColumnKind::{Bool, Int, Label, RuleChecksum, Shard, Text};

/// Rows that one INSERT takes at most, and bytes of text after which it takes no further one. They are in memory twice.
const STATEMENT_ROWS: usize = 1_000;
const STATEMENT_BYTES: usize = 4 * 1024 * 1024;

/// A table of the copy.
pub(super) struct CopiedTable {
    pub(super) name: &'static str,
    columns: &'static [Column],
    /// The rest of the query of the source. It may have `?1`, the first session of the batch, and `?2`, the last one.
    from: &'static str,
}

/// A column of the copy.
struct Column {
    name: &'static str,
    kind: ColumnKind,
    /// The expression that has the value in the source.
    expression: &'static str,
}

const fn column(name: &'static str, kind: ColumnKind, expression: &'static str) -> Column {
    Column { name, kind, expression }
}

/// Tables whose rows belong to no session. They are small, and are copied whole.
///
/// `keep` gets its sign in both tables that have it. SQLite counts it from 1 on, while PostgreSQL has the number of the deleted
/// session there, which may be the same.
pub(super) const WHOLE: [CopiedTable; 7] = [
    CopiedTable {
        name: "specs",
        columns: &[column("digest", Text, "digest"), column("spec", Text, "spec")],
        from: "FROM specs",
    },
    CopiedTable {
        name: "kept_events",
        columns: &[
            column("keep", Int, "-keep"),
            column("run_no", Int, "run_no"),
            column("seq", Int, "seq"),
            column("run_id", Text, "run_id"),
            column("at", Int, "at"),
            column("status", Int, "status"),
            column("version", Int, "version"),
            column("payload", Text, "payload"),
            column("checksum", Int, "checksum"),
            column("model", Text, "model"),
        ],
        from: "FROM kept_events",
    },
    CopiedTable {
        name: "remembered_rules",
        columns: &[
            column("tenant", Text, "tenant"),
            column("rule_id", Text, "rule_id"),
            column("session_id", Text, "session_id"),
            column("request_id", Text, "request_id"),
            column("rule", Text, "rule"),
            column("decided_by", Text, "decided_by"),
            column("decided_at", Int, "decided_at"),
            column("checksum", RuleChecksum, "checksum"),
        ],
        from: "FROM remembered_rules",
    },
    CopiedTable {
        name: "tools",
        columns: &[
            column("tenant", Text, "tenant"),
            column("name", Text, "name"),
            column("declaration", Text, "declaration"),
            column("last_seen", Int, "last_seen"),
            column("terms", Text, "terms"),
            column("checksum", Int, "checksum"),
        ],
        from: "FROM tools",
    },
    CopiedTable {
        name: "hosts",
        columns: &[
            column("tenant", Text, "tenant"),
            column("host", Text, "host"),
            column("principal", Text, "principal"),
            column("last_seen", Int, "last_seen"),
        ],
        from: "FROM hosts",
    },
    CopiedTable {
        name: "usage_kept",
        columns: &[
            column("tenant", Text, "tenant"),
            column("minute", Int, "minute"),
            column("agent", Text, "agent"),
            column("model", Text, "model"),
            column("labels", Text, "labels"),
            column("created_by", Text, "created_by"),
            column("ended", Int, "ended"),
            column("error", Text, "error"),
            column("sums", Text, "sums"),
        ],
        from: "FROM usage_kept",
    },
    CopiedTable {
        name: "audit",
        columns: &[
            column("no", Int, "no"),
            column("at", Int, "at"),
            column("who", Text, "who"),
            column("tenant", Text, "tenant"),
            column("peer", Text, "peer"),
            column("what", Text, "what"),
            column("session_id", Text, "session_id"),
            column("run_id", Text, "run_id"),
            column("request_id", Text, "request_id"),
            column("tool", Text, "tool"),
            column("allowed", Bool, "allowed <> 0"),
            column("why", Text, "why"),
            column("prev_hash", Text, "prev_hash"),
            column("hash", Text, "hash"),
        ],
        from: "FROM audit",
    },
];

/// Tables whose rows belong to sessions.
pub(super) const OF_SESSIONS: [CopiedTable; 10] = [
    CopiedTable {
        name: "sessions",
        columns: &[
            column("session_no", Int, "session_no"),
            column("tenant", Text, "tenant"),
            column("session_id", Text, "session_id"),
            column("shard", Shard, "0"),
            column("title", Text, "title"),
            column("labels", Text, "labels"),
            column("label_user", Label(USER_LABEL), "labels"),
            column("label_project", Label(PROJECT_LABEL), "labels"),
            column("created_as", Text, "created_as"),
            column("created_by", Text, "created_by"),
            column("created_at", Int, "created_at"),
            column("updated_at", Int, "updated_at"),
            column("last_entry", Int, "last_entry"),
            column("last_queue_no", Int, "last_queue_no"),
            column("live_run_no", Int, "live_run_no"),
            column("forked_from", Text, "forked_from"),
            column("forked_at", Int, "forked_at"),
            column("forked_asked", Int, "forked_asked"),
            column("made_title", Text, "made_title"),
            column("summary", Text, "summary"),
            column("summary_upto", Int, "summary_upto"),
            column("preview", Text, "preview"),
        ],
        from: "FROM sessions WHERE session_no BETWEEN ?1 AND ?2",
    },
    CopiedTable {
        name: "runs",
        columns: &[
            column("run_no", Int, "r.run_no"),
            column("tenant", Text, "r.tenant"),
            column("run_id", Text, "r.run_id"),
            column("session_no", Int, "r.session_no"),
            column("shard", Shard, "0"),
            column("spec_digest", Text, "p.digest"),
            column("request_digest", Text, "r.request_digest"),
            column("agent", Text, "r.agent"),
            column("model", Text, "r.model"),
            column("labels", Text, "r.labels"),
            column("preview", Text, "r.preview"),
            column("created_by", Text, "r.created_by"),
            column("created_at", Int, "r.created_at"),
        ],
        from: "FROM runs AS r JOIN sessions AS s ON s.session_no = r.session_no
               LEFT JOIN specs AS p ON p.spec_no = r.spec_no WHERE r.session_no BETWEEN ?1 AND ?2",
    },
    CopiedTable {
        name: "run_states",
        columns: &[
            column("run_no", Int, "r.run_no"),
            column("tenant", Text, "r.tenant"),
            column("session_no", Int, "r.session_no"),
            column("shard", Shard, "0"),
            column("epoch", Int, "r.epoch"),
            column("last_seq", Int, "r.last_seq"),
            column("status", Int, "r.status"),
            column("goes_on", Bool, "r.goes_on <> 0"),
            column("at_hosts", Bool, "r.at_hosts <> 0"),
            column("wake_at", Int, "r.wake_at"),
            column("queue_no", Int, "r.queue_no"),
            column("error", Text, "r.error"),
            column("usage", Text, "r.usage"),
            column("iterations", Int, "r.iterations"),
            column("tool_calls", Int, "r.tool_calls"),
            column("updated_at", Int, "r.updated_at"),
            column("bytes", Int, "r.bytes"),
        ],
        from: "FROM runs AS r JOIN sessions AS s ON s.session_no = r.session_no
               WHERE r.session_no BETWEEN ?1 AND ?2",
    },
    CopiedTable {
        name: "run_events",
        columns: &[
            column("run_no", Int, "e.run_no"),
            column("seq", Int, "e.seq"),
            column("at", Int, "e.at"),
            column("status", Int, "e.status"),
            column("version", Int, "e.version"),
            column("payload", Text, "e.payload"),
            column("checksum", Int, "e.checksum"),
        ],
        from: "FROM runs AS r CROSS JOIN run_events AS e ON e.run_no = r.run_no
               WHERE r.session_no BETWEEN ?1 AND ?2 ORDER BY e.run_no, e.seq",
    },
    CopiedTable {
        name: "session_entries",
        columns: &[
            column("session_no", Int, "session_no"),
            column("entry_no", Int, "entry_no"),
            column("run_no", Int, "run_no"),
            column("seq", Int, "seq"),
            column("search_no", Int, "search_no"),
            column("owner", Int, "owner"),
            column("keep", Int, "-keep"),
        ],
        from: "FROM session_entries WHERE session_no BETWEEN ?1 AND ?2 ORDER BY session_no, entry_no",
    },
    CopiedTable {
        name: "session_todos",
        columns: &[
            column("session_no", Int, "session_no"),
            column("entry_no", Int, "entry_no"),
            column("items", Text, "items"),
        ],
        from: "FROM session_todos WHERE session_no BETWEEN ?1 AND ?2",
    },
    CopiedTable {
        name: "session_blobs",
        columns: &[
            column("session_no", Int, "session_no"),
            column("entry_no", Int, "entry_no"),
            column("digest", Text, "digest"),
        ],
        from: "FROM session_blobs WHERE session_no BETWEEN ?1 AND ?2",
    },
    CopiedTable {
        name: "steers",
        columns: &[
            column("tenant", Text, "t.tenant"),
            column("request_id", Text, "t.request_id"),
            column("run_no", Int, "t.run_no"),
            column("seq", Int, "t.seq"),
        ],
        from: "FROM runs AS r CROSS JOIN steers AS t ON t.run_no = r.run_no WHERE r.session_no BETWEEN ?1 AND ?2",
    },
    CopiedTable {
        name: "human_requests",
        columns: &[
            column("run_no", Int, "q.run_no"),
            column("question", Text, "q.question"),
            column("tenant", Text, "q.tenant"),
            column("asked_at", Int, "q.asked_at"),
            column("asked_seq", Int, "q.asked_seq"),
            column("answered_seq", Int, "q.answered_seq"),
        ],
        from: "FROM runs AS r CROSS JOIN human_requests AS q ON q.run_no = r.run_no
               WHERE r.session_no BETWEEN ?1 AND ?2",
    },
    CopiedTable {
        name: "jobs",
        columns: &[
            column("run_no", Int, "j.run_no"),
            column("kind", Text, "j.kind"),
            column("tenant", Text, "j.tenant"),
            column("due_at", Int, "j.due_at"),
            column("attempts", Int, "j.attempts"),
            column("error", Text, "j.error"),
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

impl CopiedTable {
    /// The query of the source. Rows with a shard have the columns that it follows from.
    fn select(&self) -> String {
        let columns = self.columns.iter().map(|column| format!("{} AS {}", column.expression, column.name));
        let columns: Vec<_> = columns.collect();
        let has_shard = self.columns.iter().any(|column| column.kind == Shard);
        let session = if has_shard && self.name != "sessions" { ", s.session_id" } else { "" };
        format!("SELECT {}{session} {}", columns.join(", "), self.from)
    }

    fn insert(&self) -> String {
        let names: Vec<_> = self.columns.iter().map(|column| column.name).collect();
        let arrays = self.columns.iter().zip(1..).map(|(column, no)| match column.kind {
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
        let of = |kind: ColumnKind| match kind {
            Int | Shard | RuleChecksum => Values::Int(Vec::new()),
            Text | Label(_) => Values::Text(Vec::new()),
            Bool => Values::Bool(Vec::new()),
        };
        self.columns.iter().map(|column| of(column.kind)).collect()
    }

    /// Adds a row. Returns the bytes of its texts.
    fn push(&self, row: &SqliteRow, values: &mut [Values]) -> Result<usize, sqlx::Error> {
        let mut bytes = 0;
        for (column, values) in self.columns.iter().zip(values) {
            match (values, CopiedValue::of_source(row, column.name, column.kind)?) {
                (Values::Int(list), CopiedValue::Int(number)) => list.push(number),
                (Values::Bool(list), CopiedValue::Bool(is_so)) => list.push(is_so),
                (Values::Text(list), CopiedValue::Text(text)) => {
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
            let of_source = |column: &Column| CopiedValue::of_source(&row, column.name, column.kind);
            contents.add(self.columns.iter().map(of_source))?;
        }
        Ok(contents)
    }

    pub(super) async fn contents_of_copy(&self, copy: &mut PgConnection) -> Result<Contents, sqlx::Error> {
        let names: Vec<_> = self.columns.iter().map(|column| column.name).collect();
        let sql = format!("SELECT {} FROM {}", names.join(", "), self.name);
        let mut contents = Contents::default();
        let mut found = sqlx::query(AssertSqlSafe(sql)).fetch(copy);
        while let Some(row) = found.try_next().await? {
            let of_copy = |column: &Column| CopiedValue::of_copy(&row, column.name, column.kind);
            contents.add(self.columns.iter().map(of_copy))?;
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
