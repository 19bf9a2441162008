//! Chat Completions, as OpenAI, vLLM, llama.cpp, Ollama, LiteLLM, OpenRouter, DeepSeek and many more speak it.

mod calls;
mod chunk;
mod decode;
mod messages;
mod progress;
mod request;

use agentloop_core::delta::Delta;
use futures_util::stream::{self, BoxStream, StreamExt as _};

#[cfg(any(test, feature = "fuzzing"))]
pub(super) use self::chunk::Said as ChatSaid;
pub(super) use self::decode::ChatDecoder;
use super::http::{self, Endpoint, Http, exchange};
use super::registry::{ProviderError, ProviderOptions};
use super::wire::ToolLists;
use super::{Model, ModelError, ModelRequest};

/// Where OpenAI itself is.
pub const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";

/// How a server differs from OpenAI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAiOptions {
    /// The name of the field that bounds the answer; absent means `max_completion_tokens` for OpenAI itself, whose
    /// newer models take no other, and `max_tokens` for everyone else.
    pub max_tokens_field: Option<String>,
    /// Whether reasoning goes back as `reasoning_content` with the tool calls that it led to. Some providers refuse
    /// the conversation without it (DeepSeek), others with it.
    pub send_reasoning: bool,
    /// Whether token counts are asked for. Some old servers refuse the question.
    pub include_usage: bool,
}

impl Default for OpenAiOptions {
    fn default() -> Self {
        Self { max_tokens_field: None, send_reasoning: false, include_usage: true }
    }
}

/// A provider that speaks Chat Completions.
#[derive(Debug)]
pub(super) struct OpenAiModel {
    http: Http,
    endpoint: Endpoint,
    dialect: Dialect,
    tools: ToolLists,
}

/// The options with their defaults filled in.
#[derive(Debug, Clone)]
struct Dialect {
    options: OpenAiOptions,
    /// Whether this is OpenAI itself, which checks more than its followers do.
    official: bool,
    default_max_tokens: Option<u32>,
}

impl Dialect {
    fn max_tokens_field(&self) -> &str {
        let default = if self.official { "max_completion_tokens" } else { "max_tokens" };
        self.options.max_tokens_field.as_deref().unwrap_or(default)
    }
}

impl OpenAiModel {
    pub(super) fn new(
        http: Http,
        provider: &ProviderOptions,
        options: &OpenAiOptions,
    ) -> Result<Self, ProviderError> {
        let headers = http::headers(provider, "authorization");
        let base_url = provider.base_url.as_deref().unwrap_or(OPENAI_BASE_URL);
        let path = |base: &str| http::appended(base, "/chat/completions");
        let endpoint = Endpoint::new(base_url, path, &headers)?.hiding(provider.api_key.as_ref());
        let dialect = Dialect {
            options: options.clone(),
            official: endpoint.host() == "api.openai.com",
            default_max_tokens: provider.max_output_tokens,
        };
        Ok(Self { http, endpoint, dialect, tools: ToolLists::default() })
    }
}

impl Model for OpenAiModel {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        match request::body(&request, &self.dialect, &self.tools) {
            Ok(body) => {
                let post = self.endpoint.post(body);
                exchange(self.http.clone(), post, request.timeouts, ChatDecoder::default())
            }
            Err(error) => stream::iter([Err(error)]).boxed(),
        }
    }
}
