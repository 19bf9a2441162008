//! The files of a database. This file checks them before SQLite opens them: their name and the write-ahead log. The modules
//! lock them, find out if they were replaced, and note the last state of the database.

pub(in crate::store::sqlite) mod error;
pub(in crate::store::sqlite) mod last_state;
pub(in crate::store::sqlite) mod last_state_keeper;
pub(in crate::store::sqlite) mod lock;
pub(in crate::store::sqlite) mod same_files;

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use self::error::{LOG_VERSION, OpenError};
use self::lock::{DatabaseLock, FileLockError};
use crate::store::sqlite::connect::DEFAULT_PAGE_BYTES;

/// First number of a write-ahead log whose checksums are computed over little-endian numbers.
const LOG_LITTLE_ENDIAN: u32 = 0x377f_0682;
/// First number of a write-ahead log whose checksums are computed over big-endian numbers.
const LOG_BIG_ENDIAN: u32 = 0x377f_0683;
/// Bytes of a log's header that its checksum covers. The checksum follows them.
const LOG_SUMMED_BYTES: usize = 24;
const LOG_HEADER_BYTES: usize = 32;
/// Header of the first frame, which follows that of the log. It is never all zeros.
const FRAME_HEADER_BYTES: usize = 24;
/// Smallest page size that SQLite has.
const PAGE_BYTES_MIN: u32 = 512;

/// The path of a file without symbolic links, also if the file does not exist yet. The names of its lock and its log are
/// derived from this, so they are the same under every link and from every working directory.
pub(in crate::store::sqlite) fn real_path(path: &Path) -> Result<PathBuf, OpenError> {
    let unavailable =
        |error: io::Error| OpenError::Unavailable { path: path.into(), what: error.to_string() };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !directory.is_dir() {
        return Err(OpenError::NoDirectory { path: path.into() });
    }
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => return found.map_err(unavailable),
    }
    if let Ok(target) = path.read_link() {
        // A circle of links fails with another error before it comes here.
        return real_path(&directory.join(target));
    }
    let name = path.file_name().ok_or_else(|| OpenError::NoDirectory { path: path.into() })?;
    Ok(directory.canonicalize().map_err(unavailable)?.join(name))
}

/// Takes the lock of a database that may be opened for writing.
pub(in crate::store::sqlite) fn lock_file(path: &Path) -> Result<DatabaseLock, OpenError> {
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
    DatabaseLock::take(path).map_err(|error| lock_failure(path, error))
}

/// A lock that was not taken as an error of opening.
pub(in crate::store::sqlite) fn lock_failure(path: &Path, error: FileLockError) -> OpenError {
    let lock = lock::path_of(path);
    match error {
        FileLockError::Held { pid } => OpenError::InUse { path: path.into(), lock, pid },
        FileLockError::Io(error) if is_refusal(&error) => OpenError::ReadOnly { path: path.into() },
        FileLockError::Io(error) => {
            OpenError::Unavailable { path: path.into(), what: format!("{}: {error}", lock.display()) }
        }
    }
}

