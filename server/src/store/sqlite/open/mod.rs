//! Opening a database: its files are checked and locked, then its content, then its schema is migrated.

mod check;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use agentloop_core::id::Epoch;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{ConnectOptions as _, Connection as _, Error, Row as _, SqliteConnection, SqlitePool};

use crate::store::sqlite::connect::{base, limited, pool};
use crate::store::sqlite::files::error::{OpenError, failure, migration_failure};
use crate::store::sqlite::files::last_state::{self, Compared, LastState};
use crate::store::sqlite::files::lock::{self, DatabaseLock, OWN_LOCKS};
use crate::store::sqlite::files::same_files::SameFiles;
use crate::store::sqlite::files::{
    check_files, journal_of, lock_failure, lock_file, log_of, page_bytes, real_path,
};
use crate::store::sqlite::index::{IndexLocation, file};
use crate::store::sqlite::migrations::MIGRATIONS;
use crate::store::sqlite::{SqliteOptions, features_used, rows, write::ops};
use crate::store::support::features_used::FeaturesUsed;

use self::check::inspect;

/// Length of the write-ahead log, in bytes, at which its pages are moved into the file.
const CHECKPOINT_BYTES: u32 = 16_384_000;
/// `SQLITE_IOERR` and `SQLITE_FULL`.
const DISK_FAILED_OR_FULL: [i32; 2] = [10, 13];
/// Length that the write-ahead log is cut to after a burst, in bytes.
const LOG_BYTES_MAX: &str = "67108864";

/// An opened database, and everything that the store is started with.
pub(in crate::store::sqlite) struct OpenedStore {
    pub(in crate::store::sqlite) writing: SqliteConnectOptions,
    pub(in crate::store::sqlite) db: SqliteConnection,
    pub(in crate::store::sqlite) readers: SqlitePool,
    /// The files of the search index, which is opened later.
    pub(in crate::store::sqlite) index: IndexLocation,
    pub(in crate::store::sqlite) epoch: Epoch,
    /// False if the epoch is still to be written.
    pub(in crate::store::sqlite) epoch_is_written: bool,
    pub(in crate::store::sqlite) used: FeaturesUsed,
    pub(in crate::store::sqlite) lock: Option<DatabaseLock>,
    /// The files that have to stay where they are; none of a database in memory.
    pub(in crate::store::sqlite) files: SameFiles,
    /// The database file. `None` in memory.
    pub(in crate::store::sqlite) database: Option<PathBuf>,
}

/// Opens or creates a database file, and begins an epoch in it.
pub(in crate::store::sqlite) async fn file(
    path: &Path,
    options: &SqliteOptions,
) -> Result<OpenedStore, OpenError> {
    let path = &real_path(path)?;
    let mut lock = lock_file(path)?;
    check_files(path)?;
    if !path.exists() {
        let failed =
            |error: std::io::Error| OpenError::Unavailable { path: path.into(), what: error.to_string() };
        last_state::forget(path).map_err(failed)?;
    }
    lock.create(path).map_err(|error| lock_failure(path, error))?;
    let page_bytes = page_bytes(path)?;
    let writing = base()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .pragma("wal_autocheckpoint", (CHECKPOINT_BYTES / page_bytes).to_string())
        .pragma("journal_size_limit", LOG_BYTES_MAX)
        // Otherwise each commit with a large statement would create a file for the statement's undo log.
        .pragma("temp_store", "MEMORY");
    let writing = limited(writing, options.max_bytes, page_bytes);
    let reading = base().filename(path).pragma("query_only", "ON");
    open(path, writing, reading, options, Some(lock)).await
}

/// Opens a new database in memory. It lives as long as a connection to it does.
pub(in crate::store::sqlite) async fn memory(options: &SqliteOptions) -> Result<OpenedStore, OpenError> {
    static DATABASES: AtomicU64 = AtomicU64::new(0);
    let name = PathBuf::from(format!("/agentloop-{}", DATABASES.fetch_add(1, Ordering::Relaxed)));
    let writing =
        base().filename(&name).vfs("memdb").create_if_missing(true).journal_mode(SqliteJournalMode::Memory);
    let reading = base().filename(&name).vfs("memdb").pragma("query_only", "ON");
    open(&name, writing, reading, options, None).await
}

async fn open(
    path: &Path,
    writing: SqliteConnectOptions,
    reading: SqliteConnectOptions,
    options: &SqliteOptions,
    lock: Option<DatabaseLock>,
) -> Result<OpenedStore, OpenError> {
    let mut db = connect(path, &writing, &reading, options.accept_loss).await?;
    let EpochBegun { epoch, is_written } = new_epoch(path, &mut db, &writing).await?;
    let files = match &lock {
        Some(lock) => opened_files(path, lock)?,
        None => SameFiles::default(),
    };
    let database = lock.is_some().then(|| path.to_owned());
    if let Some(database) = &database {
        LastState::read(&mut db).await.map_err(|error| failure(path, &error))?.save(database);
    }
    let used = features_used::read(&mut db).await.map_err(|error| failure(path, &error))?;
    let index = IndexLocation {
        path: file::path_of(path),
        in_memory: lock.is_none(),
        database: path.into(),
        identity: ops::identity(&mut db).await.map_err(|error| failure(path, &error))?,
        last: ops::last_document(&mut db).await.map_err(|error| failure(path, &error))?,
        epoch,
        max_bytes: options.max_bytes,
        files: files.clone(),
    };
    if !options.search && is_written {
        drop_index(&index, &mut db).await?;
    }
    let readers = connect_readers(reading, options.readers.max(1), &files)
        .await
        .map_err(|error| failure(path, &error))?;
    Ok(OpenedStore {
        writing,
        db,
        readers,
        index,
        epoch,
        epoch_is_written: is_written,
        used,
        lock,
        files,
        database,
    })
}

