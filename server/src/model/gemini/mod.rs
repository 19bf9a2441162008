//! Google's `generateContent`, of the Gemini API and of Vertex AI.

use agentloop_core::delta::Delta;
use futures_util::stream::{self, BoxStream, StreamExt as _};

use super::http::Http;
use super::registry::{ProviderError, ProviderOptions};
use super::{Model, ModelError, ModelRequest};

/// Where the Gemini API is.
pub const GEMINI_BASE_URL: &str = "https://generativelanguage.googleapis.com/v1beta";

/// How a server differs from the vendor's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GeminiOptions {}

/// A provider that speaks it.
#[derive(Debug)]
pub(super) struct GeminiModel {}

impl GeminiModel {
    pub(super) fn new(
        _http: Http,
        _provider: &ProviderOptions,
        _options: &GeminiOptions,
    ) -> Result<Self, ProviderError> {
        Ok(Self {})
    }
}

impl Model for GeminiModel {
    fn stream(&self, _request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        stream::iter([Err(ModelError::bad_request("not there yet"))]).boxed()
    }
}
