//! The context of a model call: from a session's entries to a request, and from deltas to the finished message.

pub mod assemble;
pub mod build;
pub mod compact;
pub mod prompt;
pub mod view;
