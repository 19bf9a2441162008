//! Parts of reading a response that several providers share.

pub(in crate::model) mod failure;
pub(in crate::model) mod fields;
pub(in crate::model) mod overflow;
pub(in crate::model) mod template;
