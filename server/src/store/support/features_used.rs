//! Features that the database has used: steering, remembered rules and queues. Most servers use none of them, and a read
//! for an unused feature needs no query.

use std::sync::atomic::{AtomicBool, Ordering};

use super::append::EncodedAppend;

/// The features that tables show.
pub(in crate::store) struct Features {
    pub(in crate::store) steers: bool,
    pub(in crate::store) rules: bool,
    pub(in crate::store) queues: bool,
}

/// A flag for each feature.
///
/// **Invariant:** while a flag is false, the tables of its feature have no row. A flag is set before the first row is
/// written, and is never cleared.
#[derive(Debug, Default)]
pub(in crate::store) struct FeaturesUsed {
    steers: AtomicBool,
    rules: AtomicBool,
    queues: AtomicBool,
}

impl FeaturesUsed {
    /// Flags as the tables are now.
    pub(in crate::store) fn of(Features { steers, rules, queues }: Features) -> Self {
        Self { steers: steers.into(), rules: rules.into(), queues: queues.into() }
    }

    /// True if a request may have handed its messages to a run.
    pub(in crate::store) fn steers(&self) -> bool {
        self.steers.load(Ordering::Acquire)
    }

    /// True if a rule may be remembered.
    pub(in crate::store) fn rules(&self) -> bool {
        self.rules.load(Ordering::Acquire)
    }

    /// True if a run may wait in a queue.
    pub(in crate::store) fn queues(&self) -> bool {
        self.queues.load(Ordering::Acquire)
    }

    /// Sets the flags of the features that an append uses. Called before it is written, so that a caller who learns of
    /// the append finds its rows.
    pub(in crate::store) fn mark(&self, append: &EncodedAppend) {
        let mark = |flag: &AtomicBool, is_used: bool| {
            if is_used && !flag.load(Ordering::Relaxed) {
                flag.store(true, Ordering::Release);
            }
        };
        mark(&self.steers, !append.steers.is_empty());
        mark(&self.rules, !append.remembered.is_empty());
        mark(&self.queues, append.create.is_some() && append.enter.is_none());
    }
}
