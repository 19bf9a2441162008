//! One server per file: two would each believe that they are its only writer.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

/// Bytes of a lock file that are read to learn who holds it.
const PID_BYTES_MAX: u64 = 20;

/// A held lock. The operating system lets go of it when the process ends, however that happens.
#[derive(Debug)]
pub(in crate::store::sqlite) struct Lock {
    _file: File,
}

/// Why there is no lock.
#[derive(Debug)]
pub(in crate::store::sqlite) enum LockError {
    /// Someone else holds it.
    Held {
        /// The process, where the file says so.
        pid: Option<u32>,
    },
    /// The file cannot be made or locked.
    Io(io::Error),
}

/// The lock's file: beside the database, with `.lock` added to its name.
pub(in crate::store::sqlite) fn path_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

impl Lock {
    /// Takes the lock at once or not at all, and writes our process id into its file.
    pub(in crate::store::sqlite) fn take(path: &Path) -> Result<Self, LockError> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(LockError::Io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LockError::Held { pid: holder(&mut file) }),
            Err(TryLockError::Error(error)) => return Err(LockError::Io(error)),
        }
        sign(&mut file).map_err(LockError::Io)?;
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
        let held = Lock::take(&path).unwrap();
        let refused = Lock::take(&path).unwrap_err();
        assert!(matches!(refused, LockError::Held { pid } if pid == Some(std::process::id())), "{refused:?}");
        drop(held);
        Lock::take(&path).unwrap();
    }
}
