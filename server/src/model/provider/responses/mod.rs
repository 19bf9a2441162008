//! OpenAI's Responses, without state on the provider's side: each request has the whole conversation, with the
//! reasoning that the provider encrypted for us.
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

use agentloop_core::delta::Delta;
use agentloop_core::model_traits::TraitOverrides;
use futures_util::stream::{self, BoxStream, StreamExt as _};

pub(in crate::model) use self::decode::ResponsesDecoder;
use self::request::Call;
use crate::model::options::{OpenAiOptions, ProviderError, ProviderKind, ProviderOptions, ResponsesOptions};
use crate::model::provider::openai::{OPENAI_BASE_URL, OpenAiModel};
use crate::model::request::history::ToolLists;
use crate::model::request::notices::Notices;
use crate::model::request::origin::{Caller, Origin, States, call_or_without_state, or_instead};
use crate::model::transport::http::{self, Endpoint, Http, Vendor, exchange};
use crate::model::{Model, ModelError, ModelErrorKind, ModelRequest};

/// A provider that speaks Responses.
#[derive(Debug)]
pub(in crate::model) struct ResponsesModel(Arc<Provider>);

#[derive(Debug)]
struct Provider {
    name: Arc<str>,
    http: Http,
    endpoint: Endpoint,
    dialect: Dialect,
    tools: ToolLists,
    /// Whether the server refused to show or to encrypt reasoning: some accounts and models may not.
    plain: AtomicBool,
    chat: Option<Chat>,
}

/// What a request depends on besides itself.
#[derive(Debug, Default)]
struct Dialect {
    /// Whether it is OpenAI's own server.
    official: bool,
    default_max_tokens: Option<u32>,
    traits: BTreeMap<String, TraitOverrides>,
    notices: Notices,
}

/// The same provider in Chat Completions, once it turned out to know nothing else.
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
        let endpoint = Endpoint::of(provider, vendor, |base| http::appended(base, "/responses"))?;
        let official = endpoint.is_openai();
        let dialect = Dialect {
            official,
            default_max_tokens: provider.max_output_tokens,
            traits: provider.traits.clone(),
            notices: Notices::default(),
        };
        // OpenAI itself knows it, whatever it says.
        let chat = (options.or_chat && !official).then(|| {
            let kind = ProviderKind::OpenAi(OpenAiOptions::default());
            Chat { provider: ProviderOptions { kind, ..provider.clone() }, model: OnceLock::new() }
        });
        Ok(Self(Arc::new(Provider {
            name: provider.name.as_str().into(),
            http,
            endpoint,
            dialect,
            tools: ToolLists::default(),
            plain: AtomicBool::new(false),
            chat,
        })))
    }
}

impl Provider {
    fn exchange(&self, request: &ModelRequest, call: &Call) -> BoxStream<'static, Result<Delta, ModelError>> {
        match request::body(request, &self.dialect, &self.tools, call) {
            Ok(body) => {
                let decoder = ResponsesDecoder::new(call.origin.clone());
                exchange(self.http.clone(), self.endpoint.post(body), request.timeouts.clone(), decoder)
            }
            Err(error) => stream::iter([Err(error)]).boxed(),
        }
    }

    /// The same call without what the server refuses to do with reasoning, where that is why it failed.
    fn plainly(&self, error: &ModelError) -> bool {
        let message = error.message.to_ascii_lowercase();
        let names = |words: &[&str]| words.iter().all(|word| message.contains(word));
        let refused = names(&["reasoning.summary"])
            || names(&["reasoning summar"])
            || names(&["encrypted content is not supported"])
            || names(&["reasoning.encrypted_content", "not supported"]);
        let is_news =
            error.kind == ModelErrorKind::BadRequest && refused && !self.plain.swap(true, Ordering::AcqRel);
        if is_news {
            tracing::warn!(
                provider = &*self.name,
                error = error.message,
                "the provider does not show or encrypt reasoning for this account or model; it is not asked to any more"
            );
        }
        is_news
    }

    /// The model to ask in Chat Completions, where this error says that the server does not know Responses.
    fn chat_for(&self, error: &ModelError) -> Option<&OpenAiModel> {
        let chat = self.chat.as_ref()?;
        // What follows is the URL, where anything may stand.
        let said = error.message.split(" (POST ").next().unwrap_or_default().to_ascii_lowercase();
        let unknown = matches!(error.status, Some(404 | 405 | 501)) && !said.contains("model");
        if !unknown {
            return None;
        }
        chat.open(&self.http)
    }

    fn known_chat(&self) -> Option<&OpenAiModel> {
        self.chat.as_ref()?.model.get()?.as_ref()
    }
}

impl Chat {
    fn open(&self, http: &Http) -> Option<&OpenAiModel> {
        let open = || {
            tracing::warn!(
                provider = self.provider.name,
                "the server does not know Responses; it is asked in Chat Completions from now on"
            );
            OpenAiModel::new(http.clone(), &self.provider, &OpenAiOptions::default()).ok()
        };
        self.model.get_or_init(open).as_ref()
    }
}

/// A provider as the calls of one stream see it.
struct Shared(Arc<Provider>);

impl Caller for Shared {
    fn call(&self, request: &ModelRequest, states: States) -> BoxStream<'static, Result<Delta, ModelError>> {
        let provider = Arc::clone(&self.0);
        let plain = provider.plain.load(Ordering::Acquire);
        let call = Call { origin: self.origin(request), states, plain };
        let answer = provider.exchange(request, &call);
        let request = request.clone();
        or_instead(answer, move |error| {
            let again = Call { plain: true, ..call };
            provider.plainly(error).then(|| provider.exchange(&request, &again))
        })
    }

    fn origin(&self, request: &ModelRequest) -> Origin {
        Origin::new(&self.0.name, &request.model)
    }
}

impl Model for ResponsesModel {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        if let Some(chat) = self.0.known_chat() {
            return chat.stream(request);
        }
        let shared = Arc::new(Shared(Arc::clone(&self.0)));
        let answer = call_or_without_state(&shared, request.clone());
        if self.0.chat.is_none() {
            return answer;
        }
        let provider = Arc::clone(&self.0);
        or_instead(answer, move |error| provider.chat_for(error).map(|chat| chat.stream(request)))
    }
}
