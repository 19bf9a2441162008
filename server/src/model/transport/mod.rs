//! HTTP requests, and event streams as answers.

pub(in crate::model) mod http;
pub(in crate::model) mod sse;
