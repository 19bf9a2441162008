//! The folder of blobs beside the database. A blob's file is named by its digest: `agentloop.db-blobs/ab/cdef…`. Uploads under
//! way are in `agentloop.db-blobs/tmp`.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::path::{Path, PathBuf};

use agentloop_core::blob::BlobDigest;

/// The folder of uploads, inside the folder of blobs.
const UPLOADS: &str = "tmp";

/// The folder of blobs.
#[derive(Debug)]
pub(in crate::store::sqlite) struct BlobFolder {
    path: PathBuf,
    /// Deleted when it is dropped: it belongs to a database in memory.
    is_temporary: bool,
}

impl BlobFolder {
    /// The folder of a database file. Unfinished uploads of an earlier process are deleted.
    pub(in crate::store::sqlite) fn beside(database: &Path) -> Self {
        let mut name = database.as_os_str().to_owned();
        name.push("-blobs");
        let folder = Self { path: name.into(), is_temporary: false };
        let uploads = folder.path.join(UPLOADS);
        match fs::remove_dir_all(&uploads) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, path = %uploads.display(), "cannot delete the remains of uploads");
            }
            Ok(()) | Err(_) => {}
        }
        folder
    }

    /// The folder of a database in memory. It exists from the first upload on, until the store is dropped.
    pub(in crate::store::sqlite) fn temporary() -> Self {
        // Others may write to the folder that it is in, so nobody can guess its name.
        let name = format!("agentloop-{:016x}-blobs", RandomState::new().build_hasher().finish());
        Self { path: std::env::temp_dir().join(name), is_temporary: true }
    }

    /// The file of a blob.
    pub(super) fn file(&self, digest: &BlobDigest) -> PathBuf {
        let (folder, name) = digest.digits().split_at(2);
        self.path.join(folder).join(name)
    }

    /// Creates a file to upload into.
    pub(super) fn new_upload(&self, no: u64) -> io::Result<(File, PathBuf)> {
        let uploads = self.path.join(UPLOADS);
        create_private(&self.path)?;
        create_private(&uploads)?;
        let path = uploads.join(no.to_string());
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Ok((options.open(&path)?, path))
    }

    /// Gives an uploaded file, whose bytes are on the disk, its name. The name is on the disk when this returns.
    pub(super) fn keep(&self, upload: &Path, digest: &BlobDigest) -> io::Result<()> {
        let file = self.file(digest);
        let folder = file.parent().unwrap_or(&self.path);
        create_private(folder)?;
        fs::rename(upload, &file)?;
        sync(folder)
    }

    /// Deletes a blob's file, if there is one.
    pub(super) fn delete(&self, digest: &BlobDigest) -> io::Result<()> {
        match fs::remove_file(self.file(digest)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            deleted => deleted,
        }
    }
}

impl Drop for BlobFolder {
    fn drop(&mut self) {
        if self.is_temporary {
            // It is there only if something was uploaded.
            let _absent = fs::remove_dir_all(&self.path);
        }
    }
}

/// Creates a folder that only this user may enter, unless it is there. Its name is on the disk when this returns.
fn create_private(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(path) {
        Ok(()) => path.parent().map_or(Ok(()), sync),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes the names in a folder durable.
fn sync(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}
