//! What a model says while it speaks, in terms that no provider owns.

use serde::{Deserialize, Serialize};

use crate::message::{FinishReason, Usage};

/// One piece of a model's answer, in the order of arrival.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Delta {
    /// More of the answer's text.
    Text {
        /// To be appended.
        text: String,
    },
    /// More of the reasoning's text.
    Reasoning {
        /// To be appended.
        text: String,
    },
    /// The reasoning so far is complete, and this is what its provider needs to see again.
    ReasoningEnd {
        /// Opaque; `None` where the provider signs nothing.
        signature: Option<String>,
        /// Encrypted reasoning, opaque.
        redacted: Option<String>,
    },
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
    /// Tokens so far; each one replaces what came before.
    Usage(Usage),
    /// The model is done.
    Finish {
        /// Why.
        reason: FinishReason,
    },
}

impl Delta {
    /// Roughly the bytes of its texts.
    #[must_use]
    pub fn size(&self) -> usize {
        let len = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        match self {
            Self::Text { text } | Self::Reasoning { text } => text.len(),
            Self::ReasoningEnd { signature, redacted } => len(signature) + len(redacted),
            Self::ToolCallStart { provider_id, name, .. } => len(provider_id) + name.len(),
            Self::ToolCallArguments { fragment, .. } => fragment.len(),
            Self::Usage(_) | Self::Finish { .. } => 0,
        }
    }
}
