//! Assigns a provider to signed reasoning in old journals, which did not record one. It belongs to the
//! provider of its run.

use std::sync::Arc;

use agentloop_core::message::{Message, Part, Reasoning, SharedMessage};

use super::state::legacy_thought_state;
use crate::model::request::origin::Origin;

/// True if the message has signed reasoning without a recorded provider.
#[must_use]
pub(crate) fn has_legacy_signature(message: &Message) -> bool {
    message.parts.iter().any(|part| matches!(part, Part::Reasoning(reasoning) if is_signed(reasoning)))
}

fn is_signed(reasoning: &Reasoning) -> bool {
    reasoning.state.is_none() && (reasoning.signature.is_some() || reasoning.redacted.is_some())
}

/// Returns the message with its signed reasoning assigned to the provider of `model`, a `provider/model`
/// reference. A reference without `/` leaves the message unchanged.
#[must_use]
pub(crate) fn with_signature_owner(message: &SharedMessage, model: &str) -> SharedMessage {
    let Some((provider, model)) = model.split_once('/') else { return message.clone() };
    let origin = Origin::new(&provider.into(), model);
    let own = |part: &Part| match part {
        Part::Reasoning(reasoning) if is_signed(reasoning) => {
            let Reasoning { text, signature, redacted, state: _ } = reasoning.clone();
            let state = legacy_thought_state(&origin, signature, redacted);
            Part::Reasoning(Reasoning { text, signature: None, redacted: None, state })
        }
        other => other.clone(),
    };
    Arc::new(Message { role: message.role, parts: message.parts.iter().map(own).collect() })
}
