//! Parts of building a request that several providers share.

pub(in crate::model) mod call_time;
pub(in crate::model) mod encoded_text;
pub(in crate::model) mod history;
pub(in crate::model) mod omissions;
pub(in crate::model) mod origin;
pub(in crate::model) mod output_limit;
pub(in crate::model) mod prefix;
