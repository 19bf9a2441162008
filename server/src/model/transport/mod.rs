//! HTTP requests, and event streams as responses.

pub(in crate::model) mod http;
pub(in crate::model) mod sse;
