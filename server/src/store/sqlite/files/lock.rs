//! One server per database, because the store relies on being its only writer. On Linux the lock is on the database file
//! itself, whatever happens to its names; elsewhere it is on a file beside it. The file beside it also names the process.
//!
//! SQLite has locks of its own on the same file. The operating system drops those of a process when the process closes any
//! descriptor of the file. So the descriptor of the lock is opened before SQLite's and closed after them.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::same_files::FileId;

/// Bytes of a lock file that are read to find the process that holds it.
const PID_BYTES_MAX: u64 = 20;

/// The lock of a database. The files are locked as long as this lives.
#[derive(Debug)]
pub(in crate::store::sqlite) struct DatabaseLock {
    // Fields are dropped in this order.
    database: Option<FileLock>,
    _beside: FileLock,
    opened: Option<OpenedHere>,
}

impl DatabaseLock {
    /// Takes the lock of a database that may not exist yet. Creates no database.
    pub(in crate::store::sqlite) fn take(database: &Path) -> Result<Self, FileLockError> {
        // A descriptor of a file that this process has open already must not even be opened, since it would be closed.
        let opened = match database.metadata() {
            Ok(file) => OpenedHere::new(FileId::of(&file))?,
            Err(_) => None,
        };
        let beside = path_of(database);
        let locked = if OWN_LOCKS { open_existing(database)?.map(FileLock::on) } else { None };
        let locked = locked.transpose().map_err(|error| match error {
            FileLockError::Held { .. } => FileLockError::Held { pid: holder_of(&beside) },
            FileLockError::Io(error) => FileLockError::Io(error),
        })?;
        Ok(Self { database: locked, _beside: FileLock::take(&beside)?, opened })
    }

    /// Creates the database file if there is none, for its owner alone, and locks it.
    pub(in crate::store::sqlite) fn create(&mut self, database: &Path) -> Result<(), FileLockError> {
        if self.opened.is_some() && (self.database.is_some() || !OWN_LOCKS) {
            return Ok(());
        }
        let file = private().read(true).write(true).create(true).truncate(false).open(database);
        let file = file.map_err(FileLockError::Io)?;
        let metadata = file.metadata().map_err(FileLockError::Io)?;
        if OWN_LOCKS && self.database.is_none() {
            self.database = Some(FileLock::on(file)?);
        }
        if self.opened.is_none() {
            self.opened = OpenedHere::new(FileId::of(&metadata))?;
        }
        Ok(())
    }

    /// The file that is locked. `None` if the lock is on the file beside it, or if the system names no files.
    pub(in crate::store::sqlite) fn database(&self) -> Option<FileId> {
        self.opened.as_ref().map(|opened| opened.0)
    }
}

/// True if a lock on the database file does not conflict with SQLite's own locks.
pub(in crate::store::sqlite) const OWN_LOCKS: bool = cfg!(target_os = "linux");

/// A database that a store of this process has open.
#[derive(Debug)]
struct OpenedHere(FileId);

static OPENED_HERE: Mutex<BTreeSet<FileId>> = Mutex::new(BTreeSet::new());

impl OpenedHere {
    fn new(file: Option<FileId>) -> Result<Option<Self>, FileLockError> {
        let Some(file) = file else { return Ok(None) };
        let is_new = OPENED_HERE.lock().insert(file);
        if is_new { Ok(Some(Self(file))) } else { Err(FileLockError::Held { pid: Some(std::process::id()) }) }
    }
}

impl Drop for OpenedHere {
    fn drop(&mut self) {
        OPENED_HERE.lock().remove(&self.0);
    }
}

/// Options for a new file that only its owner may read and write.
pub(in crate::store::sqlite) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn open_existing(path: &Path) -> Result<Option<File>, FileLockError> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileLockError::Io(error)),
    }
}

/// A lock that this process holds. The operating system releases it when the process ends, however it ends.
#[derive(Debug)]
pub(in crate::store::sqlite) struct FileLock {
    file: File,
}

/// The reason why a lock was not taken.
#[derive(Debug)]
pub(in crate::store::sqlite) enum FileLockError {
    /// Another process holds it.
    Held {
        /// Id of that process, if the file names it.
        pid: Option<u32>,
    },
    /// The file cannot be made or locked.
    Io(io::Error),
}

/// The lock file of a database: the name of the database with `.lock` added.
pub(in crate::store::sqlite) fn path_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

impl FileLock {
    /// Takes the lock without waiting, and writes the id of this process into the file.
    pub(in crate::store::sqlite) fn take(path: &Path) -> Result<Self, FileLockError> {
        let file = private().read(true).write(true).create(true).truncate(false).open(path);
        let mut lock = Self::on(file.map_err(FileLockError::Io)?)?;
        sign(&mut lock.file).map_err(FileLockError::Io)?;
        Ok(lock)
    }

    /// Locks an open file without waiting.
    fn on(mut file: File) -> Result<Self, FileLockError> {
        match file.try_lock() {
            Ok(()) => Ok(Self { file }),
            Err(TryLockError::WouldBlock) => Err(FileLockError::Held { pid: holder(&mut file) }),
            Err(TryLockError::Error(error)) => Err(FileLockError::Io(error)),
        }
    }
}

fn sign(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

/// The process that a lock file names.
fn holder_of(path: &Path) -> Option<u32> {
    holder(&mut File::open(path).ok()?)
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(PID_BYTES_MAX).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_holds_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = path_of(&directory.path().join("a.db"));
        assert!(path.ends_with("a.db.lock"));
        let held = FileLock::take(&path).unwrap();
        let refused = FileLock::take(&path).unwrap_err();
        assert!(
            matches!(refused, FileLockError::Held { pid } if pid == Some(std::process::id())),
            "{refused:?}"
        );
        drop(held);
        FileLock::take(&path).unwrap();
    }
}
