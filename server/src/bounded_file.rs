//! Reading files that must not be longer than a bound.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// The bytes of a file.
///
/// # Errors
/// The operating system's error, or one that says that the file is longer than `bytes_max`.
pub(crate) fn read(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    read_open(File::open(path)?, bytes_max)
}

/// As [`read`], of an open file.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_open(file: File, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        return Err(io::Error::other(format!("it is longer than {bytes_max} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_have_as_many_bytes_as_the_bound_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"four").unwrap();
        assert_eq!(read(&path, 4).unwrap(), b"four");
        assert_eq!(read(&path, 3).unwrap_err().to_string(), "it is longer than 3 bytes");
        assert_eq!(read(&folder.path().join("none"), 3).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
