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
use super::http::{Endpoint, Http, exchange};
use super::registry::{ProviderError, ProviderOptions};
use super::wire::ToolLists;
use super::{Model, ModelError, ModelErrorKind, ModelRequest};
use crate::secret::Secret;

/// Where Anthropic itself is.
pub const ANTHROPIC_BASE_URL: &str = "https://api.anthropic.com/v1";

const API_VERSION: &str = "2023-06-01";

/// How a server or its models differ from each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnthropicOptions {
    /// How models are asked to think.
    pub thinking: ThinkingStyle,
    /// Whether the prompt is marked for the provider's cache.
    pub prompt_cache: bool,
}

impl Default for AnthropicOptions {
    fn default() -> Self {
        Self { thinking: ThinkingStyle::Auto, prompt_cache: true }
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
        let mut headers = vec![("anthropic-version".to_owned(), Secret::new(API_VERSION))];
        if let Some(key) = provider.api_key.as_ref().filter(|key| !key.is_empty()) {
            headers.push(("x-api-key".to_owned(), key.clone()));
        }
        headers.extend(provider.headers.iter().cloned());
        let base_url = provider.base_url.as_deref().unwrap_or(ANTHROPIC_BASE_URL);
        let endpoint = Endpoint::new(base_url, "/messages", &headers)?;
        let dialect = Dialect { options: options.clone(), default_max_tokens: provider.max_output_tokens };
        Ok(Self(Arc::new(Provider { http, endpoint, dialect, tools: ToolLists::default() })))
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
