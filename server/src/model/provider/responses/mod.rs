//! OpenAI's Responses API, used without state at the provider: each request has the whole conversation, with
//! the encrypted reasoning of earlier responses.
//!
//! Source: <https://platform.openai.com/docs/api-reference/responses>.

mod decode;
mod event;
mod items;
mod request;
mod state;
mod traits;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use agentloop_core::model::delta::Delta;
use agentloop_core::model::traits::TraitOverrides;
use futures_util::stream::{self, BoxStream, StreamExt as _};

pub(in crate::model) use self::decode::ResponsesDecoder;
use self::request::CallContext;
use crate::model::options::{OpenAiOptions, ProviderError, ProviderKind, ProviderOptions, ResponsesOptions};
use crate::model::provider::openai::{OPENAI_BASE_URL, OpenAiModel};
use crate::model::request::history::ToolListCache;
use crate::model::request::omissions::OmissionLog;
use crate::model::request::origin::{Adapter, Origin, StatePolicy, call_with_state_fallback, with_fallback};
use crate::model::transport::http::{self, Endpoint, Http, Vendor, exchange};
use crate::model::{Model, ModelError, ModelErrorKind, ModelRequest};

/// A provider that speaks the Responses API.
#[derive(Debug)]
pub(in crate::model) struct ResponsesModel(Arc<Provider>);

#[derive(Debug)]
struct Provider {
    name: Arc<str>,
    http: Http,
    endpoint: Endpoint,
    dialect: ProviderDialect,
    tools: ToolListCache,
    /// True once the server refused to show or encrypt reasoning, which some accounts and models may not do.
    without_reasoning: AtomicBool,
    chat: Option<Chat>,
}

/// Properties of the server and its models that a request depends on.
#[derive(Debug, Default)]
struct ProviderDialect {
    /// True for OpenAI's own servers.
    official: bool,
    default_max_tokens: Option<u32>,
    traits: BTreeMap<String, TraitOverrides>,
    omissions: OmissionLog,
}

/// The same provider over Chat Completions, created when the server turns out not to know the Responses API.
#[derive(Debug)]
struct Chat {
    provider: ProviderOptions,
    model: OnceLock<Option<OpenAiModel>>,
}

impl ResponsesModel {
    pub(in crate::model) fn new(
        http: Http,
        provider: &ProviderOptions,
        options: &ResponsesOptions,
    ) -> Result<Self, ProviderError> {
        let vendor = Vendor { base_url: OPENAI_BASE_URL, key_header: "authorization" };
        let endpoint =
            Endpoint::for_provider(provider, vendor, |base| http::with_suffix(base, "/responses"))?;
        let official = endpoint.is_openai();
        let dialect = ProviderDialect {
            official,
            default_max_tokens: provider.max_output_tokens,
            traits: provider.traits.clone(),
            omissions: OmissionLog::default(),
        };
        // OpenAI's own servers know the Responses API, whatever error they return.
        let chat = (options.or_chat && !official).then(|| {
            let kind = ProviderKind::OpenAi(OpenAiOptions::default());
            Chat { provider: ProviderOptions { kind, ..provider.clone() }, model: OnceLock::new() }
        });
        Ok(Self(Arc::new(Provider {
            name: provider.name.as_str().into(),
            http,
            endpoint,
            dialect,
            tools: ToolListCache::default(),
            without_reasoning: AtomicBool::new(false),
            chat,
        })))
    }
}

impl Provider {
    fn exchange(
        &self,
        request: &ModelRequest,
        call: &CallContext,
    ) -> BoxStream<'static, Result<Delta, ModelError>> {
        match request::body(request, &self.dialect, &self.tools, call) {
            Ok(body) => {
                let decoder = ResponsesDecoder::new(call.origin.clone());
                exchange(self.http.clone(), self.endpoint.post(body), request.timeouts.clone(), decoder)
            }
            Err(error) => stream::iter([Err(error)]).boxed(),
        }
    }

    /// True if this error refuses reasoning summaries or encrypted content. Later calls do not request them.
    fn refuses_reasoning(&self, error: &ModelError) -> bool {
        let message = error.message.to_ascii_lowercase();
        let names = |words: &[&str]| words.iter().all(|word| message.contains(word));
        let refused = names(&["reasoning.summary"])
            || names(&["reasoning summar"])
            || names(&["encrypted content is not supported"])
            || names(&["reasoning.encrypted_content", "not supported"]);
        let refused = error.kind == ModelErrorKind::BadRequest && refused;
        // Calls that began together are all refused. One line about it is enough.
        if refused && !self.without_reasoning.swap(true, Ordering::AcqRel) {
            tracing::warn!(
                provider = &*self.name,
                error = error.message,
                "the provider does not show or encrypt reasoning for this account or model; later requests leave it out"
            );
        }
        refused
    }

    /// Returns the Chat Completions model if this error says that the server does not know the Responses API.
    fn chat_fallback(&self, error: &ModelError) -> Option<&OpenAiModel> {
        let chat = self.chat.as_ref()?;
        // The URL follows, which may contain any word.
        let said = error.message.split(" (POST ").next().unwrap_or_default().to_ascii_lowercase();
        let unknown = matches!(error.status, Some(404 | 405 | 501)) && !said.contains("model");
        if !unknown {
            return None;
        }
        chat.open(&self.http)
    }

    fn active_chat(&self) -> Option<&OpenAiModel> {
        self.chat.as_ref()?.model.get()?.as_ref()
    }
}

impl Chat {
    fn open(&self, http: &Http) -> Option<&OpenAiModel> {
        let open = || {
            tracing::warn!(
                provider = self.provider.name,
                "the server does not know the Responses API; Chat Completions is used from now on"
            );
            OpenAiModel::new(http.clone(), &self.provider, &OpenAiOptions::default()).ok()
        };
        self.model.get_or_init(open).as_ref()
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
        let provider = Arc::clone(&self.0);
        let without_reasoning = provider.without_reasoning.load(Ordering::Acquire);
        let call = CallContext { origin: self.origin(request), policy, without_reasoning };
        let response = provider.exchange(request, &call);
        with_fallback(response, request.clone(), move |error, request| {
            let is_to_repeat = !call.without_reasoning && provider.refuses_reasoning(error);
            let again = CallContext { without_reasoning: true, ..call };
            is_to_repeat.then(|| provider.exchange(request, &again))
        })
    }

    fn origin(&self, request: &ModelRequest) -> Origin {
        Origin::new(&self.0.name, &request.model)
    }
}

impl Model for ResponsesModel {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        if let Some(chat) = self.0.active_chat() {
            return chat.stream(request);
        }
        let shared = Arc::new(ProviderAdapter(Arc::clone(&self.0)));
        let response = call_with_state_fallback(&shared, request.clone());
        if self.0.chat.is_none() {
            return response;
        }
        let provider = Arc::clone(&self.0);
        with_fallback(response, request, move |error, request| {
            provider.chat_fallback(error).map(|chat| chat.stream(request.clone()))
        })
    }
}
