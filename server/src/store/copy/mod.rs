//! Copies an SQLite store to PostgreSQL, and compares the two.
//!
//! Sessions are copied in batches, each with everything that belongs to them, in one transaction that also notes how far the copy
//! is. So a copy that was cut goes on where it was. Tables whose rows belong to no session are copied anew then: they may have
//! changed meanwhile. Numbers stay as they are. The search index is filled by the server.

mod tables;
mod value;

use std::path::{Path, PathBuf};

use agentloop_core::blob::BlobDigest;
use agentloop_core::id::{EntryNo, RunId, Seq, SessionId, TenantId};
use agentloop_core::run::replay::replay;
use agentloop_core::time::Timestamp;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, Row as _, SqliteConnection};

use self::tables::{OF_SESSIONS, WHOLE};
use super::postgres::{self, BLOCK_NUMBERS, PostgresOptions, PostgresStore, clean};
use super::sqlite::{self, SqliteOptions, SqliteStore};
use super::support::number::int;
use super::{
    BlobRow, BlobStore, JournalStore, NewBlob, RunRow, SessionRow, SessionStore, StoreError, StretchMax,
};

/// Sessions of one transaction of the copy, and of one query of the comparison. A cut copy repeats at most so many.
const BATCH_SESSIONS: i64 = 64;
/// Entries that are read from both stores and compared at a time.
const COMPARED: StretchMax = StretchMax { records: 500, bytes: 4 * 1024 * 1024 };

/// The reason why a copy was not made, or is not complete.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// Opening it would make an empty database.
    #[error("there is no database {}", .0.display())]
    NoSource(PathBuf),
    /// Most often a server has the SQLite database open.
    #[error(transparent)]
    Source(#[from] sqlite::OpenError),
    /// The PostgreSQL database does not respond, refuses the login, or has a schema that this version does not know.
    #[error(transparent)]
    Target(#[from] postgres::OpenError),
    /// A server has used the PostgreSQL database, or another copy of it is complete.
    #[error("the PostgreSQL database is not empty; name another one, or drop its schema")]
    NotEmpty,
    /// Another SQLite database was copied there in part: each has a random identity, which the copy notes.
    #[error(
        "the PostgreSQL database has a part of another SQLite database; name another one, or drop its schema"
    )]
    OtherSource,
    /// The comparison at the end has found this difference.
    #[error("the copy differs: {0}; drop its schema and copy again")]
    Differs(String),
    /// A statement of the copy failed, such as because a connection was lost.
    #[error("the copy was cut: {0}; the same command goes on where it was")]
    Sql(sqlx::Error),
    /// Reading failed during the comparison, so nothing is known to differ.
    #[error("the copy cannot be compared: {0}; the same command does that again")]
    Store(StoreError),
}

