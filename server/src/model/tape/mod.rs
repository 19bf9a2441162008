//! What a provider was asked and what it answered, on file; and that file in the provider's place.
//!
//! | | |
//! |---|---|
//! | `line` | the format: one call, one line of JSON |
//! | `file` | lines appended and read, cut ones included |
//! | `record` | a model whose calls are written down |
//! | `outline` | what of a request counts when a recording of it is looked for |
//! | `replay` | a model that answers from the file |

mod file;
mod line;
mod outline;
mod record;
mod replay;
#[cfg(test)]
mod tests;

pub use self::file::TapeError;
pub(in crate::model) use self::file::TapeWriter;
pub(in crate::model) use self::record::Recorded;
pub(in crate::model) use self::replay::Replayed;
