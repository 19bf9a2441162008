//! One wire format each: a request written, an answer read.

pub(in crate::model) mod anthropic;
pub(in crate::model) mod gemini;
pub(in crate::model) mod openai;
pub(in crate::model) mod responses;
pub(in crate::model) mod scripted;
