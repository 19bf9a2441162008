//! Google's `generateContent`, of the Gemini API and of Vertex AI.
//!
//! Google recommends its newer Interactions API for new programs. This one is taken all the same: the journal here has the
//! conversation and sends all of it each time, which is how `generateContent` works; where signatures stand in it is
//! documented for every case; and Vertex AI and the servers of others speak it. Models that Google offers on Interactions
//! alone need another adapter.
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

use agentloop_core::delta::Delta;
use agentloop_core::model_traits::TraitOverrides;
use futures_util::stream::{self, BoxStream, StreamExt as _};

pub(in crate::model) use self::decode::GeminiDecoder;
use crate::model::options::{GeminiOptions, ProviderError, ProviderOptions};
use crate::model::request::history::ToolLists;
use crate::model::request::notices::Notices;
use crate::model::request::origin::{Caller, Origin, States, call_or_without_state};
use crate::model::transport::http::{Endpoint, Http, Vendor, exchange};
use crate::model::{Model, ModelError, ModelRequest};

/// Where the Gemini API is.
pub const GEMINI_BASE_URL: &str = "https://generativelanguage.googleapis.com/v1beta";

/// The version of the API where a base URL names none: the one that has everything.
const API_VERSION: &str = "v1beta";

/// A provider that speaks it.
#[derive(Debug)]
pub(in crate::model) struct GeminiModel(Arc<Provider>);

#[derive(Debug)]
struct Provider {
    name: Arc<str>,
    http: Http,
    endpoint: Endpoint,
    dialect: Dialect,
    tools: ToolLists,
}

/// What a request depends on besides itself.
#[derive(Debug, Default)]
struct Dialect {
    default_max_tokens: Option<u32>,
    traits: BTreeMap<String, TraitOverrides>,
    notices: Notices,
}

impl GeminiModel {
    pub(in crate::model) fn new(
        http: Http,
        provider: &ProviderOptions,
        _: &GeminiOptions,
    ) -> Result<Self, ProviderError> {
        let vendor = Vendor { base_url: GEMINI_BASE_URL, key_header: "x-goog-api-key" };
        let endpoint = Endpoint::of(provider, vendor, base_path)?;
        let dialect = Dialect {
            default_max_tokens: provider.max_output_tokens,
            traits: provider.traits.clone(),
            notices: Notices::default(),
        };
        let name = provider.name.as_str().into();
        Ok(Self(Arc::new(Provider { name, http, endpoint, dialect, tools: ToolLists::default() })))
    }
}

/// The path before that of a model, by the path of a base URL. Google's own libraries take a base without a version; with
/// one, or with a publisher of Vertex AI, it is whole.
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

/// Where a model's answers are streamed from. Names may bring the path that Google lists them with.
fn place(endpoint: &Endpoint, model: &str) -> Endpoint {
    let path = match model {
        listed if listed.starts_with("models/") || listed.starts_with("tunedModels/") => listed.to_owned(),
        published if published.starts_with("publishers/") => published.to_owned(),
        name => format!("models/{}", name.replace('/', "%2F")),
    };
    let path = format!("{path}:streamGenerateContent");
    let segments = path.split('/').map(|segment| segment.replace("%2F", "/")).collect::<Vec<_>>();
    endpoint.at(segments.iter().map(String::as_str), Some(("alt", "sse")))
}

/// A provider as the calls of one stream see it.
struct Shared(Arc<Provider>);

impl Caller for Shared {
    fn call(&self, request: &ModelRequest, states: States) -> BoxStream<'static, Result<Delta, ModelError>> {
        let Provider { http, endpoint, dialect, tools, .. } = &*self.0;
        let origin = self.origin(request);
        match request::body(request, dialect, tools, &origin, states) {
            Ok(body) => {
                let post = place(endpoint, &request.model).post(body);
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
        call_or_without_state(&Arc::new(Shared(Arc::clone(&self.0))), request)
    }
}
