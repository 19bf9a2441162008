//! The lock file beside a database: one server per database, because the store relies on being its only writer.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

/// Bytes of a lock file that are read to find the process that holds it.
const PID_BYTES_MAX: u64 = 20;

/// A lock that this process holds. The operating system releases it when the process ends, however it ends.
#[derive(Debug)]
pub(in crate::store::sqlite) struct FileLock {
    _file: File,
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
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(FileLockError::Io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(FileLockError::Held { pid: holder(&mut file) }),
            Err(TryLockError::Error(error)) => return Err(FileLockError::Io(error)),
        }
        sign(&mut file).map_err(FileLockError::Io)?;
        Ok(Self { _file: file })
    }
}

fn sign(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
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
