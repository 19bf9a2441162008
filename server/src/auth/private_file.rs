//! Files of which others must not read the content: the check of their rights, and their replacement.

use std::fs::{self, File, Metadata};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Symbolic links that lead to a file, at most.
const LINKS_MAX: usize = 40;

/// The owner and the rights of a file.
#[cfg(unix)]
#[derive(Debug, Clone, Copy)]
struct FileRights {
    /// As `chmod` takes it.
    mode: u32,
    user: u32,
    group: u32,
}

/// The process that reads a file.
#[cfg(unix)]
#[derive(Debug)]
struct PrivateReader {
    user: u32,
    groups: Vec<u32>,
}

#[cfg(unix)]
const ROOT: u32 = 0;
/// The bits of a mode that say what the group and all others may do.
#[cfg(unix)]
const OTHERS: u32 = 0o077;
/// The bit of a mode by which the group may read.
#[cfg(unix)]
const GROUP_READS: u32 = 0o040;

#[cfg(unix)]
impl FileRights {
    fn of(found: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self { mode: found.mode() & 0o777, user: found.uid(), group: found.gid() }
    }

    /// True if the owner alone may use the file, or if it is root's and one group may only read it.
    fn is_narrow(self) -> bool {
        match self.mode & OTHERS {
            0 => true,
            GROUP_READS => self.user == ROOT,
            _ => false,
        }
    }

    /// True if nobody but the reader and its group may read the file. Only root can give a group that right, since every other
    /// owner can take it away: Kubernetes does so with a Secret, which is root's, for a pod with `fsGroup`.
    fn is_private_to(self, reader: &PrivateReader) -> bool {
        let by_group = self.mode & GROUP_READS != 0;
        self.is_narrow() && (!by_group || reader.user == ROOT || reader.groups.contains(&self.group))
    }
}

#[cfg(unix)]
impl PrivateReader {
    /// This process, with its effective user and all of its groups.
    fn current() -> io::Result<Self> {
        use rustix::process::{getegid, geteuid, getgroups};
        let mut groups: Vec<u32> = getgroups()?.into_iter().map(|group| group.as_raw()).collect();
        groups.push(getegid().as_raw());
        Ok(Self { user: geteuid().as_raw(), groups })
    }
}

/// The mode of an open file, if others may use it.
///
/// # Errors
/// The operating system's.
#[cfg(unix)]
pub(super) fn exposed_mode(file: &File) -> io::Result<Option<u32>> {
    let rights = FileRights::of(&file.metadata()?);
    Ok((!rights.is_private_to(&PrivateReader::current()?)).then_some(rights.mode))
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
/// a part. A symbolic link stays, and the file behind it is replaced. The owner stays, and a group that may read a file of root's.
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

/// Gives the new file the owner of the one that it replaces: written by root, it must stay readable for the server. For a file
/// of root's that may mean its group.
#[cfg(unix)]
fn keep_rights(path: &Path, new: &File) -> io::Result<()> {
    use std::os::unix::fs::{PermissionsExt as _, fchown};
    let Ok(before) = fs::metadata(path).map(|found| FileRights::of(&found)) else { return Ok(()) };
    let now = FileRights::of(&new.metadata()?);
    if (before.user, before.group) != (now.user, now.group) {
        fchown(new, Some(before.user), Some(before.group))?;
    }
    if before.is_narrow() && before.mode & GROUP_READS != 0 {
        new.set_permissions(fs::Permissions::from_mode(0o600 | GROUP_READS))?;
    }
    Ok(())
}

#[cfg(not(unix))]
fn keep_rights(_path: &Path, _new: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_group_may_read_a_file_of_roots_if_it_is_the_readers() {
        let server = PrivateReader { user: 65_532, groups: vec![7, 65_532] };
        let root = PrivateReader { user: ROOT, groups: vec![ROOT] };
        for (mode, user, group, for_server, for_root) in [
            (0o600, 65_532, 65_532, true, true),
            (0o400, 65_532, 7, true, true),
            // As Kubernetes mounts a Secret of mode 0400 for a pod with fsGroup.
            (0o440, ROOT, 65_532, true, true),
            (0o640, ROOT, 7, true, true),
            (0o440, ROOT, 8, false, true),
            // Its owner can take the right away.
            (0o640, 65_532, 65_532, false, false),
            (0o440, 1_000, 65_532, false, false),
            (0o460, ROOT, 65_532, false, false),
            (0o450, ROOT, 65_532, false, false),
            (0o444, ROOT, 65_532, false, false),
            (0o404, ROOT, 65_532, false, false),
            (0o441, ROOT, 65_532, false, false),
            (0o604, 65_532, 65_532, false, false),
        ] {
            let file = FileRights { mode, user, group };
            let found = [&server, &root].map(|reader| file.is_private_to(reader));
            assert_eq!(found, [for_server, for_root], "{mode:03o} {user}:{group}");
        }
    }

    #[test]
    fn the_groups_of_the_process_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mine = FileRights::of(&File::create(&path).unwrap().metadata().unwrap());
        let reader = PrivateReader::current().unwrap();
        assert_eq!(reader.user, mine.user, "files are made by the user that reads");
        assert!(reader.groups.contains(&mine.group), "{reader:?}");
    }

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

    #[test]
    fn rights_are_narrowed_or_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mode_after = |before: u32| {
            fs::write(&path, "old").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(before)).unwrap();
            replace(&path, b"new").unwrap();
            fs::metadata(&path).unwrap().permissions().mode() & 0o777
        };
        assert_eq!([0o644, 0o660, 0o600, 0o400].map(mode_after), [0o600; 4]);
        let is_root = PrivateReader::current().unwrap().user == ROOT;
        assert_eq!(
            mode_after(0o440),
            if is_root { 0o640 } else { 0o600 },
            "the group of root's file may read on"
        );
    }
}
