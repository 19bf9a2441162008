//! Writes, as far as they are the same for both databases.

mod error;
pub(in crate::store) mod sessions;

pub(in crate::store) use self::error::{WriteError, to_reply};
