//! Builds the model providers from their configuration.

use std::collections::BTreeMap;

use crate::config::{Backend, HttpProvider, ProviderConfig};
use crate::model::{
    AnthropicOptions, GeminiOptions, HttpOptions, InvalidProvider, OpenAiOptions, ProviderKind,
    ProviderOptions, ProviderRegistry, ResponsesOptions, ScriptSource,
};

/// A registry of all configured providers.
pub(super) fn registry(
    configured: BTreeMap<String, ProviderConfig>,
) -> Result<ProviderRegistry, InvalidProvider> {
    let providers = configured.into_iter().map(|(name, provider)| options(name, provider));
    ProviderRegistry::new(HttpOptions::default(), providers)
}

fn options(name: String, provider: ProviderConfig) -> ProviderOptions {
    let ProviderConfig { backend, record, models, traits, templates } = provider;
    ProviderOptions { record, models, traits, templates, ..of_backend(name, backend) }
}

fn of_backend(name: String, backend: Backend) -> ProviderOptions {
    match backend {
        Backend::OpenAi(openai) => {
            let kind = OpenAiOptions {
                max_tokens_field: openai.max_tokens_field,
                send_reasoning: openai.send_reasoning,
                include_usage: openai.include_usage,
            };
            over_http(name, ProviderKind::OpenAi(kind), openai.http)
        }
        Backend::OpenAiResponses(responses) => {
            let kind = ResponsesOptions { or_chat: responses.or_chat };
            over_http(name, ProviderKind::OpenAiResponses(kind), responses.http)
        }
        Backend::Anthropic(anthropic) => {
            let kind = AnthropicOptions {
                api_version: anthropic.api_version,
                betas: anthropic.betas,
                prompt_cache: anthropic.prompt_cache,
            };
            over_http(name, ProviderKind::Anthropic(kind), anthropic.http)
        }
        Backend::Gemini(http) => over_http(name, ProviderKind::Gemini(GeminiOptions::default()), http),
        Backend::Scripted { file } => {
            ProviderOptions::new(name, ProviderKind::Scripted(ScriptSource::File(file)))
        }
        Backend::Replay { file } => ProviderOptions::new(name, ProviderKind::Replay(file)),
    }
}

fn over_http(name: String, kind: ProviderKind, http: HttpProvider) -> ProviderOptions {
    ProviderOptions {
        base_url: http.base_url,
        api_key: http.api_key,
        key_header: http.key_header,
        headers: http.headers,
        max_output_tokens: http.max_output_tokens,
        ..ProviderOptions::new(name, kind)
    }
}