/// Number of hard links of a file; 1 on systems that do not tell.
fn names(file: &Metadata) -> u64 {
    #[cfg(unix)]
    return std::os::unix::fs::MetadataExt::nlink(file);
    #[cfg(not(unix))]
    return u64::from(file.is_file());
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// Refuses damage that SQLite would not report. A log that is damaged or has no database would be dropped, with the
/// commits in it. A file that ends before its last page would fail only when that page is read.
pub(in crate::store::sqlite) fn check_files(path: &Path) -> Result<(), OpenError> {
    let log = log_of(path);
    let logged = check_log(&log)?;
    let unreadable = |error: io::Error| OpenError::Unavailable { path: path.into(), what: error.to_string() };
    let bytes = file_bytes(path).map_err(unreadable)?;
    if bytes == 0 && logged > 0 {
        return Err(OpenError::LogAlone { path: path.into(), log });
    }
    let header = read_start::<32>(path).map_err(unreadable)?.0;
    if logged == 0 && bytes < expected_bytes(&header) {
        return Err(OpenError::Damaged { path: path.into(), what: "its end is missing".to_owned() });
    }
    Ok(())
}

/// Checks the header of a log, and returns its length; 0 if there is none.
fn check_log(log: &Path) -> Result<u64, OpenError> {
    let unreadable = |error: io::Error| OpenError::Unavailable { path: log.into(), what: error.to_string() };
    let damaged = |what: &str| OpenError::DamagedLog { log: log.into(), what: what.to_owned() };
    let bytes = file_bytes(log).map_err(unreadable)?;
    let (begins, read) = read_start::<{ LOG_HEADER_BYTES + FRAME_HEADER_BYTES }>(log).map_err(unreadable)?;
    let [kind, version] = [number(&begins[..4]), number(&begins[4..8])];
    // A power cut while the log is created may leave it empty or all zeros.
    if read < 4 || begins == [0; LOG_HEADER_BYTES + FRAME_HEADER_BYTES] {
        return Ok(bytes);
    }
    if ![LOG_LITTLE_ENDIAN, LOG_BIG_ENDIAN].contains(&kind) {
        return Err(damaged("it is no write-ahead log"));
    }
    // The header is durable before any frame is written, so without frames nothing is lost.
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

/// The checksum of a log's header, which depends on the log's first number.
pub(in crate::store::sqlite) fn log_sums(kind: u32, bytes: &[u8]) -> [u32; 2] {
    let number = |bytes: &[u8]| match kind {
        LOG_BIG_ENDIAN => number(bytes),
        _ => number(bytes).swap_bytes(),
    };
    bytes.chunks_exact(8).fold([0_u32; 2], |[first, second], pair| {
        let first = first.wrapping_add(number(&pair[..4])).wrapping_add(second);
        [first, second.wrapping_add(number(&pair[4..])).wrapping_add(first)]
    })
}

/// Reads a big-endian number of four bytes.
fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().expect("four bytes"))
}

/// The file of a database's write-ahead log.
pub(in crate::store::sqlite) fn log_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// The file with which SQLite undoes a transaction that was interrupted while a database had no write-ahead log.
pub(in crate::store::sqlite) fn journal_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-journal");
    name.into()
}

/// The length of a file; 0 if it does not exist.
fn file_bytes(path: &Path) -> io::Result<u64> {
    match path.metadata() {
        Ok(file) => Ok(file.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// The first bytes of a file, padded with zeros, and how many of them the file has.
fn read_start<const BYTES: usize>(path: &Path) -> io::Result<([u8; BYTES], usize)> {
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

/// The length that a database's header announces, which holds while its log is empty; 0 for another kind of file.
fn expected_bytes(header: &[u8; 32]) -> u64 {
    if !header.starts_with(b"SQLite format 3\0") {
        return 0;
    }
    let pages = u32::from_be_bytes([header[28], header[29], header[30], header[31]]);
    u64::from(header_page_bytes(header)) * u64::from(pages)
}

/// The page size that a database's header names.
fn header_page_bytes(header: &[u8; 32]) -> u32 {
    match u16::from_be_bytes([header[16], header[17]]) {
        // The largest page size does not fit.
        1 => 65_536,
        bytes => bytes.into(),
    }
}

/// The page size of a file: its own, or that of a new file.
pub(in crate::store::sqlite) fn page_bytes(path: &Path) -> Result<u32, OpenError> {
    let unreadable = |error: io::Error| OpenError::Unavailable { path: path.into(), what: error.to_string() };
    let (header, read) = read_start::<32>(path).map_err(unreadable)?;
    let bytes = header_page_bytes(&header);
    // A file of another program is refused later, whatever its header says.
    let is_database = read == header.len() && bytes >= PAGE_BYTES_MIN;
    Ok(if is_database { bytes } else { DEFAULT_PAGE_BYTES })
}
