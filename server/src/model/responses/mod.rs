//! OpenAI's Responses API, and of the servers that speak it too.

use agentloop_core::delta::Delta;
use futures_util::stream::{self, BoxStream, StreamExt as _};

use super::http::Http;
use super::registry::{ProviderError, ProviderOptions};
use super::{Model, ModelError, ModelRequest};

/// How a server differs from the vendor's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponsesOptions {
    /// Whether a server that does not know Responses is asked in Chat Completions from then on.
    pub or_chat: bool,
}

/// A provider that speaks it.
#[derive(Debug)]
pub(super) struct ResponsesModel {}

impl ResponsesModel {
    pub(super) fn new(
        _http: Http,
        _provider: &ProviderOptions,
        _options: &ResponsesOptions,
    ) -> Result<Self, ProviderError> {
        Ok(Self {})
    }
}

impl Model for ResponsesModel {
    fn stream(&self, _request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        stream::iter([Err(ModelError::bad_request("not there yet"))]).boxed()
    }
}
