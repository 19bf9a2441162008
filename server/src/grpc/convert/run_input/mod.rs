//! Requests to start a run: from a `RunInput` or an import, with the check of every field.

mod context;
pub(crate) mod import;
pub mod input;
mod provider_options;
pub mod reuse;
