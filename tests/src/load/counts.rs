//! Counts of events in a load, for its report.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// Counters by name. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Counts(Arc<Mutex<BTreeMap<String, u64>>>);

impl Counts {
    /// One more of these.
    pub fn count(&self, what: &str) {
        self.add(what, 1);
    }

    /// So many more of these.
    pub fn add(&self, what: &str, many: u64) {
        let mut counts = self.0.lock();
        *counts.entry(what.to_owned()).or_default() += many;
    }

    /// The count of one kind.
    pub fn of(&self, what: &str) -> u64 {
        self.0.lock().get(what).copied().unwrap_or_default()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, many) in self.0.lock().iter() {
            writeln!(out, "{many:>10}  {what}")?;
        }
        Ok(())
    }
}
