//! The order of the rows of a run that changes owners.

use std::collections::HashMap;

use agentloop_core::id::{RunKey, Seq};

use crate::engine::watch::change::{ChangedFrom, RunChange};

/// Runs in each of the two halves of [`NewestRows`].
const NEWEST_MAX: usize = 8_192;

/// The newest rows that were told lately. When a run moves, a change from its old owner may arrive after one from the new owner.
#[derive(Default)]
pub(super) struct NewestRows {
    young: HashMap<RunKey, Newest>,
    /// Older rows. When the young ones are [`NEWEST_MAX`], they take the place of these.
    old: HashMap<RunKey, Newest>,
}

struct Newest {
    seq: Seq,
    is_deleted: bool,
}

impl NewestRows {
    pub(super) fn note(&mut self, change: &RunChange) {
        if self.young.len() >= NEWEST_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        let is_deleted = change.from == ChangedFrom::Deleted;
        self.young.insert(change.key(), Newest { seq: change.row.last_seq, is_deleted });
    }

    /// True if a newer row of the run was told before.
    pub(super) fn has_newer(&self, change: &RunChange) -> bool {
        let (key, seq) = (change.key(), change.row.last_seq);
        match self.young.get(&key).or_else(|| self.old.get(&key)) {
            // A run of the same id may have been started since.
            Some(newest) if newest.is_deleted => change.from != ChangedFrom::Nothing && seq <= newest.seq,
            Some(newest) => seq < newest.seq,
            None => false,
        }
    }
}
