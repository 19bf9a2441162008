//! What the model reads and what it wrote: history to request, deltas to message.

pub mod assemble;
pub mod build;
pub mod compact;
pub mod prompt;
pub mod view;
