//! Copies an SQLite store to PostgreSQL, and compares the two.
//!
//! Sessions are copied in batches, each with everything that belongs to them, in one transaction that also notes how far the copy
//! is. So a copy that was cut goes on where it was. Numbers stay as they are. The search index is filled by the server.

use std::path::{Path, PathBuf};

use agentloop_core::blob::BlobDigest;
use agentloop_core::cluster::shard::shard_of;
use agentloop_core::id::{EntryNo, RunId, Seq, SessionId, TenantId};
use agentloop_core::run::replay::replay;
use agentloop_core::time::Timestamp;
use futures_util::TryStreamExt as _;
use sqlx::postgres::PgArguments;
use sqlx::sqlite::{SqliteConnectOptions, SqliteRow};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, Row as _, SqliteConnection,
    query::Query,
};

use super::postgres::{self, BLOCK_NUMBERS, PostgresOptions, PostgresStore, clean};
use super::sqlite::{self, SqliteOptions, SqliteStore};
use super::{BlobStore, JournalStore, NewBlob, SessionStore, StoreError, StretchMax};

/// Sessions of one batch.
const BATCH_SESSIONS: i64 = 64;
/// Rows of one statement, and bytes of text after which it takes no further row.
const STATEMENT_ROWS: usize = 1_000;
const STATEMENT_BYTES: usize = 4 * 1024 * 1024;
/// Entries of one comparison.
const COMPARED: StretchMax = StretchMax { records: 500, bytes: 4 * 1024 * 1024 };

/// The reason why a copy was not made, or is not complete.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// There is no such file.
    #[error("there is no database {}", .0.display())]
    NoSource(PathBuf),
    /// The SQLite database cannot be opened, such as because a server uses it.
    #[error(transparent)]
    Source(#[from] sqlite::OpenError),
    /// The PostgreSQL database cannot be opened.
    #[error(transparent)]
    Target(#[from] postgres::OpenError),
    /// The PostgreSQL database has sessions that are not of this copy.
    #[error("the PostgreSQL database is not empty; name another one, or drop its schema")]
    NotEmpty,
    /// The PostgreSQL database has a part of another database.
    #[error(
        "the PostgreSQL database has a part of another SQLite database; name another one, or drop its schema"
    )]
    OtherSource,
    /// The two differ.
    #[error("the copy differs: {0}; drop its schema and copy again")]
    Differs(String),
    /// SQL's own.
    #[error("the copy was cut: {0}; the same command goes on where it was")]
    Sql(#[from] sqlx::Error),
    /// One of the stores cannot be read.
    #[error("the copy cannot be compared: {0}; the same command does that again")]
    Store(#[from] StoreError),
}

/// The rows of a complete copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyReport {
    /// Number of rows of each table, which both have.
    pub tables: Vec<(&'static str, u64)>,
    /// Number of runs whose journals are equal and were replayed.
    pub runs: u64,
    /// Number of their events.
    pub events: u64,
    /// Number of sessions whose entries are equal.
    pub sessions: u64,
    /// Number of blobs whose bytes are equal.
    pub blobs: u64,
}

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Int,
    Text,
    Bool,
    /// The shard of the row's columns `tenant` and `session_id`.
    Shard,
}

use Kind::{Bool, Int, Shard, Text};

/// A table of the copy: its columns, with the type and the expression that has the value in the source.
struct Table {
    name: &'static str,
    columns: &'static [(&'static str, Kind, &'static str)],
    /// The rest of the query of the source. It may have `?1`, the first session of the batch, and `?2`, the last one.
    from: &'static str,
}

