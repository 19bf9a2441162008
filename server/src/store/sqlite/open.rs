//! Opening a file: whether it is there, ours, free, sound and of a version that we know.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agentloop_core::id::Epoch;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, Error, Row as _, SqliteConnection, SqlitePool};

use super::hints::Hints;
use super::lock::{self, Lock, LockError};
use super::{SqliteOptions, backfill, ops, rows};

pub(super) static MIGRATIONS: Migrator = sqlx::migrate!("migrations/sqlite");

/// In the header of every file of ours: "AGLP".
const APPLICATION_ID: i64 = 0x4147_4C50;
/// Files up to this size are read whole after an end without a close. For larger ones that would keep a restart
/// waiting, and SQLite itself recovers from every end that is not the disk's fault.
const CHECKED_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// Files up to this size are read whole at every start.
const ALWAYS_CHECKED_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// What a write-ahead log begins with, and the same as a machine of the other byte order writes it.
const LOG_BEGINS: [[u8; 4]; 2] = [0x377f_0682_u32.to_be_bytes(), 0x377f_0683_u32.to_be_bytes()];
/// How long to wait for someone else's lock, such as that of a SQL shell.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait for a free reading connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections for searches, which may take long: whoever else reads does not wait for them.
pub(super) const SEARCHERS: u32 = 2;
/// Pages of the write-ahead log, of 4 KiB each, before it is moved into the file.
const CHECKPOINT_PAGES: &str = "4000";
/// What the write-ahead log shrinks to after a burst.
const LOG_BYTES_MAX: &str = "67108864";
/// Prepared statements of one connection; the writer's are one per size of a commit and what is in it, and a few.
const STATEMENTS_MAX: usize = 128;
const PAGE_BYTES: u64 = 4_096;

/// `SQLITE_PERM`, `SQLITE_READONLY`.
const NOT_WRITABLE: [i32; 2] = [3, 8];
/// `SQLITE_NOTADB`.
const NOT_A_DATABASE: i32 = 26;
/// `SQLITE_CORRUPT`.
const CORRUPT: i32 = 11;

/// Why a store cannot be opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file is to be in a directory that does not exist.
    #[error("cannot open {}: its directory does not exist; make it, or name another file", .path.display())]
    NoDirectory {
        /// The file.
        path: PathBuf,
    },
    /// Another server uses the file.
    #[error(
        "{} is in use by another server{}: it holds {}; stop that server, or name another file",
        .path.display(), holder(.pid.as_ref()), .lock.display()
    )]
    InUse {
        /// The file.
        path: PathBuf,
        /// The lock's file.
        lock: PathBuf,
        /// The other's process id, where the lock's file says so.
        pid: Option<u32>,
    },
    /// The file or its directory cannot be written.
    #[error("{} cannot be written; see to the permissions of the file and of its directory", .path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("{} is not a store of ours: {what}; name another file", .path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// The file was ours, and is damaged.
    #[error(
        "{} is damaged: {what}; put a backup in its place, or move it and its -wal file away to begin anew",
        .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// A newer server has written the file.
    #[error("{} has schema version {found}, this server knows up to {known}; use the newer server", .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Of the file.
        found: i64,
        /// Of this server.
        known: i64,
    },
    /// Anything else.
    #[error("cannot open {}: {what}", .path.display())]
    Unavailable {
        /// The file.
        path: PathBuf,
        /// The driver's words.
        what: String,
    },
}

fn holder(pid: Option<&u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}

/// An opened file.
pub(super) struct Opened {
    pub(super) writing: SqliteConnectOptions,
    pub(super) db: SqliteConnection,
    pub(super) readers: SqlitePool,
    pub(super) searchers: SqlitePool,
    pub(super) epoch: Epoch,
    pub(super) hints: Hints,
    pub(super) lock: Option<Lock>,
}

/// Opens or creates a file, and begins an epoch in it.
pub(super) async fn file(path: &Path, options: &SqliteOptions) -> Result<Opened, OpenError> {
    let lock = lock_file(path)?;
    check_files(path)?;
    let mut writing = base()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        .pragma("journal_size_limit", LOG_BYTES_MAX)
        // What a large statement may have to undo would go through a file otherwise, in each commit anew.
        .pragma("temp_store", "MEMORY");
    if let Some(bytes) = options.max_bytes {
        writing = writing.pragma("max_page_count", (bytes / PAGE_BYTES).max(1).to_string());
    }
    let reading = base().filename(path).pragma("query_only", "ON");
    open(path, writing, reading, options, Some(lock)).await
}

