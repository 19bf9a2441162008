//! Language models behind one trait. Requests and responses are in the core's own types; each provider's
//! wire format is private.

pub mod estimate;
mod options;
mod provider;
mod recording;
mod registry;
mod request;
mod response;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod testing;
mod transport;

use std::sync::Arc;

use agentloop_core::agent::{ModelOptions, ModelTimeouts};
use agentloop_core::context::assemble::AssembleError;
use agentloop_core::message::SharedMessage;
use agentloop_core::model::delta::Delta;
use agentloop_core::model::facts::ModelFacts;
use agentloop_core::time::Millis;
use agentloop_core::tool::ToolDeclaration;
use futures_util::stream::BoxStream;

pub use self::options::{
    AnthropicOptions, GeminiOptions, InvalidProvider, OpenAiOptions, ProviderError, ProviderKind,
    ProviderOptions, ResponsesOptions, ScriptError, ScriptSource,
};
pub use self::provider::anthropic::ANTHROPIC_BASE_URL;
pub(crate) use self::provider::anthropic::legacy_signatures::{has_legacy_signature, with_signature_owner};
pub use self::provider::gemini::GEMINI_BASE_URL;
pub use self::provider::openai::OPENAI_BASE_URL;
pub use self::provider::scripted::{Script, ScriptedModel};
pub use self::recording::RecordingError;
pub use self::registry::ProviderRegistry;
pub use self::request::prefix::{EncodedPool, EncodedPrefix};
pub use self::transport::http::HttpOptions;

/// One request to a language model, in the core's own terms.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// Model name as the provider spells it, without the `provider/` prefix.
    pub model: String,
    /// System prompt, sent before the messages. Empty means none.
    pub system_prompt: String,
    /// The conversation, oldest first. Every tool call in it is followed by its result.
    pub messages: Vec<SharedMessage>,
    /// Cache of these messages in the provider's wire format, carried over from the session's previous request.
    pub encoded: EncodedPrefix,
    /// Tools offered to the model, in this order.
    pub tools: Arc<[Arc<ToolDeclaration>]>,
    /// Sampling, reasoning, tool choice and output options.
    pub options: ModelOptions,
    /// Bounds on connecting, the first token, silence between events, and the whole call.
    pub timeouts: ModelTimeouts,
}

/// A language model. Implementations hold connections, not conversations.
pub trait Model: Send + Sync + 'static {
    /// Calls the model. The stream ends after [`Delta::Finish`], or with one error. Dropping the stream cancels
    /// the call. Nothing is sent before the stream is first polled.
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>>;
}

/// The failure of a model call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct ModelError {
    /// Class of the failure. It decides between retry, compaction and giving up.
    pub kind: ModelErrorKind,
    /// Reason for people, in the provider's words where it gave any. Never holds a secret.
    pub message: String,
    /// HTTP status of the response; `None` if there was no response or the error came inside a stream.
    pub status: Option<u16>,
    /// Wait that the provider requests before the next attempt.
    pub retry_after: Option<Millis>,
}

impl ModelError {
    /// Creates an error without HTTP status and without a requested wait.
    #[must_use]
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), status: None, retry_after: None }
    }
}

impl From<AssembleError> for ModelError {
    fn from(error: AssembleError) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}

impl From<UnknownModel> for ModelError {
    fn from(error: UnknownModel) -> Self {
        Self::new(ModelErrorKind::NotConfigured, error.to_string())
    }
}

pub use agentloop_core::model::error::ModelErrorKind;

/// Finds the model that a `provider/model` reference names.
pub trait Models: Send + Sync + 'static {
    /// Returns the model, and the name that its provider knows it by.
    ///
    /// # Errors
    /// If no such provider is configured. The error lists the configured ones.
    fn resolve(&self, reference: &str) -> Result<(Arc<dyn Model>, String), UnknownModel>;

    /// The configured providers, sorted by name. Empty where they are not known: then [`Models::resolve`] alone tells.
    fn providers(&self) -> Vec<ProviderModels> {
        Vec::new()
    }

    /// Configured facts about the model that a `provider/model` reference names. Empty if nothing is configured for it.
    fn facts(&self, reference: &str) -> ModelFacts {
        let _anything = reference;
        ModelFacts::default()
    }

    /// Template for the system prompts of runs with this `provider/model`, used if the agent has no template of
    /// its own: see [`agentloop_core::context::prompt`].
    fn prompt_template(&self, reference: &str) -> Option<&str> {
        let _anything = reference;
        None
    }
}

/// A configured provider, for people who choose a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderModels {
    /// Its name, the part of a reference before the first `/`.
    pub name: String,
    /// The models that its configuration names, sorted, as `provider/model`. It may serve others.
    pub models: Vec<String>,
}

/// A model reference whose provider is not configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no provider serves model {reference:?}; configured: {configured}")]
pub struct UnknownModel {
    /// The reference as the caller gave it.
    pub reference: String,
    /// Names of the configured providers, separated by commas.
    pub configured: String,
}
