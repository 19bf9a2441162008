//! Events of compactions: each interrupts a phase, and a planned one gives it back.

use crate::entry::CompactionReason;
use crate::message::Usage;
use crate::run::state::{AfterCompaction, InstructionResult, Phase, RunState, RunningCompaction};
use crate::run::status::RunError;

impl RunState {
    /// The phase that the compaction interrupts says what follows it.
    pub(super) fn compaction_started(
        &mut self,
        number: u32,
        strategy: &str,
        reason: CompactionReason,
        level: u32,
    ) {
        assert_eq!(number, self.counters.compactions + 1, "compactions are dense");
        self.counters.compactions = number;
        // One that fails is followed by one of another strategy. The same strategy begins anew after a restart.
        let begins_anew = matches!(&self.phase, Phase::Compacting(cut) if cut.strategy == strategy);
        if !begins_anew {
            self.context.compactions += 1;
        }
        self.context.due = None;
        let then = match &self.phase {
            Phase::Compacting(before) => before.then.clone(),
            before if reason == CompactionReason::Planned => AfterCompaction::Plan(Box::new(before.clone())),
            // A provider whose response is that its context is full was sent the call.
            Phase::ModelRunning(_) => AfterCompaction::Call { unsent: reason != CompactionReason::Overflow },
            _ => AfterCompaction::Call { unsent: false },
        };
        self.remember_settled_calls();
        let (strategy, since) = (strategy.to_owned(), self.now());
        self.phase = Phase::Compacting(RunningCompaction { number, strategy, reason, level, since, then });
    }

    /// The strategy that is tried next, or the end of the run, is another event.
    pub(super) fn compaction_failed(&mut self, error: &RunError, usage: Usage) {
        self.add_summary(usage);
        self.last_error = Some(error.clone());
    }

    /// After a planned compaction, the run is back in the phase that was interrupted.
    pub(super) fn compacted(&mut self, usage: Usage) {
        self.add_summary(usage);
        self.last_error = None;
        if let Phase::Compacting(RunningCompaction { then: AfterCompaction::Plan(before), .. }) = &self.phase
        {
            self.phase = Phase::clone(before);
            self.planning.result = Some(InstructionResult::Compacted);
        }
    }

    /// Adds what the model call for a summary has used. A strategy without a model uses nothing.
    fn add_summary(&mut self, usage: Usage) {
        self.counters.usage += usage;
        self.counters.calls.model_calls += u64::from(usage.output_tokens > 0);
    }
}
