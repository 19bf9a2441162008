//! A small file beside a database that says what the database last had. A start compares the two, so it notices a
//! write-ahead log that was deleted or damaged after a kill, with the commits that were nowhere else.
//!
//! The file is written after commits and never synced, so it may be behind the database and is never ahead of it. A file
//! that is missing or cannot be read is no evidence of anything.

use std::fs::{File, Metadata};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use sqlx::{Error, Row as _, SqliteConnection};

use super::error::OpenError;
use super::lock::private;
use super::log_of;

/// Length of the file. It is written with one call, and always as long, so that it never mixes two states.
const FILE_BYTES: usize = 512;

/// The highest numbers that a database has ever given out, deleted rows included, and the number of deletions.
const HIGHEST: &str = "
    SELECT max(coalesce((SELECT max(run_no) FROM runs), 0),
               coalesce((SELECT value FROM meta WHERE key = 'last_run'), 0)) AS run,
           max(coalesce((SELECT max(session_no) FROM sessions), 0),
               coalesce((SELECT value FROM meta WHERE key = 'last_session'), 0)) AS session,
           max(coalesce((SELECT max(event_no) FROM run_events), 0),
               coalesce((SELECT value FROM meta WHERE key = 'last_event'), 0)) AS event,
           coalesce((SELECT value FROM meta WHERE key = 'deletions'), 0) AS deletions,
           (SELECT value FROM meta WHERE key = 'identity') AS identity,
           (SELECT execution_time FROM _sqlx_migrations ORDER BY version LIMIT 1) AS made,
           (SELECT schema_version FROM pragma_schema_version) AS schema";

/// The state of a database: the highest numbers of its rows, and the marks by which copies of it are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::store::sqlite) struct LastState {
    run: i64,
    session: i64,
    event: i64,
    /// Number of sessions and rules that were deleted, since this is counted.
    #[serde(default)]
    deletions: i64,
    /// The database's random number, which copies share.
    identity: i64,
    /// When the database was made, as the time that its first migration took. Copies share it, too, and databases of every
    /// version have it.
    made: i64,
    /// SQLite's count of changes of the schema. A copy that `VACUUM INTO` made has a higher one.
    schema: i64,
}

/// The content of the file: a state, and which file had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Evidence {
    #[serde(flatten)]
    state: LastState,
    inode: u64,
    /// When the database file was created, in nanoseconds; 0 if the system does not tell.
    created: u64,
}

/// The result of a comparison.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store::sqlite) enum Compared {
    /// The database has all that it had, or there is no evidence about it.
    Whole,
    /// It is an earlier copy of the database that was here, such as a backup.
    EarlierCopy,
}

/// The file that has the last state of a database.
pub(in crate::store::sqlite) fn path_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".last");
    name.into()
}

impl LastState {
    /// Reads what a database has now.
    ///
    /// # Errors
    /// SQL's own.
    pub(in crate::store::sqlite) async fn read<'e>(
        db: impl sqlx::Executor<'e, Database = sqlx::Sqlite>,
    ) -> Result<Self, Error> {
        let row = sqlx::query(HIGHEST).fetch_one(db).await?;
        Ok(Self {
            run: row.try_get("run")?,
            session: row.try_get("session")?,
            event: row.try_get("event")?,
            deletions: row.try_get("deletions")?,
            // A number that is missing would be read as 0.
            identity: row.try_get::<Option<i64>, _>("identity")?.ok_or(Error::RowNotFound)?,
            made: row.try_get("made")?,
            schema: row.try_get("schema")?,
        })
    }

    /// Writes the file beside a database. A failure costs evidence, and nothing else.
    pub(in crate::store::sqlite) fn save(self, database: &Path) {
        let saved = database.metadata().and_then(|file| {
            let evidence = Evidence { state: self, inode: inode(&file), created: created(&file) };
            let mut text = serde_json::to_string(&evidence).map_err(io::Error::other)?;
            text.push_str(&" ".repeat(FILE_BYTES.saturating_sub(text.len() + 1)));
            text.push('\n');
            let mut file = private().write(true).create(true).truncate(false).open(path_of(database))?;
            file.write_all(text.as_bytes())
        });
        if let Err(error) = saved {
            tracing::debug!(%error, "the `.last` file of the database was not written");
        }
    }

    fn is_less_than(self, other: Self) -> bool {
        self.run < other.run
            || self.session < other.session
            || self.event < other.event
            || self.deletions < other.deletions
    }
}

