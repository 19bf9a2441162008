//! How a context's being made smaller interrupts a phase, and gives it back.

use crate::entry::CompactionReason;
use crate::run::state::{AfterCompaction, CompactionInHand, News, Phase, State};
use crate::time::Timestamp;

impl State {
    /// What follows is read off the phase that it interrupts.
    pub(super) fn begin_compaction(
        &mut self,
        number: u32,
        strategy: &str,
        reason: CompactionReason,
        level: u32,
        since: Timestamp,
    ) {
        assert_eq!(number, self.compactions + 1, "compactions are dense");
        self.compactions = number;
        self.squeezes += 1;
        self.compact_due = None;
        let then = match &self.phase {
            Phase::Compacting(before) => before.then.clone(),
            before if reason == CompactionReason::Planned => AfterCompaction::Plan(Box::new(before.clone())),
            _ => AfterCompaction::Call,
        };
        // A provider that says that its context is full was asked.
        self.unsent |= matches!(self.phase, Phase::ModelRunning(_)) && reason != CompactionReason::Overflow;
        self.keep_settled();
        let strategy = strategy.to_owned();
        self.phase = Phase::Compacting(CompactionInHand { number, strategy, reason, level, since, then });
    }

    /// Where the planner asked for it, the run stands where it stood.
    pub(super) fn end_compaction(&mut self) {
        if let Phase::Compacting(CompactionInHand { then: AfterCompaction::Plan(before), .. }) = &self.phase {
            self.phase = Phase::clone(before);
            self.news = Some(News::Compacted);
        }
    }
}