// Their texts have those of the errors in them, which are no sources therefore: those are told behind the text.
impl From<sqlx::Error> for CopyError {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for CopyError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The amounts of a complete copy, as the comparison has counted them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyReport {
    /// Rows by table. Both databases have as many.
    pub tables: Vec<(&'static str, u64)>,
    /// Runs with equal rows and journals. Each journal was replayed.
    pub runs: u64,
    /// Events of these runs. Journals that are damaged in both count as none.
    pub events: u64,
    /// Sessions with equal rows, entries and to-do lists.
    pub sessions: u64,
    /// Blobs in the copy. Each was verified by its digest.
    pub blobs: u64,
    /// Blobs whose file in the source is gone or damaged. The copy has their rows alone, so that they are damaged there, too.
    pub damaged_blobs: u64,
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
    let at = begin(&mut db, identity).await?.max(0);
    copy_whole_tables(&mut from, &mut db, at, say).await?;
    copy_sessions(&mut from, &mut db, at, say).await?;
    skip_numbers(&mut from, &mut db).await?;
    let tables = compare_tables(&mut from, &mut db).await?;
    db.close().await?;
    let target = Box::pin(PostgresStore::open_copy(to)).await?;
    let compared = match copy_blobs(source, &target, &mut from, say).await {
        Ok((blobs, damaged)) => {
            let damaged_blobs = damaged.len() as u64;
            let report = CopyReport { tables, blobs, damaged_blobs, ..CopyReport::default() };
            compare(source, &target, &mut from, report, say).await.map(|report| (report, damaged))
        }
        Err(error) => Err(error),
    };
    target.close().await;
    let (report, damaged) = compared?;
    finish(to, &damaged).await?;
    Ok(report)
}

/// Copies the tables that are not a session's, each anew. `at` is the last session that was copied. Versions before this one
/// have copied the entries of sessions with another `keep`.
async fn copy_whole_tables(
    from: &mut SqliteConnection,
    db: &mut PgConnection,
    at: i64,
    say: &mut impl FnMut(String),
) -> Result<(), CopyError> {
    let mut transaction = db.begin().await?;
    for table in &WHOLE {
        table.clear(&mut transaction).await?;
        let rows = table.copy(&mut *from, &mut transaction, None).await?;
        say(format!("{}: {rows} rows", table.name));
    }
    let changed = changed_audit_rows(from).await?;
    if changed > 0 {
        say(format!(
            "audit: {changed} rows have the character 0, which PostgreSQL does not take; a check of the chain ends at the first"
        ));
    }
    sqlx::query("UPDATE session_entries SET keep = -keep WHERE keep > 0").execute(&mut *transaction).await?;
    note(&mut transaction, at).await?;
    transaction.commit().await?;
    Ok(())
}

/// Rows of the audit log that the copy has with other texts, so that their hashes do not fit.
async fn changed_audit_rows(from: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    let sql = "SELECT count(*) AS n FROM audit
               WHERE instr(who || tenant || peer || what || session_id || run_id || request_id || tool || why, char(0)) > 0";
    sqlx::query(sql).fetch_one(from).await?.try_get("n")
}

/// Copies the sessions after `at` with all that is theirs, some in each transaction, so that an interrupted copy goes on there.
async fn copy_sessions(
    from: &mut SqliteConnection,
    db: &mut PgConnection,
    mut at: i64,
    say: &mut impl FnMut(String),
) -> Result<(), CopyError> {
    let sessions = count(&mut *from, "sessions").await?;
    loop {
        let sql = "SELECT min(session_no) AS first, max(session_no) AS last
                   FROM (SELECT session_no FROM sessions WHERE session_no > ?1 ORDER BY session_no LIMIT ?2)";
        let row = sqlx::query(sql).bind(at).bind(BATCH_SESSIONS).fetch_one(&mut *from).await?;
        let Some(first) = row.try_get::<Option<i64>, _>("first")? else { return Ok(()) };
        let last: i64 = row.try_get("last")?;
        let mut transaction = db.begin().await?;
        for table in &OF_SESSIONS {
            table.copy(&mut *from, &mut transaction, Some((first, last))).await?;
        }
        note(&mut transaction, last).await?;
        transaction.commit().await?;
        at = last;
        let done: i64 =
            sqlx::query("SELECT count(*) AS n FROM sessions").fetch_one(&mut *db).await?.try_get("n")?;
        say(format!("{done} of {sessions} sessions"));
    }
}

/// Ends the copy: servers open it from here on. Blobs that are damaged at the source have their rows alone.
async fn finish(to: &PostgresOptions, damaged: &[DamagedBlob]) -> Result<(), CopyError> {
    let mut db = postgres::open_for_copy(to).await?;
    let mut transaction = db.begin().await?;
    for blob in damaged {
        blob.copy_row(&mut transaction).await?;
    }
    sqlx::query("DELETE FROM copied").execute(&mut *transaction).await?;
    transaction.commit().await?;
    db.close().await?;
    Ok(())
}

/// The progress of the copy: negative at its begin, else the last session that was copied.
async fn begin(db: &mut PgConnection, identity: i64) -> Result<i64, CopyError> {
    let sql = "SELECT source, last FROM copied";
    if let Some(row) = sqlx::query(sql).fetch_optional(&mut *db).await? {
        let source: i64 = row.try_get("source")?;
        match source {
            postgres::SOURCE_UNKNOWN => {
                sqlx::query("UPDATE copied SET source = $1").bind(identity).execute(db).await?;
                return Ok(-1);
            }
            known if known == identity => return Ok(row.try_get("last")?),
            _ => return Err(CopyError::OtherSource),
        }
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

/// Compares the contents of all tables but the journals, which [`compare`] reads. Of those it compares the numbers of rows.
async fn compare_tables(
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
        if table.name != "run_events" {
            let (own, other) = (table.contents_of_source(from).await?, table.contents_of_copy(to).await?);
            if own != other {
                let why = format!("{} has other rows than the source", table.name);
                return Err(CopyError::Differs(why));
            }
        }
        counts.push((table.name, copied.unsigned_abs()));
    }
    Ok(counts)
}

/// A blob whose file in the source is gone or damaged.
struct DamagedBlob {
    new: NewBlob,
    blob: BlobRow,
    touched_at: i64,
}

impl DamagedBlob {
    /// Copies the row alone. Without bytes the blob is damaged, until somebody stores them again.
    async fn copy_row(&self, to: &mut PgConnection) -> Result<(), sqlx::Error> {
        let sql = "INSERT INTO blobs (tenant, digest, owner, size_bytes, media_type, touched_at)
                   VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";
        let Self { new, blob, touched_at } = self;
        sqlx::query(sql)
            .bind(new.tenant.as_str())
            .bind(blob.digest.digits())
            .bind(clean(new.owner.as_deref().unwrap_or_default()))
            .bind(int(blob.size))
            .bind(clean(&new.media_type))
            .bind(touched_at)
            .execute(to)
            .await
            .map(|_| ())
    }
}

/// Copies all blobs, also those that are there already, and returns their number and those that cannot be read. Both stores
/// compare the bytes with the digest.
async fn copy_blobs(
    source: &SqliteStore,
    target: &PostgresStore,
    from: &mut SqliteConnection,
    say: &mut impl FnMut(String),
) -> Result<(u64, Vec<DamagedBlob>), CopyError> {
    let sql = "SELECT tenant, digest, owner, media_type, touched_at FROM blobs WHERE stored = 1
               ORDER BY tenant, digest, owner";
    let found = sqlx::query(sql).fetch_all(from).await?;
    let (mut copied, mut lost) = (0, Vec::new());
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
        let touched_at: i64 = row.try_get("touched_at")?;
        match copy_blob(source, target, &new, &blob, Timestamp(touched_at.unsigned_abs())).await {
            Ok(()) => copied += 1,
            Err(error @ StoreError::DamagedBlob { .. }) => {
                say(format!(
                    "{error}, in the source; its row of tenant {} is copied without bytes",
                    new.tenant
                ));
                lost.push(DamagedBlob { new, blob, touched_at });
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok((copied, lost))
}

async fn copy_blob(
    source: &SqliteStore,
    target: &PostgresStore,
    new: &NewBlob,
    blob: &BlobRow,
    touched_at: Timestamp,
) -> Result<(), StoreError> {
    let mut reader = source.read_blob(blob, 0).await?;
    let mut upload = target.begin_blob(new.clone()).await?;
    while let Some(piece) = reader.next().await? {
        upload.write(&piece).await?;
    }
    upload.finish(touched_at).await.map(|_| ())
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
    if source.session(tenant, session).await?.map(clean_session) != target.session(tenant, session).await? {
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

/// The row of a session as PostgreSQL has it.
fn clean_session(mut row: SessionRow) -> SessionRow {
    let SessionRow { title, summary, created_by, preview, last_run, .. } = &mut row;
    let of_last = last_run.iter_mut().flat_map(|run| [&mut run.agent, &mut run.model]);
    for text in [title, summary, preview].into_iter().chain(created_by).chain(of_last) {
        *text = clean(text).into_owned();
    }
    row
}

/// The row of a run as PostgreSQL has it.
fn clean_run(mut row: RunRow) -> RunRow {
    let RunRow { agent, model, preview, created_by, .. } = &mut row;
    for text in [agent, model, preview].into_iter().chain(created_by) {
        *text = clean(text).into_owned();
    }
    row
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
    if source.run(tenant, run).await?.map(clean_run) != row {
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