/// Opens all reading connections at once. One that was opened later, while another file has the database's name, would take
/// itself for the first one and clear the memory that the connections share.
async fn connect_readers(
    reading: SqliteConnectOptions,
    readers: u32,
    files: &SameFiles,
) -> Result<SqlitePool, Error> {
    let files = files.clone();
    let pool = pool(readers)
        .after_connect(move |_, _| {
            let same = files.check();
            Box::pin(async move { same.map_err(Error::from) })
        })
        .connect_with(reading)
        .await?;
    let mut opened = Vec::new();
    for _ in 0..readers {
        opened.push(pool.acquire().await?);
    }
    Ok(pool)
}

/// The files of a database whose log exists, because something was written.
fn opened_files(path: &Path, lock: &DatabaseLock) -> Result<SameFiles, OpenError> {
    let mut paths = vec![path.to_owned(), log_of(path)];
    // The file beside it only names the process if the lock is on the database itself.
    if !OWN_LOCKS {
        paths.push(lock::path_of(path));
    }
    let unavailable = |what: String| OpenError::Unavailable { path: path.into(), what };
    let files = SameFiles::now(&paths).map_err(|(file, error)| {
        unavailable(format!("{}: {error}; its log does not stay beside it", file.display()))
    })?;
    match lock.database() {
        Some(locked) if !files.has(path, locked) => {
            Err(unavailable("it was replaced while it was opened; start again".to_owned()))
        }
        _ => Ok(files),
    }
}

/// Deletes the index of a store without search, which would miss deletions.
async fn drop_index(index: &IndexLocation, db: &mut SqliteConnection) -> Result<(), OpenError> {
    file::delete(index)
        .map_err(|error| OpenError::Unavailable { path: index.path.clone(), what: error.to_string() })?;
    let sql = "DELETE FROM search_deleted";
    let deleted = sqlx::query(sql).execute(db).await;
    deleted.map(|_| ()).map_err(|error| failure(&index.database, &error))
}

/// A writing connection to a migrated database. The checks before use a connection that writes nothing.
async fn connect(
    path: &Path,
    writing: &SqliteConnectOptions,
    reading: &SqliteConnectOptions,
    accept_loss: bool,
) -> Result<SqliteConnection, OpenError> {
    let compared = if path.metadata().is_ok_and(|file| file.len() > 0) {
        // The last connection that leaves moves the log into the file and deletes it, if it may write. A refused file
        // has to stay as it is. Only a log of another kind has to be undone before anything can be read.
        let reading = reading.clone().read_only(!journal_of(path).exists());
        let mut db = reading.connect().await.map_err(|error| failure(path, &error))?;
        inspect(path, &mut db).await?;
        let compared = last_state::compare(path, Some(&mut db)).await;
        db.close().await.map_err(|error| failure(path, &error))?;
        compared
    } else {
        last_state::compare(path, None).await
    };
    let is_other = match compared {
        Ok(compared) => compared == Compared::EarlierCopy,
        Err(error @ OpenError::LessThanBefore { .. }) if accept_loss => {
            tracing::warn!(%error, "the loss is accepted");
            true
        }
        Err(error) => return Err(error),
    };
    let mut db = writing.connect().await.map_err(|error| failure(path, &error))?;
    let before = applied(&mut db).await;
    MIGRATIONS.run(&mut db).await.map_err(|error| migration_failure(path, error))?;
    if is_other {
        // The files beside it are about more than it has.
        ops::renew_identity(&mut db).await.map_err(|error| failure(path, &error))?;
    }
    if is_other || applied(&mut db).await != before {
        // A log that is cut off later then has neither: the database is known by what is in its file. If this fails, because
        // the disk is full, nothing is lost but that.
        let _moved = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut db).await;
    }
    Ok(db)
}

/// The number of migrations that a database has; 0 for an empty one.
async fn applied(db: &mut SqliteConnection) -> i64 {
    let sql = "SELECT count(*) AS applied FROM _sqlx_migrations";
    let row = sqlx::query(sql).fetch_one(db).await;
    row.and_then(|row| row.try_get("applied")).unwrap_or(0)
}

/// The epoch of this start.
struct EpochBegun {
    epoch: Epoch,
    /// False if the disk was too full for it. The writer begins it before its first write.
    is_written: bool,
}

/// Begins an epoch. Also on a full disk, the store is opened, so that what it has can be read.
async fn new_epoch(
    path: &Path,
    db: &mut SqliteConnection,
    writing: &SqliteConnectOptions,
) -> Result<EpochBegun, OpenError> {
    let failed = |error: Error| failure(path, &error);
    match ops::write_epoch(db).await {
        Ok(epoch) => Ok(EpochBegun { epoch, is_written: true }),
        Err(error) if rows::primary_code(&error).is_some_and(|code| DISK_FAILED_OR_FULL.contains(&code)) => {
            tracing::error!(
                %error, path = %path.display(),
                "the database cannot be written; it can be read, and is written again when its disk has room"
            );
            // A connection whose transaction failed is not used again. The new one comes first, so that the log stays.
            let failed_one = std::mem::replace(db, writing.connect().await.map_err(failed)?);
            let _closed = failed_one.close().await;
            let epoch = ops::next_epoch(db).await.map_err(failed)?;
            Ok(EpochBegun { epoch, is_written: false })
        }
        Err(error) => Err(failed(error)),
    }
}
