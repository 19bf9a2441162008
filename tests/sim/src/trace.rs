//! The trace of a simulation, one line per event. Equal simulations have equal traces.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher as _};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Lines that are kept for whoever looks at a failure.
const TAIL_LINES: usize = 60;

/// The lines, and a digest of all of them.
#[derive(Debug)]
pub(crate) struct Trace {
    start: Instant,
    loud: bool,
    lines: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    tail: VecDeque<String>,
    digest: DefaultHasher,
    count: u64,
}

impl Trace {
    /// Begins now; a loud one prints each line.
    pub(crate) fn new(loud: bool) -> Self {
        Self { start: Instant::now(), loud, lines: Mutex::default() }
    }

    pub(crate) fn line(&self, who: &str, what: &str) {
        let line = format!("{:>9.3} {who:<10} {what}", self.start.elapsed().as_secs_f64());
        if self.loud {
            println!("{line}");
        }
        let mut lines = self.lines.lock();
        lines.digest.write(line.as_bytes());
        lines.count += 1;
        if lines.tail.len() == TAIL_LINES {
            lines.tail.pop_front();
        }
        lines.tail.push_back(line);
    }

    /// The digest of every line so far, and how many there are.
    pub(crate) fn digest(&self) -> (u64, u64) {
        let lines = self.lines.lock();
        (lines.digest.finish(), lines.count)
    }

    /// The last lines of the trace.
    pub(crate) fn tail(&self) -> Vec<String> {
        self.lines.lock().tail.iter().cloned().collect()
    }
}
