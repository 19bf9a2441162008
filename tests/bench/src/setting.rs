//! The setting that every workload is given.

use std::path::PathBuf;

use crate::options::Options;
use crate::report::Report;

/// The settings that every workload gets.
pub(crate) struct Setting<'a> {
    pub(crate) options: &'a Options,
    /// Path of the server's program.
    pub(crate) program: PathBuf,
    pub(crate) report: Report,
}

impl Setting<'_> {
    /// A number of runs, as scaled by the caller.
    pub(crate) fn scaled(&self, runs: u64) -> u64 {
        ((runs as f64 * self.options.scale) as u64).max(1)
    }
}
