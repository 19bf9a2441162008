//! What answers of all providers have in common.

pub(in crate::model) mod failure;
pub(in crate::model) mod fields;
pub(in crate::model) mod overflow;
pub(in crate::model) mod template;
