//! Chat Completions, the API of OpenAI, vLLM, llama.cpp, Ollama, LiteLLM, OpenRouter, DeepSeek and many other servers.

mod arguments;
mod calls;
mod chunk;
mod decode;
mod messages;
mod request;
mod state;

use std::sync::Arc;

use agentloop_core::model::delta::Delta;
use futures_util::stream::{self, BoxStream, StreamExt as _};

#[cfg(any(test, feature = "fuzzing"))]
pub(in crate::model) use self::chunk::ChatChunk;
pub(in crate::model) use self::decode::ChatDecoder;
use self::state::SendReasoning;
use crate::model::options::{OpenAiOptions, ProviderError, ProviderOptions};
use crate::model::request::history::{CallIds, ToolListCache};
use crate::model::request::origin::{Adapter, Origin, StatePolicy, call_with_state_fallback};
use crate::model::transport::http::{self, Endpoint, Http, Vendor, exchange};
use crate::model::{Model, ModelError, ModelRequest};

/// Base URL of OpenAI's own API.
pub const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";

/// Maximum length of a tool call id for OpenAI. Other servers accept longer ids, and some store state in them.
const OPENAI_ID_BYTES_MAX: usize = 40;

/// A provider that speaks Chat Completions.
#[derive(Debug)]
pub(in crate::model) struct OpenAiModel(Arc<Provider>);

#[derive(Debug)]
struct Provider {
    name: Arc<str>,
    http: Http,
    endpoint: Endpoint,
    dialect: ProviderDialect,
    tools: ToolListCache,
}

/// Differences of one server from the protocol: the options, and what follows from the endpoint.
#[derive(Debug, Clone)]
struct ProviderDialect {
    options: OpenAiOptions,
    /// True for OpenAI's own servers, which check requests more strictly than other servers.
    official: bool,
    /// Namespace of Google's signatures at this endpoint; `None` if it cannot be Google's.
    signatures: Option<&'static str>,
    default_max_tokens: Option<u32>,
}

impl ProviderDialect {
    fn max_tokens_field(&self) -> &str {
        let default = if self.official { "max_completion_tokens" } else { "max_tokens" };
        self.options.max_tokens_field.as_deref().unwrap_or(default)
    }

    /// The ids of tool calls that the server accepts.
    fn call_ids(&self) -> CallIds {
        if self.official { CallIds::plain(OPENAI_ID_BYTES_MAX) } else { CallIds::any() }
    }

    /// Decides which messages get their reasoning back as text.
    fn send_reasoning(&self, model: &str) -> SendReasoning {
        let model = model.to_ascii_lowercase();
        let is_of = |names: &[&str]| names.iter().any(|name| model.contains(name));
        match self.options.send_reasoning {
            Some(false) => SendReasoning::Never,
            // With tools in the conversation, DeepSeek refuses every turn without the field.
            None | Some(true) if is_of(&["deepseek"]) => SendReasoning::Always,
            Some(true) => SendReasoning::WithCalls,
            None if is_of(&["kimi", "glm-"]) => SendReasoning::WithCalls,
            None => SendReasoning::Never,
        }
    }

    /// Namespace of the signatures that this model requires with tool calls: Gemini from version 3 on.
    fn signs(&self, model: &str) -> Option<&'static str> {
        let (_, name) = model.rsplit_once('/').unwrap_or(("", model));
        let version = name.strip_prefix("gemini-")?;
        self.signatures.filter(|_| !version.starts_with(['1', '2']))
    }
}

/// Returns the namespace of Google's signatures at this endpoint. OpenRouter has its own field for all vendors.
fn signatures(endpoint: &Endpoint) -> Option<&'static str> {
    let (host, shown) = (endpoint.host(), endpoint.display_url());
    match () {
        () if host.ends_with("openrouter.ai") => None,
        () if shown.contains("/endpoints/openapi") || host.contains("aiplatform") => Some("vertex"),
        () => Some("google"),
    }
}

impl OpenAiModel {
    pub(in crate::model) fn new(
        http: Http,
        provider: &ProviderOptions,
        options: &OpenAiOptions,
    ) -> Result<Self, ProviderError> {
        let vendor = Vendor { base_url: OPENAI_BASE_URL, key_header: "authorization" };
        let endpoint =
            Endpoint::for_provider(provider, vendor, |base| http::with_suffix(base, "/chat/completions"))?;
        let official = endpoint.is_openai();
        if official {
            tracing::warn!(
                provider = provider.name,
                "OpenAI's newer models accept tools only in the Responses API; set kind = \"openai-responses\" to use it"
            );
        }
        let dialect = ProviderDialect {
            options: options.clone(),
            official,
            signatures: signatures(&endpoint),
            default_max_tokens: provider.max_output_tokens,
        };
        let name = provider.name.as_str().into();
        Ok(Self(Arc::new(Provider { name, http, endpoint, dialect, tools: ToolListCache::default() })))
    }
}

/// Sends the calls of one stream.
struct ProviderAdapter(Arc<Provider>);

impl Adapter for ProviderAdapter {
    fn call(
        &self,
        request: &ModelRequest,
        policy: StatePolicy,
    ) -> BoxStream<'static, Result<Delta, ModelError>> {
        let Provider { http, endpoint, dialect, tools, .. } = &*self.0;
        let origin = self.origin(request);
        match request::body(request, dialect, tools, &origin, policy) {
            Ok(body) => {
                let decoder = ChatDecoder::new(origin);
                exchange(http.clone(), endpoint.post(body), request.timeouts.clone(), decoder)
            }
            Err(error) => stream::iter([Err(error)]).boxed(),
        }
    }

    fn origin(&self, request: &ModelRequest) -> Origin {
        Origin::new(&self.0.name, &request.model)
    }
}

impl Model for OpenAiModel {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        let response = call_with_state_fallback(&Arc::new(ProviderAdapter(Arc::clone(&self.0))), request);
        response.map(|item| item.map_err(advised)).boxed()
    }
}

/// Adds to an error that names the Responses API how to configure it.
fn advised(error: ModelError) -> ModelError {
    if !error.message.contains("/v1/responses") {
        return error;
    }
    let message = format!("{}; set kind = \"openai-responses\" for this provider", error.message);
    ModelError { message, ..error }
}