/// A database that lives as long as a connection to it does.
pub(super) async fn memory(options: &SqliteOptions) -> Result<Opened, OpenError> {
    static DATABASES: AtomicU64 = AtomicU64::new(0);
    let name = PathBuf::from(format!("/agentloop-{}", DATABASES.fetch_add(1, Ordering::Relaxed)));
    let writing =
        base().filename(&name).vfs("memdb").create_if_missing(true).journal_mode(SqliteJournalMode::Memory);
    let reading = base().filename(&name).vfs("memdb").pragma("query_only", "ON");
    open(&name, writing, reading, options, None).await
}

fn base() -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT)
        .statement_cache_capacity(STATEMENTS_MAX)
        .disable_statement_logging()
}

fn lock_file(path: &Path) -> Result<Lock, OpenError> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !directory.is_dir() {
        return Err(OpenError::NoDirectory { path: path.into() });
    }
    if path.is_dir() {
        return Err(OpenError::NotOurs { path: path.into(), what: "it is a directory".to_owned() });
    }
    if path.metadata().is_ok_and(|file| file.permissions().readonly()) {
        return Err(OpenError::ReadOnly { path: path.into() });
    }
    let lock = lock::path_of(path);
    Lock::take(&lock).map_err(|error| match error {
        LockError::Held { pid } => OpenError::InUse { path: path.into(), lock, pid },
        LockError::Io(error) if is_refusal(&error) => OpenError::ReadOnly { path: path.into() },
        LockError::Io(error) => {
            OpenError::Unavailable { path: path.into(), what: format!("{}: {error}", lock.display()) }
        }
    })
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// What SQLite would pass over in silence: a log that is none, with which it would forget what was committed there,
/// and a file that ends before its last page, which it would notice when that page is read.
fn check_files(path: &Path) -> Result<(), OpenError> {
    let damaged = |what: &str| OpenError::Damaged { path: path.into(), what: what.to_owned() };
    let unreadable = |error: io::Error| OpenError::Unavailable { path: path.into(), what: error.to_string() };
    let log = beginning::<4>(&log_of(path)).map_err(unreadable)?;
    // Of a log that a power cut has interrupted, nothing may be there but its length.
    if log.is_some_and(|log| log != [0; 4] && !LOG_BEGINS.contains(&log)) {
        return Err(damaged("its write-ahead log is none"));
    }
    let header = beginning::<32>(path).map_err(unreadable)?;
    if let (None, Some(header)) = (log, header)
        && path.metadata().map_err(unreadable)?.len() < announced_bytes(&header)
    {
        return Err(damaged("its end is missing"));
    }
    Ok(())
}

