//! Files of certificates and keys.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use super::security_error::SecurityError;

/// Longest file of certificates or a key, in bytes.
const PEM_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Reads a file of certificates or a key, which this key of the configuration names.
///
/// # Errors
/// [`SecurityError::Read`]
pub(super) fn read_pem(key: &'static str, path: &Path) -> Result<Vec<u8>, SecurityError> {
    let failed = |cause| SecurityError::Read { key, path: path.to_owned(), cause };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(PEM_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > PEM_BYTES_MAX {
        return Err(failed(io::Error::other(format!("it is longer than {PEM_BYTES_MAX} bytes"))));
    }
    Ok(bytes)
}
