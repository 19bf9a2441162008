//! The reasons why a store is not opened, each with the advice that its message gives.

use std::path::{Path, PathBuf};

use sqlx::Error;
use sqlx::migrate::MigrateError;

use crate::store::sqlite::migrations::MIGRATIONS;
use crate::store::sqlite::rows;

/// Version of the format of write-ahead logs that this server reads.
pub(in crate::store::sqlite) const LOG_VERSION: u32 = 3_007_000;
/// `SQLITE_PERM` and `SQLITE_READONLY`.
const NOT_WRITABLE: [i32; 2] = [3, 8];
/// `SQLITE_NOTADB`.
const NOT_A_DATABASE: i32 = 26;
/// `SQLITE_CORRUPT`.
const CORRUPT: i32 = 11;

/// The reason why a store was not opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory of the file does not exist.
    #[error("cannot open {}: its directory does not exist; make it, or name another file", .path.display())]
    NoDirectory {
        /// Path of the database file.
        path: PathBuf,
    },
    /// Another server has the file open.
    #[error(
        "{} is in use by another server{}; stop that server, or name another file",
        .path.display(), holder(.pid.as_ref(), .lock)
    )]
    InUse {
        /// Path of the database file.
        path: PathBuf,
        /// The lock file beside it.
        lock: PathBuf,
        /// Process id of the other server, if the lock file names it.
        pid: Option<u32>,
    },
    /// The file or its directory cannot be written.
    #[error("{} cannot be written; see to the permissions of the file and of its directory", .path.display())]
    ReadOnly {
        /// Path of the database file.
        path: PathBuf,
    },
    /// The file is not a database of this server.
    #[error("{} is not a store of ours: {what}; name another file", .path.display())]
    NotOurs {
        /// Path of the database file.
        path: PathBuf,
        /// The kind of file that it is.
        what: String,
    },
    /// The file has several hard links. Under each name a server would use another lock and another log.
    #[error(
        "{} is one of {names} names of its file (hard links); remove the others, or copy the file and name the copy",
        .path.display()
    )]
    ManyNames {
        /// Path of the database file.
        path: PathBuf,
        /// Number of hard links, at least 2.
        names: u64,
    },
    /// The file is a database of this server, and is damaged.
    #[error(
        "{} is damaged: {what}; move it, its -wal and its -shm file away, then put a backup in its place, or begin \
         anew",
        .path.display()
    )]
    Damaged {
        /// Path of the database file.
        path: PathBuf,
        /// The damage, as far as it was found.
        what: String,
    },
    /// The write-ahead log is damaged. SQLite would silently drop the commits in it.
    #[error(
        "{} is damaged: {what}, and what was acknowledged may be there and nowhere else; move it, its database and \
         its -shm file away and put a backup in the database's place. Only if the power was cut while this log was \
         begun, so that all that was acknowledged is in the database, move the log alone away",
        .log.display()
    )]
    DamagedLog {
        /// Path of the write-ahead log.
        log: PathBuf,
        /// The damage, as far as it was found.
        what: String,
    },
    /// The database lacks what it had when this server last wrote it.
    #[error(
        "{} has less than it had: missing are {missing}; its log {} was deleted or damaged. Put the log back, or put a \
         backup in the database's place; to go on with what is there, start once with --accept-loss",
        .path.display(), .log.display()
    )]
    LessThanBefore {
        /// Path of the database file.
        path: PathBuf,
        /// Path of the write-ahead log.
        log: PathBuf,
        /// The numbers of the rows that are missing.
        missing: String,
    },
    /// There is a write-ahead log without its database.
    #[error(
        "{} is the log of a database that is not there, and would be overwritten; put {} back in its place, or move \
         the log away to begin anew",
        .log.display(), .path.display()
    )]
    LogAlone {
        /// Path of the database file.
        path: PathBuf,
        /// Path of the write-ahead log.
        log: PathBuf,
    },
    /// A newer SQLite wrote the write-ahead log.
    #[error(
        "{} is a write-ahead log of version {found}, this server knows {known}; use the newer server",
        .log.display(), known = LOG_VERSION
    )]
    NewerLog {
        /// Path of the write-ahead log.
        log: PathBuf,
        /// Version of the log's format.
        found: u32,
    },
    /// A newer server wrote the file.
    #[error("{} has schema version {found}, this server knows up to {known}; use the newer server", .path.display())]
    Newer {
        /// Path of the database file.
        path: PathBuf,
        /// Schema version of the file.
        found: i64,
        /// Newest schema version that this server knows.
        known: i64,
    },
    /// Any other failure, such as one of the disk.
    #[error("cannot open {}: {what}", .path.display())]
    Unavailable {
        /// Path of the database file.
        path: PathBuf,
        /// The message of SQLite or its driver.
        what: String,
    },
}

/// The part of a message that names the process which holds a lock.
fn holder(pid: Option<&u32>, lock: &Path) -> String {
    pid.map(|pid| format!(" (process {pid}, as {} says)", lock.display())).unwrap_or_default()
}

/// A failed migration as an error of opening.
pub(in crate::store::sqlite) fn migration_failure(path: &Path, error: MigrateError) -> OpenError {
    let known = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0);
    match error {
        MigrateError::VersionMissing(found) if found > known => {
            OpenError::Newer { path: path.into(), found, known }
        }
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => failure(path, &error),
        other => OpenError::Damaged { path: path.into(), what: other.to_string() },
    }
}

/// An error of SQL as an error of opening.
pub(in crate::store::sqlite) fn failure(path: &Path, error: &Error) -> OpenError {
    let path = path.to_owned();
    match rows::primary_code(error) {
        Some(NOT_A_DATABASE) => OpenError::NotOurs { path, what: "it is not a database".to_owned() },
        Some(CORRUPT) => OpenError::Damaged { path, what: error.to_string() },
        Some(code) if NOT_WRITABLE.contains(&code) => OpenError::ReadOnly { path },
        _ => OpenError::Unavailable { path, what: error.to_string() },
    }
}
