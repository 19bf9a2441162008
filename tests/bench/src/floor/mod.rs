//! Floors: the cost of the same work without the server, which is the least that a server could need on this machine.

pub(crate) mod commit;
pub(crate) mod read;
pub(crate) mod round_trip;
pub(crate) mod stream;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::measure::middle;

/// The report of a floor's process at its end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Said {
    /// Nanoseconds of CPU for one run.
    pub(crate) cpu_per_run: f64,
    /// Nanoseconds from begin to end of the middle run.
    pub(crate) p50: f64,
    /// Nanoseconds to the first piece, or until the first append was durable, of the middle run.
    pub(crate) first: f64,
}

impl Said {
    /// From nanoseconds of CPU, and how long each run took as a whole and to its first.
    fn new(cpu: u64, times: &[(Duration, Duration)]) -> Self {
        Self {
            cpu_per_run: cpu as f64 / times.len() as f64,
            p50: middle(times.iter().map(|(whole, _)| whole.as_nanos() as f64)),
            first: middle(times.iter().map(|(_, first)| first.as_nanos() as f64)),
        }
    }

    fn say(&self) -> Result<(), Failure> {
        crate::say("", &serde_json::to_string(self)?);
        Ok(())
    }
}
