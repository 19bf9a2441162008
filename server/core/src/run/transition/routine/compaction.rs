//! Begins compactions, each stronger than the last one, unless that was cut.

use crate::context::compact::TRIM_LEVELS;
use crate::entry::CompactionReason;
use crate::run::event::Event;
use crate::run::state::RunningCompaction;
use crate::run::transition::builder::TransitionBuilder;

/// The strategy that needs no model and cannot fail.
pub(in crate::run::transition) const TRIM: &str = "trim";

/// True if a stronger compaction than the last one exists.
pub(in crate::run::transition) fn may_compact_again(builder: &TransitionBuilder<'_>) -> bool {
    builder.state().compactions_since_message() <= TRIM_LEVELS
}

/// Compacts a context that is too large for the model call: first by the run's strategy, then by trimming, each time
/// more strongly.
pub(in crate::run::transition) fn begin_stronger(
    builder: &mut TransitionBuilder<'_>,
    reason: CompactionReason,
    tokens: u64,
) {
    let strategy = (builder.state().compactions_since_message() > 0).then(|| TRIM.to_owned());
    begin(builder, strategy, reason, tokens);
}

/// Begins a compaction by this strategy, or by the run's. `tokens` is the size before; 0 if it is unknown.
pub(in crate::run::transition) fn begin(
    builder: &mut TransitionBuilder<'_>,
    strategy: Option<String>,
    reason: CompactionReason,
    tokens: u64,
) {
    let state = builder.state();
    builder.emit(Event::CompactionStarted {
        number: state.compactions() + 1,
        strategy: strategy.unwrap_or_else(|| state.spec().context.strategy.clone()),
        reason,
        level: state.compactions_since_message(),
        tokens,
    });
}

/// Begins a compaction anew that the end of its server has cut, as strong as it was. It has not failed, so the last error is still
/// the provider's.
pub(in crate::run::transition) fn begin_anew(builder: &mut TransitionBuilder<'_>, cut: RunningCompaction) {
    let RunningCompaction { number, strategy, reason, level, .. } = cut;
    builder.emit(Event::CompactionStarted { number: number + 1, strategy, reason, level, tokens: 0 });
}
