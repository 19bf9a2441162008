//! Providers, one module for each wire format: writes requests and decodes responses.

pub(in crate::model) mod anthropic;
pub(in crate::model) mod gemini;
pub(in crate::model) mod openai;
pub(in crate::model) mod responses;
pub(in crate::model) mod scripted;
