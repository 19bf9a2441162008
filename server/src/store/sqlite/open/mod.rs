//! Opening a file: whether it is there, ours, free, sound and of a version that we know.

pub(in crate::store::sqlite) mod lock;

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use agentloop_core::id::Epoch;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{ConnectOptions as _, Connection as _, Error, Row as _, SqliteConnection, SqlitePool};

use crate::store::sqlite::connect::{base, limited, pool};
use crate::store::sqlite::hints::Hints;
use crate::store::sqlite::index::{IndexPlace, file};
use crate::store::sqlite::open::lock::{Lock, LockError};
use crate::store::sqlite::{SqliteOptions, rows, write::ops};

pub(in crate::store::sqlite) static MIGRATIONS: Migrator = sqlx::migrate!("migrations/sqlite");

/// In the header of every file of ours: "AGLP".
const APPLICATION_ID: i64 = 0x4147_4C50;
/// Files up to this size are read whole after an end without a close. For larger ones that would keep a restart
/// waiting, and SQLite itself recovers from every end that is not the disk's fault.
const CHECKED_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// Files up to this size are read whole at every start.
const ALWAYS_CHECKED_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// What a write-ahead log begins with whose checksums are made of numbers with the lowest byte first, and with the
/// highest.
const LOG_BEGINS_LOW_FIRST: u32 = 0x377f_0682;
const LOG_BEGINS_HIGH_FIRST: u32 = 0x377f_0683;
/// The format of write-ahead logs.
const LOG_VERSION: u32 = 3_007_000;
/// Of a log: its header, which ends with its checksum, and the first frame's, which is never zeros alone.
const LOG_SUMMED_BYTES: usize = 24;
const LOG_HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// Pages of the write-ahead log, of 4 KiB each, before it is moved into the file.
const CHECKPOINT_PAGES: &str = "4000";
/// What the write-ahead log shrinks to after a burst.
const LOG_BYTES_MAX: &str = "67108864";
/// What a check finds at most.
const FINDINGS: &str = "PRAGMA quick_check(100)";
/// Findings that are told of.
const FINDINGS_TOLD_MAX: usize = 3;

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
    /// The file has several names, and for each of them a server would look for another lock and another log.
    #[error(
        "{} is one of {names} names of its file (hard links); remove the others, or copy the file and name the copy",
        .path.display()
    )]
    ManyNames {
        /// The file.
        path: PathBuf,
        /// How many.
        names: u64,
    },
    /// The file was ours, and is damaged.
    #[error(
        "{} is damaged: {what}; move it, its -wal and its -shm file away, then put a backup in its place, or begin \
         anew",
        .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// The file's write-ahead log is damaged, and what was committed there would be forgotten in silence.
    #[error(
        "{} is damaged: {what}, and what was acknowledged may be there and nowhere else; move it, its database and \
         its -shm file away and put a backup in the database's place. Only if the power was cut while this log was \
         begun, so that all that was acknowledged is in the database, move the log alone away",
        .log.display()
    )]
    DamagedLog {
        /// The log.
        log: PathBuf,
        /// What was found.
        what: String,
    },
    /// There is a write-ahead log, and no file that it belongs to.
    #[error(
        "{} is the log of a database that is not there, and would be overwritten; put {} back in its place, or move \
         the log away to begin anew",
        .log.display(), .path.display()
    )]
    LogAlone {
        /// The file.
        path: PathBuf,
        /// The log.
        log: PathBuf,
    },
    /// A newer SQLite has written the write-ahead log.
    #[error(
        "{} is a write-ahead log of version {found}, this server knows {known}; use the newer server",
        .log.display(), known = LOG_VERSION
    )]
    NewerLog {
        /// The log.
        log: PathBuf,
        /// Of the log.
        found: u32,
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
pub(in crate::store::sqlite) struct Opened {
    pub(in crate::store::sqlite) writing: SqliteConnectOptions,
    pub(in crate::store::sqlite) db: SqliteConnection,
    pub(in crate::store::sqlite) readers: SqlitePool,
    /// Where the search index is to be.
    pub(in crate::store::sqlite) index: IndexPlace,
    pub(in crate::store::sqlite) epoch: Epoch,
    pub(in crate::store::sqlite) hints: Hints,
    pub(in crate::store::sqlite) lock: Option<Lock>,
}

/// Opens or creates a file, and begins an epoch in it.
pub(in crate::store::sqlite) async fn file(
    path: &Path,
    options: &SqliteOptions,
) -> Result<Opened, OpenError> {
    let path = &place_of(path)?;
    let lock = lock_file(path)?;
    check_files(path)?;
    let writing = base()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        .pragma("journal_size_limit", LOG_BYTES_MAX)
        // What a large statement may have to undo would go through a file otherwise, in each commit anew.
        .pragma("temp_store", "MEMORY");
    let writing = limited(writing, options.max_bytes);
    let reading = base().filename(path).pragma("query_only", "ON");
    open(path, writing, reading, options, Some(lock)).await
}

/// A database that lives as long as a connection to it does.
pub(in crate::store::sqlite) async fn memory(options: &SqliteOptions) -> Result<Opened, OpenError> {
    static DATABASES: AtomicU64 = AtomicU64::new(0);
    let name = PathBuf::from(format!("/agentloop-{}", DATABASES.fetch_add(1, Ordering::Relaxed)));
    let writing =
        base().filename(&name).vfs("memdb").create_if_missing(true).journal_mode(SqliteJournalMode::Memory);
    let reading = base().filename(&name).vfs("memdb").pragma("query_only", "ON");
    open(&name, writing, reading, options, None).await
}

/// The one name of a file, also of one that is to be made: its lock and its log have theirs from it. Whatever links
/// lead there, and wherever the server was started, it is the same.
fn place_of(path: &Path) -> Result<PathBuf, OpenError> {
    let unavailable =
        |error: io::Error| OpenError::Unavailable { path: path.into(), what: error.to_string() };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !directory.is_dir() {
        return Err(OpenError::NoDirectory { path: path.into() });
    }
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        place => return place.map_err(unavailable),
    }
    if let Ok(target) = path.read_link() {
        // Links that lead in a circle are another error.
        return place_of(&directory.join(target));
    }
    let name = path.file_name().ok_or_else(|| OpenError::NoDirectory { path: path.into() })?;
    Ok(directory.canonicalize().map_err(unavailable)?.join(name))
}

