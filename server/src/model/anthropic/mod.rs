//! The Messages API of Anthropic, and of the servers that speak it too.

mod decode;
mod event;
mod messages;
mod request;
mod thinking;

use std::sync::Arc;

use agentloop_core::delta::Delta;
use futures_util::stream::{self, BoxStream, StreamExt as _};

pub(super) use self::decode::MessagesDecoder;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) use self::event::Said as MessagesSaid;
use self::messages::Thoughts;
pub use self::thinking::ThinkingStyle;
use super::http::{self, Endpoint, Http, exchange};
use super::registry::{ProviderError, ProviderOptions};
use super::wire::ToolLists;
use super::{Model, ModelError, ModelErrorKind, ModelRequest};
use crate::secret::Secret;

/// Where Anthropic itself is.
pub const ANTHROPIC_BASE_URL: &str = "https://api.anthropic.com";

const API_VERSION: &str = "2023-06-01";

/// How a server or its models differ from each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnthropicOptions {
    /// How models are asked to think.
    pub thinking: ThinkingStyle,
    /// The version of the API; absent means the one that every server knows.
    pub api_version: Option<String>,
    /// Features of the API that are not in its version: the `anthropic-beta` header.
    pub betas: Vec<String>,
    /// Whether the prompt is marked for the provider's cache.
    pub prompt_cache: bool,
}

impl Default for AnthropicOptions {
    fn default() -> Self {
        Self { thinking: ThinkingStyle::Auto, api_version: None, betas: Vec::new(), prompt_cache: true }
    }
}

/// A provider that speaks Messages.
#[derive(Debug)]
pub(super) struct AnthropicModel(Arc<Provider>);

#[derive(Debug)]
struct Provider {
    http: Http,
    endpoint: Endpoint,
    dialect: Dialect,
    tools: ToolLists,
}

/// The options with what else a request depends on.
#[derive(Debug, Clone)]
struct Dialect {
    options: AnthropicOptions,
    default_max_tokens: Option<u32>,
}

impl AnthropicModel {
    pub(super) fn new(
        http: Http,
        provider: &ProviderOptions,
        options: &AnthropicOptions,
    ) -> Result<Self, ProviderError> {
        let version = options.api_version.as_deref().unwrap_or(API_VERSION);
        let mut headers = vec![("anthropic-version".to_owned(), Secret::new(version))];
        if !options.betas.is_empty() {
            headers.push(("anthropic-beta".to_owned(), Secret::new(options.betas.join(","))));
        }
        headers.extend(http::headers(provider, "x-api-key"));
        let base_url = provider.base_url.as_deref().unwrap_or(ANTHROPIC_BASE_URL);
        let endpoint = Endpoint::new(base_url, path, &headers)?.hiding(provider.api_key.as_ref());
        let dialect = Dialect { options: options.clone(), default_max_tokens: provider.max_output_tokens };
        Ok(Self(Arc::new(Provider { http, endpoint, dialect, tools: ToolLists::default() })))
    }
}

/// Where requests go, by the path of a base URL. The vendor's own libraries take one without a version, others take
/// one with it, or the whole.
fn path(base: &str) -> String {
    match base {
        whole if whole.ends_with("/messages") => whole.to_owned(),
        versioned if versioned.ends_with("/v1") => format!("{versioned}/messages"),
        plain => format!("{plain}/v1/messages"),
    }
}

impl Provider {
    fn call(
        &self,
        request: &ModelRequest,
        thoughts: Thoughts,
    ) -> BoxStream<'static, Result<Delta, ModelError>> {
        match request::body(request, &self.dialect, &self.tools, thoughts) {
            Ok(body) => {
                let post = self.endpoint.post(body);
                exchange(self.http.clone(), post, request.timeouts.clone(), MessagesDecoder::default())
            }
            Err(error) => stream::iter([Err(error)]).boxed(),
        }
    }
}

impl Model for AnthropicModel {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        let answer = self.0.call(&request, Thoughts::Keep);
        let provider = Arc::clone(&self.0);
        stream::once(async move { provider.or_without_thoughts(request, answer).await }).flatten().boxed()
    }
}

impl Provider {
    /// Signed thoughts are bound to the model that had them, with some models to the whole conversation. A session
    /// whose model was changed, or that was forked or compacted, may hold some that are refused, or lack some that are
    /// demanded. Asked once more without any, the model loses only what it thought; the session could else never go on.
    async fn or_without_thoughts(
        self: Arc<Self>,
        request: ModelRequest,
        mut answer: BoxStream<'static, Result<Delta, ModelError>>,
    ) -> BoxStream<'static, Result<Delta, ModelError>> {
        match answer.next().await {
            Some(Err(error)) if refuses_thoughts(&error) => self.call(&request, Thoughts::Drop),
            first => stream::iter(first).chain(answer).boxed(),
        }
    }
}

fn refuses_thoughts(error: &ModelError) -> bool {
    let message = error.message.to_ascii_lowercase();
    error.kind == ModelErrorKind::BadRequest
        && message.contains("thinking")
        && ["block", "signature", "messages."].iter().any(|word| message.contains(word))
}
