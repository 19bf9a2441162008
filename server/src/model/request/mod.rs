//! What requests of all providers have in common.

pub(in crate::model) mod bound;
pub(in crate::model) mod history;
pub(in crate::model) mod notices;
pub(in crate::model) mod origin;
pub(in crate::model) mod prefix;
pub(in crate::model) mod unowned;
