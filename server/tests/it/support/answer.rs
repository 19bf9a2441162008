//! Responses of a model that are text alone.

use agentloop_core::message::FinishReason;
use agentloop_core::model::delta::Delta;

/// The whole response of a model that answers with this text.
pub(crate) fn answer(text: impl Into<String>) -> [Delta; 2] {
    [Delta::Text { text: text.into() }, Delta::Finish { reason: FinishReason::Stop }]
}