/// The write-ahead log's file.
fn log_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// A file's first bytes; `None` where it does not have so many, or does not exist.
fn beginning<const BYTES: usize>(path: &Path) -> io::Result<Option<[u8; BYTES]>> {
    let mut bytes = [0; BYTES];
    match File::open(path).and_then(|mut file| file.read_exact(&mut bytes)) {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// How long the file is by its own header, once everything was moved out of the log; 0 where it has another header.
fn announced_bytes(header: &[u8; 32]) -> u64 {
    if !header.starts_with(b"SQLite format 3\0") {
        return 0;
    }
    let page = u64::from(u16::from_be_bytes([header[16], header[17]]));
    let pages = u32::from_be_bytes([header[28], header[29], header[30], header[31]]);
    // The largest page size does not fit, and is written as 1.
    let page = if page == 1 { 65_536 } else { page };
    page * u64::from(pages)
}

async fn open(
    path: &Path,
    writing: SqliteConnectOptions,
    reading: SqliteConnectOptions,
    options: &SqliteOptions,
    lock: Option<Lock>,
) -> Result<Opened, OpenError> {
    let mut db = prepared(path, &writing, &reading).await?;
    let epoch = new_epoch(&mut db, options).await.map_err(|error| failure(path, &error))?;
    let hints = Hints::read(&mut db).await.map_err(|error| failure(path, &error))?;
    let searchers = pool(SEARCHERS).connect_lazy_with(reading.clone());
    let readers = pool(options.readers.max(1))
        .min_connections(1)
        .connect_with(reading)
        .await
        .map_err(|error| failure(path, &error))?;
    Ok(Opened { writing, db, readers, searchers, epoch, hints, lock })
}

/// As many connections at most. One whose reader went away is free again when its query has ended.
fn pool(connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
}

/// Looks before it touches: the connection that decides whether the file is ours writes nothing.
async fn prepared(
    path: &Path,
    writing: &SqliteConnectOptions,
    reading: &SqliteConnectOptions,
) -> Result<SqliteConnection, OpenError> {
    if path.metadata().is_ok_and(|file| file.len() > 0) {
        let mut db = reading.connect().await.map_err(|error| failure(path, &error))?;
        inspect(path, &mut db).await?;
        db.close().await.map_err(|error| failure(path, &error))?;
    }
    let mut db = writing.connect().await.map_err(|error| failure(path, &error))?;
    MIGRATIONS.run(&mut db).await.map_err(|error| migration_failure(path, error))?;
    Ok(db)
}

async fn inspect(path: &Path, db: &mut SqliteConnection) -> Result<(), OpenError> {
    let (application, tables) = identity(db).await.map_err(|error| failure(path, &error))?;
    match (application, tables) {
        (APPLICATION_ID, _) => {}
        (0, 0) => return Ok(()),
        _ => {
            let what = "it is a database of another program".to_owned();
            return Err(OpenError::NotOurs { path: path.into(), what });
        }
    }
    let bytes = path.metadata().map_or(u64::MAX, |file| file.len());
    let doubtful =
        bytes <= CHECKED_BYTES_MAX && !is_clean(db).await.map_err(|error| failure(path, &error))?;
    if doubtful || bytes <= ALWAYS_CHECKED_BYTES_MAX {
        check(path, db).await?;
    }
    Ok(())
}

/// The application id, and how many things there are that our first migration does not begin with.
async fn identity(db: &mut SqliteConnection) -> Result<(i64, i64), Error> {
    let row = sqlx::query(
        "SELECT (SELECT application_id FROM pragma_application_id) AS application,
                (SELECT count(*) FROM sqlite_schema WHERE tbl_name <> '_sqlx_migrations') AS tables",
    )
    .fetch_one(db)
    .await?;
    Ok((row.try_get("application")?, row.try_get("tables")?))
}

async fn is_clean(db: &mut SqliteConnection) -> Result<bool, Error> {
    let row = sqlx::query("SELECT value FROM meta WHERE key = 'clean'").fetch_one(db).await?;
    Ok(row.try_get::<i64, _>("value")? == 1)
}

async fn check(path: &Path, db: &mut SqliteConnection) -> Result<(), OpenError> {
    let row =
        sqlx::query("PRAGMA quick_check(1)").fetch_one(db).await.map_err(|error| failure(path, &error))?;
    match row.try_get::<String, _>(0) {
        Ok(verdict) if verdict == "ok" => Ok(()),
        Ok(verdict) => {
            // A heading may come first.
            let found: Vec<&str> = verdict.lines().filter(|line| !line.starts_with("***")).collect();
            Err(OpenError::Damaged { path: path.into(), what: found.join("; ") })
        }
        Err(error) => Err(failure(path, &error)),
    }
}

async fn new_epoch(db: &mut SqliteConnection, options: &SqliteOptions) -> Result<Epoch, Error> {
    let mut transaction = db.begin_with("BEGIN IMMEDIATE").await?;
    let epoch = ops::begin_epoch(&mut transaction).await?;
    backfill::begin(&mut transaction, options.search).await?;
    transaction.commit().await?;
    Ok(epoch)
}

fn migration_failure(path: &Path, error: MigrateError) -> OpenError {
    let known = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0);
    match error {
        MigrateError::VersionMissing(found) if found > known => {
            OpenError::Newer { path: path.into(), found, known }
        }
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => failure(path, &error),
        other => OpenError::Damaged { path: path.into(), what: other.to_string() },
    }
}

fn failure(path: &Path, error: &Error) -> OpenError {
    let path = path.to_owned();
    match rows::primary_code(error) {
        Some(NOT_A_DATABASE) => OpenError::NotOurs { path, what: "it is not a database".to_owned() },
        Some(CORRUPT) => OpenError::Damaged { path, what: error.to_string() },
        Some(code) if NOT_WRITABLE.contains(&code) => OpenError::ReadOnly { path },
        _ => OpenError::Unavailable { path, what: error.to_string() },
    }
}