fn lock_file(path: &Path) -> Result<Lock, OpenError> {
    if path.is_dir() {
        return Err(OpenError::NotOurs { path: path.into(), what: "it is a directory".to_owned() });
    }
    if let Ok(file) = path.metadata() {
        if file.permissions().readonly() {
            return Err(OpenError::ReadOnly { path: path.into() });
        }
        let names = names(&file);
        if names > 1 {
            return Err(OpenError::ManyNames { path: path.into(), names });
        }
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

/// How many names a file has, where the system says so.
fn names(file: &Metadata) -> u64 {
    #[cfg(unix)]
    return std::os::unix::fs::MetadataExt::nlink(file);
    #[cfg(not(unix))]
    return u64::from(file.is_file());
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// What SQLite would pass over in silence: a log that is none or has no database, with which it would forget what was
/// committed there, and a file that ends before its last page, which it would notice when that page is read.
fn check_files(path: &Path) -> Result<(), OpenError> {
    let log = log_of(path);
    let logged = check_log(&log)?;
    let unreadable = |error: io::Error| OpenError::Unavailable { path: path.into(), what: error.to_string() };
    let bytes = file_bytes(path).map_err(unreadable)?;
    if bytes == 0 && logged > 0 {
        return Err(OpenError::LogAlone { path: path.into(), log });
    }
    let header = beginning::<32>(path).map_err(unreadable)?.0;
    if logged == 0 && bytes < announced_bytes(&header) {
        return Err(OpenError::Damaged { path: path.into(), what: "its end is missing".to_owned() });
    }
    Ok(())
}

/// How long the log is; 0 where there is none.
fn check_log(log: &Path) -> Result<u64, OpenError> {
    let unreadable = |error: io::Error| OpenError::Unavailable { path: log.into(), what: error.to_string() };
    let damaged = |what: &str| OpenError::DamagedLog { log: log.into(), what: what.to_owned() };
    let bytes = file_bytes(log).map_err(unreadable)?;
    let (begins, read) = beginning::<{ LOG_HEADER_BYTES + FRAME_HEADER_BYTES }>(log).map_err(unreadable)?;
    let [kind, version] = [number(&begins[..4]), number(&begins[4..8])];
    // Of a log that a power cut has interrupted, nothing may be there but its length.
    if read < 4 || begins == [0; LOG_HEADER_BYTES + FRAME_HEADER_BYTES] {
        return Ok(bytes);
    }
    if ![LOG_BEGINS_LOW_FIRST, LOG_BEGINS_HIGH_FIRST].contains(&kind) {
        return Err(damaged("it is no write-ahead log"));
    }
    // A header is durable before anything is written behind it.
    if bytes <= LOG_HEADER_BYTES as u64 {
        return Ok(bytes);
    }
    let sums = [number(&begins[24..28]), number(&begins[28..32])];
    if log_sums(kind, &begins[..LOG_SUMMED_BYTES]) != sums {
        return Err(damaged("its header does not fit its checksum"));
    }
    if version != LOG_VERSION {
        return Err(OpenError::NewerLog { log: log.into(), found: version });
    }
    Ok(bytes)
}

/// The checksum of a log that begins with this number.
pub(in crate::store::sqlite) fn log_sums(kind: u32, bytes: &[u8]) -> [u32; 2] {
    let number = |bytes: &[u8]| match kind {
        LOG_BEGINS_HIGH_FIRST => number(bytes),
        _ => number(bytes).swap_bytes(),
    };
    bytes.chunks_exact(8).fold([0_u32; 2], |[first, second], pair| {
        let first = first.wrapping_add(number(&pair[..4])).wrapping_add(second);
        [first, second.wrapping_add(number(&pair[4..])).wrapping_add(first)]
    })
}

/// Of four bytes, the highest first.
fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().expect("four bytes"))
}

/// The write-ahead log's file.
fn log_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// A file's length; 0 where it does not exist.
fn file_bytes(path: &Path) -> io::Result<u64> {
    match path.metadata() {
        Ok(file) => Ok(file.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// A file's first bytes, and how many it has of them; the others are zeros.
fn beginning<const BYTES: usize>(path: &Path) -> io::Result<([u8; BYTES], usize)> {
    let (mut bytes, mut read) = ([0; BYTES], 0);
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((bytes, 0)),
        Err(error) => return Err(error),
    };
    loop {
        match file.read(&mut bytes[read..])? {
            0 => return Ok((bytes, read)),
            more => read += more,
        }
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
    let epoch = new_epoch(&mut db).await.map_err(|error| failure(path, &error))?;
    let hints = Hints::read(&mut db).await.map_err(|error| failure(path, &error))?;
    let index = IndexPlace {
        path: file::path_of(path),
        in_memory: lock.is_none(),
        database: path.into(),
        identity: ops::identity(&mut db).await.map_err(|error| failure(path, &error))?,
        last: ops::last_document(&mut db).await.map_err(|error| failure(path, &error))?,
        epoch,
        max_bytes: options.max_bytes,
    };
    if !options.search {
        drop_index(&index, &mut db).await?;
    }
    let readers = pool(options.readers.max(1))
        .min_connections(1)
        .connect_with(reading)
        .await
        .map_err(|error| failure(path, &error))?;
    Ok(Opened { writing, db, readers, index, epoch, hints, lock })
}

/// Without search there is no index: it would not hear of what is deleted.
async fn drop_index(index: &IndexPlace, db: &mut SqliteConnection) -> Result<(), OpenError> {
    file::delete(index)
        .map_err(|error| OpenError::Unavailable { path: index.path.clone(), what: error.to_string() })?;
    let sql = "DELETE FROM search_deleted";
    let deleted = sqlx::query(sql).execute(db).await;
    deleted.map(|_| ()).map_err(|error| failure(&index.database, &error))
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
    if doubtful || bytes <= ALWAYS_CHECKED_BYTES_MAX { check(path, db).await } else { Ok(()) }
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
    let rows = sqlx::query(FINDINGS).fetch_all(db).await.map_err(|error| failure(path, &error))?;
    let verdict = rows.iter().map(|row| row.try_get::<String, _>(0)).collect::<Result<Vec<_>, _>>();
    let verdict = verdict.map_err(|error| failure(path, &error))?;
    if verdict == ["ok"] {
        return Ok(());
    }
    // A heading may come first.
    let lines = verdict.iter().flat_map(|text| text.lines());
    let found: Vec<&str> = lines.filter(|line| !line.starts_with("***")).collect();
    // Files of older servers have the index of what was said, which the migration drops.
    if !found.is_empty() && found.iter().all(|line| line.contains("search_index")) {
        return Ok(());
    }
    let told = &found[..found.len().min(FINDINGS_TOLD_MAX)];
    Err(OpenError::Damaged { path: path.into(), what: told.join("; ") })
}

async fn new_epoch(db: &mut SqliteConnection) -> Result<Epoch, Error> {
    let mut transaction = db.begin_with("BEGIN IMMEDIATE").await?;
    let epoch = ops::begin_epoch(&mut transaction).await?;
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
