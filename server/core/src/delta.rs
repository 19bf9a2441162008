//! What a model says while it speaks, in terms that no provider owns.

use serde::{Deserialize, Serialize};

use crate::message::{FinishReason, ProviderState, Usage};

/// One piece of a model's answer, in the order of arrival.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Delta {
    /// More of the answer's text.
    Text {
        /// To be appended.
        text: String,
    },
    /// The text so far is complete; more text is a part of its own. Providers of plain text say nothing of the kind.
    TextEnd {
        /// What the provider wants back with the text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<ProviderState>,
    },
    /// More of the reasoning's text.
    Reasoning {
        /// To be appended.
        text: String,
    },
    /// The reasoning so far is complete, and this is what its provider needs to see again.
    ReasoningEnd {
        /// The provider's signature, as recordings before `state` have it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
        /// Encrypted reasoning, as recordings before `state` have it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        redacted: Option<String>,
        /// What the provider wants back; `None` where it wants nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<ProviderState>,
    },
    /// A piece that only the provider understands, whole.
    Opaque(ProviderState),
    /// A tool call begins. `index` tells parallel calls apart.
    ToolCallStart {
        /// From 0, in the order of the model.
        index: u32,
        /// The provider's id; `None` where it sends none.
        provider_id: Option<String>,
        /// The tool's name.
        name: String,
    },
    /// More of a call's arguments.
    ToolCallArguments {
        /// The call.
        index: u32,
        /// JSON text, to be appended.
        fragment: String,
    },
    /// What the provider wants back with a call that has begun.
    ToolCallState {
        /// The call.
        index: u32,
        /// Replaces what was said before.
        state: ProviderState,
    },
    /// Tokens so far; each one replaces what came before.
    Usage(Usage),
    /// The model is done.
    Finish {
        /// Why the model stopped.
        reason: FinishReason,
    },
}

impl Delta {
    /// The end of a piece of reasoning, with what its provider wants back.
    #[must_use]
    pub fn reasoning_end(state: Option<ProviderState>) -> Self {
        Self::ReasoningEnd { signature: None, redacted: None, state }
    }

    /// Roughly the bytes of its texts.
    #[must_use]
    pub fn size(&self) -> usize {
        let len = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        match self {
            Self::Text { text } | Self::Reasoning { text } => text.len(),
            Self::ReasoningEnd { signature, redacted, state } => {
                len(signature) + len(redacted) + size_of(state.as_ref())
            }
            Self::TextEnd { state } => size_of(state.as_ref()),
            Self::ToolCallState { state, .. } | Self::Opaque(state) => state.size(),
            Self::ToolCallStart { provider_id, name, .. } => len(provider_id) + name.len(),
            Self::ToolCallArguments { fragment, .. } => fragment.len(),
            Self::Usage(_) | Self::Finish { .. } => 0,
        }
    }
}

fn size_of(state: Option<&ProviderState>) -> usize {
    state.map_or(0, ProviderState::size)
}
