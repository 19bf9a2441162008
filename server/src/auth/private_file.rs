//! Files of which others must not read the content: the check of their rights, and their replacement.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Symbolic links that lead to a file, at most.
const LINKS_MAX: usize = 40;

/// The mode of an open file, if others may use it.
///
/// # Errors
/// The operating system's.
#[cfg(unix)]
pub(super) fn exposed_mode(file: &File) -> io::Result<Option<u32>> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = file.metadata()?.permissions().mode() & 0o777;
    Ok((mode & 0o077 != 0).then_some(mode))
}

/// Elsewhere files have no mode.
#[cfg(not(unix))]
pub(super) fn exposed_mode(_file: &File) -> io::Result<Option<u32>> {
    Ok(None)
}

/// The file that a name stands for, which may not exist yet: symbolic links are followed.
///
/// # Errors
/// When there are too many of them.
pub(super) fn end_of_links(file: &Path) -> io::Result<PathBuf> {
    let mut path = file.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&path) else { return Ok(path) };
        path = path.parent().map_or_else(|| target.clone(), |folder| folder.join(&target));
    }
    Err(io::Error::other("too many symbolic links"))
}

/// Replaces the file by one with this content, which its owner alone may read. A reader sees the old file or the new one, never
/// a part. A symbolic link stays, and the file behind it is replaced. The owner stays.
///
/// # Errors
/// The operating system's.
pub(super) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let path = end_of_links(path)?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = PathBuf::from(beside);
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(&beside).and_then(|mut file| {
        file.write_all(content)?;
        keep_rights(&path, &file)?;
        file.sync_all()?;
        fs::rename(&beside, &path)
    });
    if written.is_err() {
        // The name may not even exist; the first error says what happened.
        let _kept = fs::remove_file(&beside);
    }
    written
}

/// Gives the new file the owner of the one that it replaces: written by root, it must stay readable for the server.
#[cfg(unix)]
fn keep_rights(path: &Path, new: &File) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, fchown};
    let Ok(before) = fs::metadata(path) else { return Ok(()) };
    let now = new.metadata()?;
    if (before.uid(), before.gid()) == (now.uid(), now.gid()) {
        return Ok(());
    }
    fchown(new, Some(before.uid()), Some(before.gid()))
}

#[cfg(not(unix))]
fn keep_rights(_path: &Path, _new: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_file_behind_links_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("real")).unwrap();
        fs::write(at("real/file"), "old").unwrap();
        symlink("real/file", at("near")).unwrap();
        symlink(at("near"), at("far")).unwrap();
        symlink("real/new", at("ahead")).unwrap();
        for (link, file) in [("far", "real/file"), ("near", "real/file"), ("ahead", "real/new")] {
            replace(&at(link), link.as_bytes()).unwrap();
            assert!(fs::symlink_metadata(at(link)).unwrap().is_symlink(), "{link} stays");
            assert_eq!(fs::read_to_string(at(file)).unwrap(), link);
        }
        assert_eq!(fs::read_dir(at("real")).unwrap().count(), 2, "nothing is left beside them");
        symlink(at("round"), at("round")).unwrap();
        let refused = replace(&at("round"), b"").unwrap_err();
        assert!(refused.to_string().contains("too many symbolic links"), "{refused}");
    }
}
