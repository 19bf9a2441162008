//! Recordings: a file with a provider's requests and responses, and a model that replays such a file.
//!
//! | file | purpose |
//! |---|---|
//! | `format` | one recorded call as one line of JSON |
//! | `file` | appends and reads lines, also cut ones |
//! | `record` | a model that records the calls of another |
//! | `outline` | the parts of a request that a recording must match |
//! | `replay` | a model that responds from the file |

mod file;
mod format;
mod outline;
mod record;
mod replay;
#[cfg(test)]
mod tests;

pub use self::file::RecordingError;
pub(in crate::model) use self::file::RecordingWriter;
pub(in crate::model) use self::record::RecordingModel;
pub(in crate::model) use self::replay::ReplayModel;
