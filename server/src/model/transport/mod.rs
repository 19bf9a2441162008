//! How requests get there and answers come back: HTTP and event streams.

pub(in crate::model) mod http;
pub(in crate::model) mod sse;
