//! The bytes of blobs that a store has, and the disk space for more.

use crate::store::{BlobBounds, StoreError};

/// Bytes that count against [`BlobBounds::total_bytes`].
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::store) struct BlobUsage {
    /// Bytes of stored blobs. `None` until they have been counted.
    pub(in crate::store) stored: Option<u64>,
    /// Bytes of uploads under way.
    pub(in crate::store) uploading: u64,
}

impl BlobUsage {
    /// Reserves so many more bytes that are uploaded.
    ///
    /// # Errors
    /// [`StoreError::BlobsFull`]: nothing is taken.
    pub(in crate::store) fn reserve(&mut self, bytes: u64, bounds: BlobBounds) -> Result<(), StoreError> {
        let used = self.stored.unwrap_or_default().saturating_add(self.uploading);
        if used.saturating_add(bytes) > bounds.bytes_with_uploads() {
            return Err(StoreError::BlobsFull { max: bounds.total_bytes });
        }
        self.uploading += bytes;
        Ok(())
    }

    /// Checks that the bounds leave so many bytes beside those that are stored.
    ///
    /// # Errors
    /// [`StoreError::BlobsFull`].
    pub(in crate::store) fn check_bounds(self, bytes: u64, bounds: BlobBounds) -> Result<(), StoreError> {
        let max = bounds.total_bytes;
        let needed = self.stored.unwrap_or_default().saturating_add(bytes);
        if needed > max { Err(StoreError::BlobsFull { max }) } else { Ok(()) }
    }

    /// Counts bytes that were stored.
    pub(in crate::store) fn add(&mut self, bytes: u64) {
        self.stored = self.stored.map(|stored| stored.saturating_add(bytes));
    }

    /// Counts bytes that were deleted.
    pub(in crate::store) fn remove(&mut self, bytes: u64) {
        self.stored = self.stored.map(|stored| stored.saturating_sub(bytes));
    }
}