/// Deletes the evidence about a database that is not there any more.
pub(in crate::store::sqlite) fn forget(database: &Path) -> io::Result<()> {
    match std::fs::remove_file(path_of(database)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Compares a database with the evidence beside it. `db` is `None` if the file is empty.
///
/// # Errors
/// [`OpenError::LessThanBefore`] if it lacks what it had.
pub(in crate::store::sqlite) async fn compare(
    path: &Path,
    db: Option<&mut SqliteConnection>,
) -> Result<Compared, OpenError> {
    let Some(Evidence { state: before, inode: of, created: since }) = saved(path) else {
        return Ok(Compared::Whole);
    };
    let empty = LastState { run: 0, session: 0, event: 0, deletions: 0, ..before };
    let now = match db {
        None => empty,
        Some(db) => match LastState::read(&mut *db).await {
            Ok(now) => now,
            Err(_) if is_without_tables(db).await => empty,
            // Its schema is older than that of any server that writes such a file. The time of the first migration is
            // written after it, so it is negative in between.
            Err(_) if made(db).await.is_some_and(|made| made == before.made || made < 0) => empty,
            Err(_) => return Ok(Compared::Whole),
        },
    };
    if now.identity != before.identity || !now.is_less_than(before) {
        return Ok(Compared::Whole);
    }
    let is_same_file = path.metadata().is_ok_and(|file| (inode(&file), created(&file)) == (of, since));
    if now.schema > before.schema || !is_same_file {
        return Ok(Compared::EarlierCopy);
    }
    Err(OpenError::LessThanBefore { path: path.into(), log: log_of(path), missing: missing(now, before) })
}

/// The numbers that a database lacks, for people.
fn missing(now: LastState, before: LastState) -> String {
    [
        ("runs", now.run, before.run),
        ("sessions", now.session, before.session),
        ("events", now.event, before.event),
        ("deletions", now.deletions, before.deletions),
    ]
    .into_iter()
    .filter(|(_, now, before)| now < before)
    .map(|(what, now, before)| format!("{what} {} to {before}", now + 1))
    .collect::<Vec<_>>()
    .join(", ")
}

fn saved(path: &Path) -> Option<Evidence> {
    use std::io::Read as _;
    let mut text = String::new();
    File::open(path_of(path)).ok()?.take(FILE_BYTES as u64).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

async fn is_without_tables(db: &mut SqliteConnection) -> bool {
    let sql = "SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'runs') AS is_empty";
    let row = sqlx::query(sql).fetch_one(db).await;
    row.and_then(|row| row.try_get("is_empty")).unwrap_or(false)
}

async fn made(db: &mut SqliteConnection) -> Option<i64> {
    let sql = "SELECT execution_time AS made FROM _sqlx_migrations ORDER BY version LIMIT 1";
    sqlx::query(sql).fetch_one(db).await.and_then(|row| row.try_get("made")).ok()
}

fn inode(file: &Metadata) -> u64 {
    #[cfg(unix)]
    return std::os::unix::fs::MetadataExt::ino(file);
    #[cfg(not(unix))]
    return u64::from(file.is_dir());
}

fn created(file: &Metadata) -> u64 {
    let since = file.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since.and_then(|since| u64::try_from(since.as_nanos()).ok()).unwrap_or(0)
}
