//! Files of certificates and keys.

use std::path::Path;

use super::error::SecurityError;
use crate::bounded_file;

/// Longest file of certificates or a key, in bytes.
const PEM_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Reads a file of certificates or a key, which this key of the configuration names.
///
/// # Errors
/// [`SecurityError::Read`]
pub(super) fn read_pem(key: &'static str, path: &Path) -> Result<Vec<u8>, SecurityError> {
    let failed = |cause| SecurityError::Read { key, path: path.to_owned(), cause };
    bounded_file::read(path, PEM_BYTES_MAX).map_err(failed)
}