/// Tables whose rows belong to no session. They are small, and are copied whole.
const WHOLE: [Table; 6] = [
    Table {
        name: "specs",
        columns: &[("digest", Text, "digest"), ("spec", Text, "spec")],
        from: "FROM specs",
    },
    Table {
        name: "kept_events",
        columns: &[
            ("keep", Int, "keep"),
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
            ("checksum", Int, "checksum"),
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
const OF_SESSIONS: [Table; 10] = [
    Table {
        name: "sessions",
        columns: &[
            ("session_no", Int, "session_no"),
            ("tenant", Text, "tenant"),
            ("session_id", Text, "session_id"),
            ("shard", Shard, "0"),
            ("title", Text, "title"),
            ("labels", Text, "labels"),
            ("label_user", Text, "labels ->> '$.user'"),
            ("label_project", Text, "labels ->> '$.project'"),
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
            ("keep", Int, "keep"),
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
            ("due_at", Int, "j.due_at"),
            ("attempts", Int, "j.attempts"),
            ("error", Text, "j.error"),
        ],
        from: "FROM runs AS r CROSS JOIN jobs AS j ON j.run_no = r.run_no WHERE r.session_no BETWEEN ?1 AND ?2",
    },
];

/// The values of a column of some rows.
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
            Int | Shard => format!("${no}::bigint[]"),
            Text => format!("${no}::text[]"),
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
            Int | Shard => Values::Int(Vec::new()),
            Text => Values::Text(Vec::new()),
            Bool => Values::Bool(Vec::new()),
        };
        self.columns.iter().map(|(_, kind, _)| of(*kind)).collect()
    }

    /// Adds a row. Returns the bytes of its texts.
    fn push(&self, row: &SqliteRow, values: &mut [Values]) -> Result<usize, sqlx::Error> {
        let mut bytes = 0;
        for ((name, kind, _), values) in self.columns.iter().zip(values) {
            match values {
                Values::Int(list) if *kind == Shard => list.push(Some(shard(row)?)),
                Values::Int(list) => list.push(row.try_get(name)?),
                Values::Bool(list) => list.push(row.try_get(name)?),
                Values::Text(list) => {
                    let text: Option<String> = row.try_get(name)?;
                    bytes += text.as_ref().map_or(0, String::len);
                    list.push(text.map(|text| clean(&text).into_owned()));
                }
            }
        }
        Ok(bytes)
    }

    /// Copies the rows of a query. Returns their number.
    async fn copy(
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

fn shard(row: &SqliteRow) -> Result<i64, sqlx::Error> {
    let damaged = |error| sqlx::Error::Decode(Box::<dyn std::error::Error + Send + Sync>::from(error));
    let tenant = TenantId::parse(row.try_get::<&str, _>("tenant")?).map_err(damaged)?;
    let session = SessionId::parse(row.try_get::<&str, _>("session_id")?).map_err(damaged)?;
    Ok(shard_of(&tenant, &session).0.into())
}

/// Copies everything and compares it. `say` gets a line for each step.
///
/// # Errors
/// [`CopyError`]. Until the copy is complete, no server opens it.
pub async fn sqlite_to_postgres(
    from: &Path,
    to: &PostgresOptions,
    mut say: impl FnMut(String),
) -> Result<CopyReport, CopyError> {
    if !from.exists() {
        return Err(CopyError::NoSource(from.to_owned()));
    }
    // Locks the file against servers, and brings it to the schema that the queries here are for.
    let source = Box::pin(SqliteStore::open(from, &SqliteOptions::default())).await?;
    let copied = Box::pin(copy(from, &source, to, &mut say)).await;
    source.close().await;
    copied
}

async fn copy(
    path: &Path,
    source: &SqliteStore,
    to: &PostgresOptions,
    say: &mut impl FnMut(String),
) -> Result<CopyReport, CopyError> {
    let mut from = SqliteConnectOptions::new().filename(path).read_only(true).connect().await?;
    let identity: i64 = sqlx::query("SELECT value FROM meta WHERE key = 'identity'")
        .fetch_one(&mut from)
        .await?
        .try_get("value")?;
    let mut db = postgres::open_for_copy(to).await?;
    let mut at = begin(&mut db, identity).await?;
    if at < 0 {
        let mut transaction = db.begin().await?;
        for table in &WHOLE {
            let rows = table.copy(&mut from, &mut transaction, None).await?;
            say(format!("{}: {rows} rows", table.name));
        }
        note(&mut transaction, 0).await?;
        transaction.commit().await?;
        at = 0;
    }
    let sessions = count(&mut from, "sessions").await?;
    loop {
        let sql = "SELECT min(session_no) AS first, max(session_no) AS last
                   FROM (SELECT session_no FROM sessions WHERE session_no > ?1 ORDER BY session_no LIMIT ?2)";
        let row = sqlx::query(sql).bind(at).bind(BATCH_SESSIONS).fetch_one(&mut from).await?;
        let Some(first) = row.try_get::<Option<i64>, _>("first")? else { break };
        let last: i64 = row.try_get("last")?;
        let mut transaction = db.begin().await?;
        for table in &OF_SESSIONS {
            table.copy(&mut from, &mut transaction, Some((first, last))).await?;
        }
        note(&mut transaction, last).await?;
        transaction.commit().await?;
        at = last;
        let done: i64 =
            sqlx::query("SELECT count(*) AS n FROM sessions").fetch_one(&mut db).await?.try_get("n")?;
        say(format!("{done} of {sessions} sessions"));
    }
    skip_numbers(&mut from, &mut db).await?;
    let tables = compare_counts(&mut from, &mut db).await?;
    db.close().await?;
    let target = Box::pin(PostgresStore::open_copy(to)).await?;
    let compared = match copy_blobs(source, &target, &mut from).await {
        Ok(blobs) => {
            let report = CopyReport { tables, blobs, ..CopyReport::default() };
            compare(source, &target, &mut from, report, say).await
        }
        Err(error) => Err(error),
    };
    target.close().await;
    let report = compared?;
    let mut db = postgres::open_for_copy(to).await?;
    sqlx::query("DELETE FROM copied").execute(&mut db).await?;
    db.close().await?;
    Ok(report)
}

/// How far the copy is: negative at its begin, else the last session that was copied.
async fn begin(db: &mut PgConnection, identity: i64) -> Result<i64, CopyError> {
    let sql = "SELECT source, last FROM copied";
    if let Some(row) = sqlx::query(sql).fetch_optional(&mut *db).await? {
        let source: i64 = row.try_get("source")?;
        return if source == identity { Ok(row.try_get("last")?) } else { Err(CopyError::OtherSource) };
    }
    let sql = "SELECT EXISTS (SELECT 1 FROM sessions) OR EXISTS (SELECT 1 FROM tools) OR EXISTS (SELECT 1 FROM audit)
                   OR EXISTS (SELECT 1 FROM usage_kept) AS used";
    if sqlx::query(sql).fetch_one(&mut *db).await?.try_get("used")? {
        return Err(CopyError::NotEmpty);
    }
    sqlx::query("INSERT INTO copied (source, last) VALUES ($1, -1)").bind(identity).execute(db).await?;
    Ok(-1)
}

async fn note(db: &mut PgConnection, last: i64) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE copied SET last = $1").bind(last).execute(db).await.map(|_| ())
}

/// Numbers that the copy has are not given out again.
async fn skip_numbers(from: &mut SqliteConnection, db: &mut PgConnection) -> Result<(), sqlx::Error> {
    let sql = "SELECT max(
                   (SELECT coalesce(max(run_no), 0) FROM runs),
                   (SELECT coalesce(max(session_no), 0) FROM sessions),
                   (SELECT coalesce(max(search_no), 0) FROM session_entries WHERE search_no IS NOT NULL),
                   (SELECT coalesce(max(value), 0) FROM meta WHERE key LIKE 'last\\_%' ESCAPE '\\'),
                   (SELECT coalesce(max(max(keep, run_no)), 0) FROM kept_events)) AS last";
    let last: i64 = sqlx::query(sql).fetch_one(from).await?.try_get("last")?;
    let sql = "SELECT setval('number_blocks', greatest($1, (SELECT last_value FROM number_blocks)))";
    sqlx::query(sql).bind(last / BLOCK_NUMBERS + 1).execute(db).await.map(|_| ())
}

