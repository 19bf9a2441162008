//! Language models behind one trait: requests and answers in the core's own terms, vendors hidden.

pub mod estimate;
mod options;
mod provider;
mod registry;
mod request;
mod response;
mod tape;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod testing;
mod transport;

use std::sync::Arc;

use agentloop_core::agent::{ModelOptions, ModelTimeouts};
use agentloop_core::context::assemble::AssembleError;
use agentloop_core::delta::Delta;
use agentloop_core::message::SharedMessage;
use agentloop_core::model::ModelFacts;
use agentloop_core::time::Millis;
use agentloop_core::tool::ToolDeclaration;
use futures_util::stream::BoxStream;

pub use self::options::{
    AnthropicOptions, GeminiOptions, InvalidProvider, OpenAiOptions, ProviderError, ProviderKind,
    ProviderOptions, ResponsesOptions, ScriptSource,
};
pub use self::provider::anthropic::ANTHROPIC_BASE_URL;
pub use self::provider::gemini::GEMINI_BASE_URL;
pub use self::provider::openai::OPENAI_BASE_URL;
pub use self::provider::scripted::{Script, ScriptError, ScriptedModel};
pub use self::registry::ProviderRegistry;
pub use self::request::prefix::EncodedPrefix;
pub(crate) use self::request::unowned::{is_unowned, owned_by};
pub use self::tape::TapeError;
pub use self::transport::http::HttpOptions;

/// One call of a model.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// The provider's own name of the model.
    pub model: String,
    /// Put before the messages; empty means none.
    pub system_prompt: String,
    /// The conversation, oldest first. Every tool call in it is followed by its result.
    pub messages: Vec<SharedMessage>,
    /// What is written already of the messages, from the request before of the same conversation.
    pub encoded: EncodedPrefix,
    /// What the model may call, in the order to show it.
    pub tools: Arc<[Arc<ToolDeclaration>]>,
    /// How to answer.
    pub options: ModelOptions,
    /// How long to wait.
    pub timeouts: ModelTimeouts,
}

/// A language model. Implementations hold connections, not conversations.
pub trait Model: Send + Sync + 'static {
    /// Calls the model. The stream ends after [`Delta::Finish`], or with one error; dropping it cancels the call.
    /// Nothing is sent before the stream is first polled.
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>>;
}

/// Why a model call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct ModelError {
    /// What went wrong; decides what happens next.
    pub kind: ModelErrorKind,
    /// In the provider's words where it has any. Never holds a secret.
    pub message: String,
    /// HTTP status, where there was one.
    pub status: Option<u16>,
    /// How long the provider asks us to wait.
    pub retry_after: Option<Millis>,
}

impl ModelError {
    /// An error of no HTTP answer, whose provider asks for no wait.
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
        Self::new(ModelErrorKind::BadRequest, error.to_string())
    }
}

pub use agentloop_core::error::ModelErrorKind;

/// Finds the model that a run's `provider/model` names.
pub trait Models: Send + Sync + 'static {
    /// The model and its provider's own name for it.
    ///
    /// # Errors
    /// When no such provider is configured; the text says which are.
    fn resolve(&self, reference: &str) -> Result<(Arc<dyn Model>, String), UnknownModel>;

    /// What is known of the model that a `provider/model` names; nothing, where nobody said anything about it.
    fn facts(&self, reference: &str) -> ModelFacts {
        let _anything = reference;
        ModelFacts::default()
    }

    /// What the system prompts of the runs of this `provider/model` are put into, where the agent has no template of its
    /// own: see [`agentloop_core::context::prompt`].
    fn prompt_template(&self, reference: &str) -> Option<&str> {
        let _anything = reference;
        None
    }
}

/// A model reference that leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no provider serves model {reference:?}; configured: {configured}")]
pub struct UnknownModel {
    /// As given.
    pub reference: String,
    /// The names of the providers that there are.
    pub configured: String,
}
