//! Sums of tokens and cost.

use agentloop_client::v1::Usage;

/// The sum of the numbers that are shown: tokens and cost.
pub(crate) fn plus(sum: Usage, more: &Usage) -> Usage {
    Usage {
        input_tokens: sum.input_tokens.saturating_add(more.input_tokens),
        output_tokens: sum.output_tokens.saturating_add(more.output_tokens),
        cost_micros: sum.cost_micros.saturating_add(more.cost_micros),
        ..Usage::default()
    }
}
