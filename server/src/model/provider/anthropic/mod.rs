//! The Messages API of Anthropic, and of the servers that speak it too.

mod blocks;
mod decode;
mod event;
mod messages;
mod pause;
mod request;
mod state;
mod thinking;
mod traits;

use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::delta::Delta;
use agentloop_core::model_traits::TraitOverrides;
use futures_util::stream::{self, BoxStream, StreamExt as _};

pub(in crate::model) use self::decode::MessagesDecoder;
#[cfg(any(test, feature = "fuzzing"))]
pub(in crate::model) use self::event::Said as MessagesSaid;
use self::request::Call;
pub(in crate::model) use self::state::old_state;
use crate::model::options::{AnthropicOptions, ProviderError, ProviderOptions};
use crate::model::request::history::ToolLists;
use crate::model::request::notices::Notices;
use crate::model::request::origin::{Caller, Origin, States, call_or_without_state};
use crate::model::transport::http::{Endpoint, Http, Vendor, exchange};
use crate::model::{Model, ModelError, ModelRequest};

/// Where Anthropic itself is.
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
    dialect: Dialect,
    tools: ToolLists,
}

/// The options with what else a request depends on.
#[derive(Debug, Default)]
struct Dialect {
    options: AnthropicOptions,
    default_max_tokens: Option<u32>,
    traits: BTreeMap<String, TraitOverrides>,
    notices: Notices,
}

impl AnthropicModel {
    pub(in crate::model) fn new(
        http: Http,
        provider: &ProviderOptions,
        options: &AnthropicOptions,
    ) -> Result<Self, ProviderError> {
        let version = options.api_version.as_deref().unwrap_or(API_VERSION);
        let vendor = Vendor { base_url: ANTHROPIC_BASE_URL, key_header: "x-api-key" };
        let mut endpoint = Endpoint::of(provider, vendor, path)?.with("anthropic-version", version)?;
        if !options.betas.is_empty() {
            endpoint = endpoint.with("anthropic-beta", &options.betas.join(","))?;
        }
        let dialect = Dialect {
            options: options.clone(),
            default_max_tokens: provider.max_output_tokens,
            traits: provider.traits.clone(),
            notices: Notices::default(),
        };
        let name = provider.name.as_str().into();
        Ok(Self(Arc::new(Provider { name, http, endpoint, dialect, tools: ToolLists::default() })))
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
    /// One exchange. Its answer may end where the provider pauses.
    fn exchange(&self, request: &ModelRequest, call: &Call) -> BoxStream<'static, Result<Delta, ModelError>> {
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

/// A provider as the calls of one stream see it.
struct Shared(Arc<Provider>);

impl Caller for Shared {
    fn call(&self, request: &ModelRequest, states: States) -> BoxStream<'static, Result<Delta, ModelError>> {
        pause::whole_answer(Arc::clone(&self.0), request.clone(), self.origin(request), states)
    }

    fn origin(&self, request: &ModelRequest) -> Origin {
        Origin::new(&self.0.name, &request.model)
    }
}

impl Model for AnthropicModel {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        call_or_without_state(&Arc::new(Shared(Arc::clone(&self.0))), request)
    }
}
