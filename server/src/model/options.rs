//! Configuration of a provider, and the errors in it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use agentloop_core::context::prompt::PromptTemplates;
use agentloop_core::model::facts::ModelFacts;
use agentloop_core::model::traits::TraitOverrides;

use crate::model::recording::RecordingError;
use crate::secret::Secret;

/// Configuration of one provider.
#[derive(Debug, Clone)]
pub struct ProviderOptions {
    /// Name of the provider: the part of a model reference before the first `/`.
    pub name: String,
    /// Wire format, with the options that only this format has.
    pub kind: ProviderKind,
    /// Base URL, to which the path of the API is appended. OpenAI's ends in `/v1`. `None` is the vendor's own URL.
    pub base_url: Option<String>,
    /// API key; `None` for servers that need none.
    pub api_key: Option<Secret>,
    /// Header that carries the key, in `authorization` as a bearer token. `None` is the vendor's own header.
    pub key_header: Option<String>,
    /// Further headers of every request.
    pub headers: Vec<(String, Secret)>,
    /// Limit on the output tokens of requests that set none.
    pub max_output_tokens: Option<u32>,
    /// Configured facts about its models, by the provider's model names.
    pub models: BTreeMap<String, ModelFacts>,
    /// Corrections of the built-in table of model traits, by the provider's model names.
    pub traits: BTreeMap<String, TraitOverrides>,
    /// Templates for system prompts, for the provider and for single models.
    pub templates: PromptTemplates,
    /// File to which every call is recorded; `None` records nothing.
    pub record: Option<PathBuf>,
}

impl ProviderOptions {
    /// Creates options with this name and kind, and everything else at its default.
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

/// Wire format of a provider, with the options that only this format has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProviderKind {
    /// OpenAI's Chat Completions API.
    OpenAi(OpenAiOptions),
    /// OpenAI's Responses API.
    OpenAiResponses(ResponsesOptions),
    /// Anthropic's Messages API.
    Anthropic(AnthropicOptions),
    /// Google's `generateContent` API.
    Gemini(GeminiOptions),
    /// No network: responses come from a script.
    Scripted(ScriptSource),
    /// No network: responses come from a recording.
    Replay(PathBuf),
}

impl ProviderKind {
    /// Name of the kind in the configuration file.
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

/// Source of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptSource {
    /// Path of a TOML file.
    File(PathBuf),
    /// The script itself, as TOML text.
    Text(String),
}

/// A provider that cannot be used as it is configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("provider {name:?}: {cause}")]
pub struct InvalidProvider {
    /// Name of the provider in the configuration.
    pub name: String,
    /// Reason why it cannot be used.
    pub cause: ProviderError,
}

/// Reason why a provider cannot be used. Never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// The name is empty or has a `/` in it.
    #[error("a name must not be empty nor contain '/'")]
    Name,
    /// Two providers have this name.
    #[error("the name is used by two providers; rename one of them")]
    Duplicate,
    /// The base URL is not one that accepts requests.
    #[error("base_url: {0}")]
    BaseUrl(String),
    /// The name or value of this header has characters that HTTP does not allow.
    #[error("header {0:?} has characters that cannot be sent")]
    Header(String),
    /// The HTTP client cannot be built, for example without usable certificates.
    #[error("HTTP client: {0}")]
    Client(String),
    /// The script cannot be read or parsed.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// The recording cannot be replayed.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The file of the key `record` cannot be written, or holds something else.
    #[error("record: {0}")]
    Record(RecordingError),
}

/// Reason why a script cannot be played.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("script {name}: {message}")]
pub struct ScriptError {
    /// Path of the file, or the name given to the text.
    pub name: String,
    /// Reason, with line and column.
    pub message: String,
}

/// Options of a server that speaks the Messages API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnthropicOptions {
    /// Value of the `anthropic-version` header. `None` is the version that every server accepts.
    pub api_version: Option<String>,
    /// Beta features, sent in the `anthropic-beta` header.
    pub betas: Vec<String>,
    /// True to mark the prompt for the provider's prompt cache.
    pub prompt_cache: bool,
}

impl Default for AnthropicOptions {
    fn default() -> Self {
        Self { api_version: None, betas: Vec::new(), prompt_cache: true }
    }
}

/// Options of a server that speaks `generateContent`. There are none yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GeminiOptions {}

/// Options of a server that speaks Chat Completions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAiOptions {
    /// Name of the field that limits output tokens. `None` is `max_completion_tokens` for OpenAI itself, whose
    /// newer models accept no other, and `max_tokens` for all other servers.
    pub max_tokens_field: Option<String>,
    /// True to send the model's reasoning back as text, in the field in which it came, together with the tool
    /// calls that followed it. Some providers refuse a conversation without it, others refuse one with it.
    /// `None` decides by model name: true for DeepSeek, Kimi and GLM.
    pub send_reasoning: Option<bool>,
    /// True to request token counts. Some old servers refuse the request for them.
    pub include_usage: bool,
}

impl Default for OpenAiOptions {
    fn default() -> Self {
        Self { max_tokens_field: None, send_reasoning: None, include_usage: true }
    }
}

/// Options of a server that speaks the Responses API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponsesOptions {
    /// True to switch to Chat Completions if the server does not know the Responses API.
    pub or_chat: bool,
}