async fn count(db: &mut SqliteConnection, table: &str) -> Result<i64, sqlx::Error> {
    let sql = format!("SELECT count(*) AS n FROM {table}");
    sqlx::query(AssertSqlSafe(sql)).fetch_one(db).await?.try_get("n")
}

async fn compare_counts(
    from: &mut SqliteConnection,
    to: &mut PgConnection,
) -> Result<Vec<(&'static str, u64)>, CopyError> {
    let mut counts = Vec::new();
    for table in WHOLE.iter().chain(&OF_SESSIONS) {
        let source = count(from, if table.name == "run_states" { "runs" } else { table.name }).await?;
        let sql = format!("SELECT count(*) AS n FROM {}", table.name);
        let copied: i64 = sqlx::query(AssertSqlSafe(sql)).fetch_one(&mut *to).await?.try_get("n")?;
        if source != copied {
            let why = format!("{} has {copied} rows, and the source {source}", table.name);
            return Err(CopyError::Differs(why));
        }
        counts.push((table.name, copied.unsigned_abs()));
    }
    Ok(counts)
}

/// Copies the blobs that are not there yet. Both stores compare the bytes with the digest.
async fn copy_blobs(
    source: &SqliteStore,
    target: &PostgresStore,
    from: &mut SqliteConnection,
) -> Result<u64, CopyError> {
    let sql = "SELECT tenant, digest, owner, media_type, touched_at FROM blobs WHERE stored = 1
               ORDER BY tenant, digest, owner";
    let found = sqlx::query(sql).fetch_all(from).await?;
    for row in &found {
        let text = |column: &str| row.try_get::<String, _>(column);
        let digits = text("digest")?;
        let damaged = || CopyError::Differs(format!("the blob {digits} has no valid key"));
        let tenant = TenantId::parse(text("tenant")?).map_err(|_| damaged())?;
        let digest = BlobDigest::parse(format!("sha256:{digits}")).map_err(|_| damaged())?;
        let owner = Some(text("owner")?).filter(|owner| !owner.is_empty());
        let Some(blob) = source.blob(&tenant, None, &digest).await? else { continue };
        let new = NewBlob {
            tenant,
            owner,
            digest: Some(digest),
            size: Some(blob.size),
            media_type: text("media_type")?,
        };
        let mut upload = target.begin_blob(new).await?;
        let mut reader = source.read_blob(&blob, 0).await?;
        while let Some(piece) = reader.next().await? {
            upload.write(&piece).await?;
        }
        upload.finish(Timestamp(row.try_get::<i64, _>("touched_at")?.unsigned_abs())).await?;
    }
    Ok(found.len() as u64)
}

