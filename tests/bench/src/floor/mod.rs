//! What the same work costs with nothing around it: the least that a server could need on this machine.

pub(crate) mod commit;
pub(crate) mod read;
pub(crate) mod stream;

use serde::{Deserialize, Serialize};

/// What a process of a floor says of itself at its end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Said {
    /// Nanoseconds of CPU for one run.
    pub(crate) cpu_per_run: f64,
    /// Nanoseconds from begin to end of the middle run.
    pub(crate) p50: f64,
    /// Nanoseconds to the first piece, of the middle run.
    pub(crate) first: f64,
}
