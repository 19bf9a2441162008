//! Google's `generateContent`, of the Gemini API and of Vertex AI.
//!
//! Google recommends its newer Interactions API for new programs. This module uses `generateContent` for three
//! reasons. The journal has the conversation and sends all of it each time, which is how `generateContent`
//! works. The position of signatures in it is documented for every case. And Vertex AI and other vendors'
//! servers speak it. Models that Google offers only over Interactions need another module.
//!
//! Sources: <https://ai.google.dev/api/generate-content>, <https://ai.google.dev/gemini-api/docs/thought-signatures>.

mod contents;
mod decode;
mod request;
mod schema;
mod state;
mod traits;

use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::model::delta::Delta;
use agentloop_core::model::traits::TraitOverrides;
use futures_util::stream::{self, BoxStream, StreamExt as _};

pub(in crate::model) use self::decode::GeminiDecoder;
use crate::model::options::{GeminiOptions, ProviderError, ProviderOptions};
use crate::model::request::history::ToolListCache;
use crate::model::request::omissions::OmissionLog;
use crate::model::request::origin::{Adapter, Origin, StatePolicy, call_with_state_fallback};
use crate::model::transport::http::{Endpoint, Http, Vendor, exchange};
use crate::model::{Model, ModelError, ModelRequest};

/// Base URL of the Gemini API.
pub const GEMINI_BASE_URL: &str = "https://generativelanguage.googleapis.com/v1beta";

/// API version for base URLs without one. It is the version with all features.
const API_VERSION: &str = "v1beta";

/// A provider that speaks `generateContent`.
#[derive(Debug)]
pub(in crate::model) struct GeminiModel(Arc<Provider>);

#[derive(Debug)]
struct Provider {
    name: Arc<str>,
    http: Http,
    endpoint: Endpoint,
    dialect: ProviderDialect,
    tools: ToolListCache,
}

/// Properties of the provider's models that a request depends on.
#[derive(Debug, Default)]
struct ProviderDialect {
    default_max_tokens: Option<u32>,
    traits: BTreeMap<String, TraitOverrides>,
    omissions: OmissionLog,
}

impl GeminiModel {
    pub(in crate::model) fn new(
        http: Http,
        provider: &ProviderOptions,
        _: &GeminiOptions,
    ) -> Result<Self, ProviderError> {
        let vendor = Vendor { base_url: GEMINI_BASE_URL, key_header: "x-goog-api-key" };
        let endpoint = Endpoint::for_provider(provider, vendor, base_path)?;
        let dialect = ProviderDialect {
            default_max_tokens: provider.max_output_tokens,
            traits: provider.traits.clone(),
            omissions: OmissionLog::default(),
        };
        let name = provider.name.as_str().into();
        Ok(Self(Arc::new(Provider { name, http, endpoint, dialect, tools: ToolListCache::default() })))
    }
}

/// Returns the path prefix of all models, for the path of a base URL. Google's own libraries take a URL without
/// a version. A URL with a version, or with a publisher of Vertex AI, is complete.
fn base_path(base: &str) -> String {
    let base = base.trim_end_matches("/models");
    let last = base.rsplit('/').next().unwrap_or_default();
    let is_version =
        last.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if is_version || base.contains("/publishers/") || base.contains("/locations/") {
        base.to_owned()
    } else {
        format!("{base}/{API_VERSION}")
    }
}

/// Returns the endpoint that streams a model's responses. Model names may include the path under which Google lists them.
fn stream_endpoint(endpoint: &Endpoint, model: &str) -> Endpoint {
    let path = match model {
        listed if listed.starts_with("models/") || listed.starts_with("tunedModels/") => listed.to_owned(),
        published if published.starts_with("publishers/") => published.to_owned(),
        name => format!("models/{}", name.replace('/', "%2F")),
    };
    let path = format!("{path}:streamGenerateContent");
    let segments = path.split('/').map(|segment| segment.replace("%2F", "/")).collect::<Vec<_>>();
    endpoint.with_path(segments.iter().map(String::as_str), Some(("alt", "sse")))
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
                let post = stream_endpoint(endpoint, &request.model).post(body);
                exchange(http.clone(), post, request.timeouts.clone(), GeminiDecoder::new(origin))
            }
            Err(error) => stream::iter([Err(error)]).boxed(),
        }
    }

    fn origin(&self, request: &ModelRequest) -> Origin {
        Origin::new(&self.0.name, &request.model)
    }
}

impl Model for GeminiModel {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        call_with_state_fallback(&Arc::new(ProviderAdapter(Arc::clone(&self.0))), request)
    }
}
