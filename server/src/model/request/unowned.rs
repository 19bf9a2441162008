//! Signed thoughts in journals from before state named its provider. They belong to the provider of their run.

use std::sync::Arc;

use agentloop_core::message::{Message, Part, Reasoning, SharedMessage};

use crate::model::provider::anthropic::old_state;
use crate::model::request::origin::Origin;

/// Whether a message has a signed thought that names no provider.
#[must_use]
pub(crate) fn is_unowned(message: &Message) -> bool {
    message.parts.iter().any(|part| matches!(part, Part::Reasoning(reasoning) if is_signed(reasoning)))
}

fn is_signed(reasoning: &Reasoning) -> bool {
    reasoning.state.is_none() && (reasoning.signature.is_some() || reasoning.redacted.is_some())
}

/// The message with such thoughts given to the provider of `model`, a reference of the form `provider/model`. Of any
/// other form, the message stays as it is.
#[must_use]
pub(crate) fn owned_by(message: &SharedMessage, model: &str) -> SharedMessage {
    let Some((provider, model)) = model.split_once('/') else { return message.clone() };
    let origin = Origin::new(&provider.into(), model);
    let own = |part: &Part| match part {
        Part::Reasoning(reasoning) if is_signed(reasoning) => {
            let Reasoning { text, signature, redacted, state: _ } = reasoning.clone();
            let state = old_state(&origin, signature, redacted);
            Part::Reasoning(Reasoning { text, signature: None, redacted: None, state })
        }
        other => other.clone(),
    };
    Arc::new(Message { role: message.role, parts: message.parts.iter().map(own).collect() })
}