/// Compares the rows of all sessions and runs, their entries and their journals. Each journal is verified by its checksums and
/// folded, and has to lead to the status of its row.
async fn compare(
    source: &SqliteStore,
    target: &PostgresStore,
    from: &mut SqliteConnection,
    mut report: CopyReport,
    say: &mut impl FnMut(String),
) -> Result<CopyReport, CopyError> {
    let mut at = 0;
    loop {
        let sql = "SELECT session_no, tenant, session_id FROM sessions WHERE session_no > ?1 ORDER BY session_no LIMIT ?2";
        let sessions = sqlx::query(sql).bind(at).bind(BATCH_SESSIONS).fetch_all(&mut *from).await?;
        let Some(last) = sessions.last() else { return Ok(report) };
        at = last.try_get("session_no")?;
        for row in &sessions {
            let (tenant, session) =
                (row.try_get::<String, _>("tenant")?, row.try_get::<String, _>("session_id")?);
            let (Ok(tenant), Ok(session)) = (TenantId::parse(&*tenant), SessionId::parse(&*session)) else {
                return Err(CopyError::Differs(format!("the session {tenant}/{session} has no valid id")));
            };
            compare_session(source, target, &tenant, &session).await?;
            report.sessions += 1;
            let sql = "SELECT run_id FROM runs WHERE session_no = ?1 ORDER BY run_no";
            let runs =
                sqlx::query(sql).bind(row.try_get::<i64, _>("session_no")?).fetch_all(&mut *from).await?;
            for row in runs {
                let run = row.try_get::<String, _>("run_id")?;
                let run = RunId::parse(&*run)
                    .map_err(|_| CopyError::Differs(format!("the run {tenant}/{run} has no valid id")))?;
                report.events += compare_run(source, target, &tenant, &run).await?;
                report.runs += 1;
            }
        }
        say(format!("{} sessions and {} runs compared", report.sessions, report.runs));
    }
}

async fn compare_session(
    source: &SqliteStore,
    target: &PostgresStore,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<(), CopyError> {
    let differs = |what: &str| CopyError::Differs(format!("{what} of the session {tenant}/{session}"));
    if source.session(tenant, session).await? != target.session(tenant, session).await? {
        return Err(differs("the row"));
    }
    if source.todos(tenant, session).await? != target.todos(tenant, session).await? {
        return Err(differs("the to-do list"));
    }
    let mut after = EntryNo(0);
    loop {
        let own = source.listed_entries(tenant, session, after, COMPARED).await?;
        if own != target.listed_entries(tenant, session, after, COMPARED).await? {
            return Err(differs("an entry"));
        }
        match own.rows.last() {
            Some(last) if own.more => after = last.entry(),
            _ => return Ok(()),
        }
    }
}

/// Returns the number of the run's events. A journal that is damaged in the source is damaged in the copy.
async fn compare_run(
    source: &SqliteStore,
    target: &PostgresStore,
    tenant: &TenantId,
    run: &RunId,
) -> Result<u64, CopyError> {
    let differs = |what: String| CopyError::Differs(format!("{what} of the run {tenant}/{run}"));
    let row = target.run(tenant, run).await?;
    if source.run(tenant, run).await? != row {
        return Err(differs("the row".to_owned()));
    }
    let own = source.records(tenant, run, Seq(0), u32::MAX).await;
    let copied = target.records(tenant, run, Seq(0), u32::MAX).await;
    let records = match (own, copied) {
        (Ok(own), Ok(copied)) if own == copied => copied,
        (Err(own), Err(copied)) if own.is_damage() && copied.is_damage() => return Ok(0),
        (Err(error), _) | (_, Err(error)) if !error.is_damage() => return Err(error.into()),
        _ => return Err(differs("the journal".to_owned())),
    };
    let replayed = replay(run, &records, |_| Ok(()));
    let status = row.map(|row| row.summary.status);
    // A journal that does not fold in the source does not fold here.
    if replayed.difference.is_none() && replayed.state.status() != status {
        return Err(differs("the status after the replay".to_owned()));
    }
    Ok(records.len() as u64)
}
