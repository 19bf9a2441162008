//! Deltas: the pieces of a model's response as they arrive, in a form common to all providers.

use serde::{Deserialize, Serialize};

use crate::message::{FinishReason, ProviderState, Usage};

/// One piece of a model's response. Pieces come in the order of arrival.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Delta {
    /// More text of the response.
    Text {
        /// Text to append; may be cut anywhere between two characters.
        text: String,
    },
    /// The current text is complete: more text begins a new part. Providers that only send plain text never send this.
    TextEnd {
        /// State that the provider wants back with the text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<ProviderState>,
    },
    /// More text of the model's reasoning.
    Reasoning {
        /// Text to append; may be cut anywhere between two characters.
        text: String,
    },
    /// The current reasoning is complete.
    ReasoningEnd {
        /// The provider's signature. Only in recordings that are older than `state`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
        /// Encrypted reasoning. Only in recordings that are older than `state`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        redacted: Option<String>,
        /// State that the provider wants back with the reasoning; `None` if it wants none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<ProviderState>,
    },
    /// A complete part that only the provider understands.
    Opaque(ProviderState),
    /// A tool call begins. `index` tells parallel calls apart.
    ToolCallStart {
        /// The provider's index of the call in this response.
        index: u32,
        /// The provider's id of the call; `None` if it sends none.
        provider_id: Option<String>,
        /// The tool's name as the model wrote it.
        name: String,
    },
    /// More of a call's arguments.
    ToolCallArguments {
        /// Index of the call, as in its start.
        index: u32,
        /// JSON text to append.
        fragment: String,
    },
    /// State that the provider wants back with a call that has begun.
    ToolCallState {
        /// Index of the call, as in its start.
        index: u32,
        /// The state. It replaces an earlier one.
        state: ProviderState,
    },
    /// Tokens used so far. Each report replaces the one before.
    Usage(Usage),
    /// The response is complete.
    Finish {
        /// The reason, as the provider gives it.
        reason: FinishReason,
    },
}

impl Delta {
    /// The end of reasoning, with the state that the provider wants back.
    #[must_use]
    pub fn reasoning_end(state: Option<ProviderState>) -> Self {
        Self::ReasoningEnd { signature: None, redacted: None, state }
    }

    /// Size of its texts in bytes.
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
