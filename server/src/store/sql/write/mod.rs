//! Writes, as far as they are the same for both databases.

pub(in crate::store) mod sessions;
