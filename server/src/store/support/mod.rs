//! The common part of all implementations of the store, which no caller sees: stored forms, the checks of appends, and the
//! writes as they wait for a writer.

pub(in crate::store) mod append;
pub(in crate::store) mod blob_pieces;
pub(in crate::store) mod blob_usage;
pub(in crate::store) mod call_titles;
pub(in crate::store) mod checksum;
pub(in crate::store) mod codec;
pub(in crate::store) mod damaged;
pub(in crate::store) mod features_used;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
pub(in crate::store) mod migrations;
pub(in crate::store) mod number;
pub(in crate::store) mod page;
pub(in crate::store) mod search_terms;
pub(in crate::store) mod write;
