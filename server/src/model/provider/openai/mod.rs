//! Chat Completions, as OpenAI, vLLM, llama.cpp, Ollama, LiteLLM, OpenRouter, DeepSeek and many more speak it.

mod calls;
mod chunk;
mod decode;
mod messages;
mod progress;
mod request;
mod state;

use std::sync::Arc;

use agentloop_core::delta::Delta;
use futures_util::stream::{self, BoxStream, StreamExt as _};

#[cfg(any(test, feature = "fuzzing"))]
pub(in crate::model) use self::chunk::Said as ChatSaid;
pub(in crate::model) use self::decode::ChatDecoder;
use self::state::SendReasoning;
use crate::model::options::{OpenAiOptions, ProviderError, ProviderOptions};
use crate::model::request::history::ToolLists;
use crate::model::request::origin::{Caller, Origin, States, call_or_without_state};
use crate::model::transport::http::{self, Endpoint, Http, Vendor, exchange};
use crate::model::{Model, ModelError, ModelRequest};

/// Where OpenAI itself is.
pub const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";

/// A provider that speaks Chat Completions.
#[derive(Debug)]
pub(in crate::model) struct OpenAiModel(Arc<Provider>);

#[derive(Debug)]
struct Provider {
    name: Arc<str>,
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
    /// The namespace of Google's signatures, where this is Google or may be.
    signatures: Option<&'static str>,
    default_max_tokens: Option<u32>,
}

impl Dialect {
    fn max_tokens_field(&self) -> &str {
        let default = if self.official { "max_completion_tokens" } else { "max_tokens" };
        self.options.max_tokens_field.as_deref().unwrap_or(default)
    }

    /// Which messages get their reasoning back as text.
    fn send_reasoning(&self, model: &str) -> SendReasoning {
        let model = model.to_ascii_lowercase();
        let is_of = |names: &[&str]| names.iter().any(|name| model.contains(name));
        match self.options.send_reasoning {
            Some(false) => SendReasoning::Never,
            // With tools in the conversation, it refuses any turn without the field.
            None | Some(true) if is_of(&["deepseek"]) => SendReasoning::Always,
            Some(true) => SendReasoning::WithCalls,
            None if is_of(&["kimi", "glm-"]) => SendReasoning::WithCalls,
            None => SendReasoning::Never,
        }
    }

    /// The namespace of the signatures that this model demands with tool calls: of Gemini, from 3 on.
    fn signs(&self, model: &str) -> Option<&'static str> {
        let (_, name) = model.rsplit_once('/').unwrap_or(("", model));
        let version = name.strip_prefix("gemini-")?;
        self.signatures.filter(|_| !version.starts_with(['1', '2']))
    }
}

/// Where Google's signatures stand at this endpoint. OpenRouter has a way of its own for all vendors.
fn signatures(endpoint: &Endpoint) -> Option<&'static str> {
    let (host, shown) = (endpoint.host(), endpoint.shown());
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
        let endpoint = Endpoint::of(provider, vendor, |base| http::appended(base, "/chat/completions"))?;
        let official = endpoint.is_openai();
        if official {
            tracing::warn!(
                provider = provider.name,
                "OpenAI's newer models take tools in Responses alone; kind = \"openai-responses\" speaks it"
            );
        }
        let dialect = Dialect {
            options: options.clone(),
            official,
            signatures: signatures(&endpoint),
            default_max_tokens: provider.max_output_tokens,
        };
        let name = provider.name.as_str().into();
        Ok(Self(Arc::new(Provider { name, http, endpoint, dialect, tools: ToolLists::default() })))
    }
}

/// A provider as the calls of one stream see it.
struct Shared(Arc<Provider>);

impl Caller for Shared {
    fn call(&self, request: &ModelRequest, states: States) -> BoxStream<'static, Result<Delta, ModelError>> {
        let Provider { http, endpoint, dialect, tools, .. } = &*self.0;
        let origin = self.origin(request);
        match request::body(request, dialect, tools, &origin, states) {
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
        let answer = call_or_without_state(&Arc::new(Shared(Arc::clone(&self.0))), request);
        answer.map(|item| item.map_err(advised)).boxed()
    }
}

/// An error that sends the caller to Responses says how to get there.
fn advised(error: ModelError) -> ModelError {
    if !error.message.contains("/v1/responses") {
        return error;
    }
    let message = format!("{}; set kind = \"openai-responses\" for this provider", error.message);
    ModelError { message, ..error }
}
