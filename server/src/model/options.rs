//! One configured provider: how it is described, and what may be wrong with the description.

use std::collections::BTreeMap;
use std::path::PathBuf;

use agentloop_core::context::prompt::PromptTemplates;
use agentloop_core::model::ModelFacts;
use agentloop_core::model_traits::TraitOverrides;

use crate::model::provider::scripted::ScriptError;
use crate::model::tape::TapeError;
use crate::secret::Secret;

/// One configured provider.
#[derive(Debug, Clone)]
pub struct ProviderOptions {
    /// What stands before the first `/` of a model reference.
    pub name: String,
    /// What it speaks.
    pub kind: ProviderKind,
    /// Where it is; absent means where the vendor is. The path of the API is appended, so OpenAI's ends in `/v1`.
    pub base_url: Option<String>,
    /// Absent for servers that ask for none.
    pub api_key: Option<Secret>,
    /// The header that the key is sent in, in `authorization` as a bearer token; absent means the vendor's.
    pub key_header: Option<String>,
    /// Sent with every request besides the key.
    pub headers: Vec<(String, Secret)>,
    /// The bound on an answer where the request has none.
    pub max_output_tokens: Option<u32>,
    /// What is known of its models, by the provider's own names for them.
    pub models: BTreeMap<String, ModelFacts>,
    /// What its models take, where the vendor's table is wrong or says nothing, by the same names.
    pub traits: BTreeMap<String, TraitOverrides>,
    /// What system prompts are put into.
    pub templates: PromptTemplates,
    /// The file that every call is recorded in.
    pub record: Option<PathBuf>,
}

impl ProviderOptions {
    /// With a name and kind, and nothing else.
    #[must_use]
    pub fn new(name: impl Into<String>, kind: ProviderKind) -> Self {
        Self {
            name: name.into(),
            kind,
            base_url: None,
            api_key: None,
            key_header: None,
            headers: Vec::new(),
            max_output_tokens: None,
            models: BTreeMap::new(),
            traits: BTreeMap::new(),
            templates: PromptTemplates::default(),
            record: None,
        }
    }
}

/// What a provider speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProviderKind {
    /// OpenAI's Chat Completions.
    OpenAi(OpenAiOptions),
    /// OpenAI's Responses.
    OpenAiResponses(ResponsesOptions),
    /// Anthropic's Messages.
    Anthropic(AnthropicOptions),
    /// Google's `generateContent`.
    Gemini(GeminiOptions),
    /// No provider, but a script that stands in for one.
    Scripted(ScriptSource),
    /// No provider, but a recording of one.
    Replay(PathBuf),
}

impl ProviderKind {
    /// As the configuration calls it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::OpenAi(_) => "openai",
            Self::OpenAiResponses(_) => "openai-responses",
            Self::Anthropic(_) => "anthropic",
            Self::Gemini(_) => "gemini",
            Self::Scripted(_) => "scripted",
            Self::Replay(_) => "replay",
        }
    }
}

/// Where a script is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptSource {
    /// A TOML file.
    File(PathBuf),
    /// The text itself.
    Text(String),
}

/// A provider that cannot be used as it is configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("provider {name:?}: {cause}")]
pub struct InvalidProvider {
    /// As configured.
    pub name: String,
    /// What is wrong.
    pub cause: ProviderError,
}

/// What is wrong with a provider. Never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// The name is empty or has a `/` in it.
    #[error("a name must not be empty nor contain '/'")]
    Name,
    /// Two providers have this name.
    #[error("configured twice")]
    Duplicate,
    /// The base URL cannot be posted to.
    #[error("base_url: {0}")]
    BaseUrl(String),
    /// This header's name or value cannot be sent.
    #[error("header {0:?} has characters that cannot be sent")]
    Header(String),
    /// The HTTP client cannot be built.
    #[error("HTTP client: {0}")]
    Client(String),
    /// The script cannot be played.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// The recording can be neither written nor replayed.
    #[error(transparent)]
    Tape(#[from] TapeError),
}

/// How a server or its models differ from each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnthropicOptions {
    /// The version of the API; absent means the one that every server knows.
    pub api_version: Option<String>,
    /// Features of the API that are not in its version: the `anthropic-beta` header.
    pub betas: Vec<String>,
    /// Whether the prompt is marked for the provider's cache.
    pub prompt_cache: bool,
}

impl Default for AnthropicOptions {
    fn default() -> Self {
        Self { api_version: None, betas: Vec::new(), prompt_cache: true }
    }
}

/// How a server differs from the vendor's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GeminiOptions {}

/// How a server differs from OpenAI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAiOptions {
    /// The name of the field that bounds the answer; absent means `max_completion_tokens` for OpenAI itself, whose
    /// newer models take no other, and `max_tokens` for everyone else.
    pub max_tokens_field: Option<String>,
    /// Whether the model's reasoning goes back as text, in the field that it came in, with the tool calls that it led
    /// to. Some providers refuse the conversation without it, others with it. Absent means by the model's name: yes for
    /// DeepSeek, Kimi and GLM.
    pub send_reasoning: Option<bool>,
    /// Whether token counts are asked for. Some old servers refuse the question.
    pub include_usage: bool,
}

impl Default for OpenAiOptions {
    fn default() -> Self {
        Self { max_tokens_field: None, send_reasoning: None, include_usage: true }
    }
}

/// How a server differs from the vendor's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponsesOptions {
    /// Whether a server that does not know Responses is asked in Chat Completions from then on.
    pub or_chat: bool,
}
