//! Files that were renamed, replaced or removed while the store has them open. SQLite goes on writing to what nobody will
//! find again, so a commit is acknowledged only while the files are still there.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file, whatever its name: its device and its inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::store::sqlite) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// `None` on systems that do not tell.
    pub(in crate::store::sqlite) fn of(file: &Metadata) -> Option<Self> {
        #[cfg(unix)]
        return Some(Self {
            device: std::os::unix::fs::MetadataExt::dev(file),
            inode: std::os::unix::fs::MetadataExt::ino(file),
        });
        #[cfg(not(unix))]
        return None::<Self>.filter(|_| file.is_file());
    }
}

/// The files of a database that must stay where they are, as they were when it was opened.
#[derive(Debug, Clone, Default)]
pub(in crate::store::sqlite) struct SameFiles(Arc<[(PathBuf, FileId)]>);

/// A file is no longer the one that was opened.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} was {how} while the server has it open; nothing is acknowledged until it is back. If it is lost, stop the server \
     with SIGTERM, which saves what it still holds",
    .path.display()
)]
pub(in crate::store::sqlite) struct FileMoved {
    /// The name under which the file was opened.
    pub(in crate::store::sqlite) path: PathBuf,
    how: String,
}

impl From<FileMoved> for sqlx::Error {
    fn from(moved: FileMoved) -> Self {
        Self::Io(io::Error::other(moved))
    }
}

impl SameFiles {
    /// Notes which files have these names now.
    ///
    /// # Errors
    /// The operating system's own, with the name of the file.
    pub(in crate::store::sqlite) fn now(paths: &[PathBuf]) -> Result<Self, (PathBuf, io::Error)> {
        let mut files = Vec::new();
        for path in paths {
            let file = path.metadata().map_err(|error| (path.clone(), error))?;
            files.extend(FileId::of(&file).map(|id| (path.clone(), id)));
        }
        Ok(Self(files.into()))
    }

    /// True if this file is among them under this name.
    pub(in crate::store::sqlite) fn has(&self, path: &Path, file: FileId) -> bool {
        self.0.iter().any(|(named, id)| named == path && *id == file)
    }

    /// Looks if each name still has its file.
    ///
    /// # Errors
    /// [`FileMoved`] with the first name that does not.
    pub(in crate::store::sqlite) fn check(&self) -> Result<(), FileMoved> {
        for (path, id) in self.0.iter() {
            let moved = |how: &str| FileMoved { path: path.clone(), how: how.to_owned() };
            match path.metadata() {
                Ok(file) if FileId::of(&file) == Some(*id) => {}
                Ok(_) => return Err(moved("replaced")),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(moved("renamed or removed"));
                }
                // Other errors say nothing about the file.
                Err(error) => tracing::warn!(%error, path = %path.display(), "a file cannot be looked at"),
            }
        }
        Ok(())
    }
}
