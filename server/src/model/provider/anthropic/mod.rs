//! The Messages API of Anthropic and compatible servers.

mod blocks;
mod decode;
mod event;
pub(in crate::model) mod legacy_signatures;
mod messages;
mod pause;
mod request;
mod state;
mod thinking;
mod traits;

use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::model::delta::Delta;
use agentloop_core::model::traits::TraitOverrides;
use futures_util::stream::{self, BoxStream, StreamExt as _};

pub(in crate::model) use self::decode::MessagesDecoder;
#[cfg(any(test, feature = "fuzzing"))]
pub(in crate::model) use self::event::MessagesEvent;
use self::request::CallContext;
use crate::model::options::{AnthropicOptions, ProviderError, ProviderOptions};
use crate::model::request::history::ToolListCache;
use crate::model::request::omissions::OmissionLog;
use crate::model::request::origin::{Adapter, Origin, StatePolicy, call_with_state_fallback};
use crate::model::transport::http::{Endpoint, Http, Vendor, exchange};
use crate::model::{Model, ModelError, ModelRequest};

/// Base URL of Anthropic's own API.
pub const ANTHROPIC_BASE_URL: &str = "https://api.anthropic.com";

const API_VERSION: &str = "2023-06-01";

/// A provider that speaks Messages.
#[derive(Debug)]
pub(in crate::model) struct AnthropicModel(Arc<Provider>);

#[derive(Debug)]
struct Provider {
    name: Arc<str>,
    http: Http,
    endpoint: Endpoint,
    dialect: ProviderDialect,
    tools: ToolListCache,
}

/// Options and model traits that a request depends on.
#[derive(Debug, Default)]
struct ProviderDialect {
    options: AnthropicOptions,
    default_max_tokens: Option<u32>,
    traits: BTreeMap<String, TraitOverrides>,
    omissions: OmissionLog,
}

impl AnthropicModel {
    pub(in crate::model) fn new(
        http: Http,
        provider: &ProviderOptions,
        options: &AnthropicOptions,
    ) -> Result<Self, ProviderError> {
        let version = options.api_version.as_deref().unwrap_or(API_VERSION);
        let vendor = Vendor { base_url: ANTHROPIC_BASE_URL, key_header: "x-api-key" };
        let mut endpoint =
            Endpoint::for_provider(provider, vendor, path)?.with_header("anthropic-version", version)?;
        if !options.betas.is_empty() {
            endpoint = endpoint.with_header("anthropic-beta", &options.betas.join(","))?;
        }
        let dialect = ProviderDialect {
            options: options.clone(),
            default_max_tokens: provider.max_output_tokens,
            traits: provider.traits.clone(),
            omissions: OmissionLog::default(),
        };
        let name = provider.name.as_str().into();
        Ok(Self(Arc::new(Provider { name, http, endpoint, dialect, tools: ToolListCache::default() })))
    }
}

/// Returns the path of requests for the path of a base URL. Anthropic's own libraries take a URL without a
/// version, others take one with a version, or the complete URL.
fn path(base: &str) -> String {
    match base {
        whole if whole.ends_with("/messages") => whole.to_owned(),
        versioned if versioned.ends_with("/v1") => format!("{versioned}/messages"),
        plain => format!("{plain}/v1/messages"),
    }
}

impl Provider {
    /// Sends one request. Its response may end with a pause.
    fn exchange(
        &self,
        request: &ModelRequest,
        call: &CallContext,
    ) -> BoxStream<'static, Result<Delta, ModelError>> {
        match request::body(request, &self.dialect, &self.tools, call) {
            Ok(written) => {
                let post = self.endpoint.post(written.body);
                let decoder = MessagesDecoder::new(call.origin.clone(), written.prefix);
                exchange(self.http.clone(), post, request.timeouts.clone(), decoder)
            }
            Err(error) => stream::iter([Err(error)]).boxed(),
        }
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
        pause::respond_across_pauses(Arc::clone(&self.0), request.clone(), self.origin(request), policy)
    }

    fn origin(&self, request: &ModelRequest) -> Origin {
        Origin::new(&self.0.name, &request.model)
    }
}

impl Model for AnthropicModel {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        call_with_state_fallback(&Arc::new(ProviderAdapter(Arc::clone(&self.0))), request)
    }
}
