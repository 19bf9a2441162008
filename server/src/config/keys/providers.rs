//! `[providers.NAME]`: the servers of models: their kind, address and API key.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use agentloop_core::context::prompt::PromptTemplates;
use agentloop_core::model::facts::ModelFacts;
use agentloop_core::model::traits::TraitOverrides;

use super::{models, prompts};
use crate::config::environment::Environment;
use crate::config::section::Section;
use crate::secret::Secret;

/// Largest key file. It is longer than any key; a larger file is probably the wrong one.
const KEY_FILE_BYTES_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 64;

/// Headers that carry secrets. The configuration file must not set them.
const SECRET_HEADERS: [&str; 6] =
    ["authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"];
/// Headers that belong to the connection or to the body, in lower case. Another value would break every request.
const RESERVED_HEADERS: [&str; 9] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A configured provider of models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderConfig {
    /// The kind of provider, with its own settings.
    pub backend: Backend,
    /// The file to record its calls in; `None` to record nothing.
    pub record: Option<PathBuf>,
    /// Sizes and prices of its models, by the provider's names for them.
    pub models: BTreeMap<String, ModelFacts>,
    /// Corrections to the built-in table of what its models accept, by the same names.
    pub traits: BTreeMap<String, TraitOverrides>,
    /// The prompt templates of the provider and of its models.
    pub templates: PromptTemplates,
}

impl From<Backend> for ProviderConfig {
    /// A provider with this backend and no other settings.
    fn from(backend: Backend) -> Self {
        Self {
            backend,
            record: None,
            models: BTreeMap::new(),
            traits: BTreeMap::new(),
            templates: PromptTemplates::default(),
        }
    }
}

impl ProviderConfig {
    /// The keys and the values of headers that it sends.
    pub(in crate::config) fn secrets(&self) -> Vec<Secret> {
        let http = match &self.backend {
            Backend::OpenAi(OpenAiConfig { http, .. })
            | Backend::OpenAiResponses(ResponsesConfig { http, .. })
            | Backend::Anthropic(AnthropicConfig { http, .. })
            | Backend::Gemini(http) => http,
            Backend::Scripted { .. } | Backend::Replay { .. } => return Vec::new(),
        };
        http.api_key.iter().chain(http.headers.iter().map(|(_, value)| value)).cloned().collect()
    }
}

/// The API that a provider uses, or the file that stands in for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backend {
    /// OpenAI's Chat Completions, and servers compatible with them.
    OpenAi(OpenAiConfig),
    /// OpenAI's Responses, and servers compatible with them.
    OpenAiResponses(ResponsesConfig),
    /// Anthropic's Messages API.
    Anthropic(AnthropicConfig),
    /// Google's `generateContent`, of the Gemini API and Vertex AI.
    Gemini(HttpProvider),
    /// Scripted responses from a file, for demonstrations and tests.
    Scripted {
        /// The script, in TOML.
        file: PathBuf,
    },
    /// Responses from a recording of another provider's calls.
    Replay {
        /// The recording, one JSON object per line.
        file: PathBuf,
    },
}

/// Settings that every provider over HTTP has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpProvider {
    /// The URL before the path of each request; `None` for the vendor's own.
    pub base_url: Option<String>,
    /// The API key; `None` for servers that need none.
    pub api_key: Option<Secret>,
    /// The header that carries the key, as a bearer token in `authorization`; `None` for the vendor's own.
    pub key_header: Option<String>,
    /// Names and values of headers sent with every request. A value may be a secret: nobody knows what a header means to a server.
    pub headers: Vec<(String, Secret)>,
    /// Limit on the tokens of a response, for runs that set none.
    pub max_output_tokens: Option<u32>,
}

/// A provider of Chat Completions, with its differences from OpenAI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAiConfig {
    /// Address, key and headers.
    pub http: HttpProvider,
    /// True if the model gets its reasoning back as text; `None` decides by the model's name.
    pub send_reasoning: Option<bool>,
    /// True if requests want token counts.
    pub include_usage: bool,
    /// The request field that limits the response; `None` decides by `base_url`.
    pub max_tokens_field: Option<String>,
}

impl OpenAiConfig {
    /// A provider with the defaults of all other settings.
    #[must_use]
    pub fn new(http: HttpProvider) -> Self {
        Self { http, send_reasoning: None, include_usage: true, max_tokens_field: None }
    }
}

/// A provider of OpenAI's Responses API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponsesConfig {
    /// Address, key and headers.
    pub http: HttpProvider,
    /// True if Chat Completions are used once the server turns out not to know Responses. Only for a provider that was
    /// made from its key in the environment.
    pub or_chat: bool,
}

/// A provider of Anthropic's Messages API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnthropicConfig {
    /// Address, key and headers.
    pub http: HttpProvider,
    /// The version of the API; `None` for 2023-06-01.
    pub api_version: Option<String>,
    /// Names of beta features to turn on.
    pub betas: Vec<String>,
    /// True if requests mark the prompt for the provider's cache.
    pub prompt_cache: bool,
}

impl AnthropicConfig {
    /// A provider with the defaults of all other settings.
    #[must_use]
    pub fn new(http: HttpProvider) -> Self {
        Self { http, api_version: None, betas: Vec::new(), prompt_cache: true }
    }
}

/// The values of the key `kind`. Each selects the settings that [`Backend`] has.
#[derive(Debug, Clone, Copy)]
enum ProviderKindKey {
    OpenAi,
    OpenAiResponses,
    Anthropic,
    Gemini,
    Scripted,
    Replay,
}

pub(in crate::config) fn provider(name: &str, section: &mut Section<'_, '_>) -> Option<ProviderConfig> {
    if let Err(message) = provider_name(name) {
        section.problem(&[], message);
    }
    let kinds = [
        ("openai-responses", ProviderKindKey::OpenAiResponses),
        ("openai", ProviderKindKey::OpenAi),
        ("anthropic", ProviderKindKey::Anthropic),
        ("gemini", ProviderKindKey::Gemini),
        ("scripted", ProviderKindKey::Scripted),
        ("replay", ProviderKindKey::Replay),
    ];
    let kind = section.get_choice("kind", None, &kinds);
    if kind.is_none() && !section.is_set("kind") {
        let (last, others) = kinds.split_last().expect("there are kinds");
        let others: Vec<String> = others.iter().map(|(kind, _)| format!("\"{kind}\"")).collect();
        section.problem(&["kind"], format!("expected kind = {} or \"{}\"", others.join(", "), last.0));
    }
    let Some(kind) = kind else {
        section.give_up();
        return None;
    };
    // Read these even if the rest is invalid, so that they are not reported as unknown keys.
    let record = section.get_path("record", None);
    let mut templates = PromptTemplates { provider: prompts::template(section), models: BTreeMap::new() };
    let mut traits = BTreeMap::new();
    let models = section.each_named("models", |name, section| {
        if name.trim().is_empty() {
            section.problem(&[], "expected the name of a model, such as models.\"gpt-5\"".to_owned());
        }
        let own = models::traits(section);
        traits.extend((own != TraitOverrides::default()).then(|| (name.to_owned(), own)));
        let facts = models::facts(section);
        templates.models.extend(prompts::template(section).map(|template| (name.to_owned(), template)));
        Some(facts)
    });
    let backend = match kind {
        ProviderKindKey::OpenAi => Backend::OpenAi(openai(section)),
        ProviderKindKey::OpenAiResponses => {
            Backend::OpenAiResponses(ResponsesConfig { http: http(section), or_chat: false })
        }
        ProviderKindKey::Anthropic => Backend::Anthropic(anthropic(section)),
        ProviderKindKey::Gemini => Backend::Gemini(http(section)),
        ProviderKindKey::Scripted => Backend::Scripted { file: file(section, "file = \"script\"")? },
        ProviderKindKey::Replay => Backend::Replay { file: file(section, "file = \"recording\"")? },
    };
    if matches!(&backend, Backend::Replay { file } if Some(file) == record.as_ref()) {
        section.problem(&["record"], "expected another file than the one that is replayed".to_owned());
    }
    Some(ProviderConfig { backend, record, models, traits, templates })
}

/// Checks a provider's name, which comes before the first slash of `provider/model`.
fn provider_name(name: &str) -> Result<(), String> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if (1..=64).contains(&name.len()) && name.bytes().all(fits) {
        return Ok(());
    }
    Err("expected a provider's name of 1 to 64 letters, digits, '.', '_' and '-'".to_owned())
}

fn openai(section: &mut Section<'_, '_>) -> OpenAiConfig {
    OpenAiConfig {
        http: http(section),
        send_reasoning: section.get("send_reasoning"),
        include_usage: section.get_or("include_usage", true),
        max_tokens_field: section.get_checked("max_tokens_field", None, |field: String| {
            let known = ["max_tokens", "max_completion_tokens"];
            if known.contains(&field.as_str()) {
                return Ok(field);
            }
            Err(format!("expected \"{}\" or \"{}\", found \"{field}\"", known[0], known[1]))
        }),
    }
}

fn anthropic(section: &mut Section<'_, '_>) -> AnthropicConfig {
    AnthropicConfig {
        http: http(section),
        api_version: section.get_checked("api_version", None, |version: String| word("a version", version)),
        betas: section
            .get_list("betas", |beta| word("a beta", beta.to_owned()).map(drop))
            .unwrap_or_default(),
        prompt_cache: section.get_or("prompt_cache", true),
    }
}

/// Checks a word that is sent in a header. `what` names it in the message.
fn word(what: &str, text: String) -> Result<String, String> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    if (1..=128).contains(&text.len()) && text.bytes().all(fits) {
        return Ok(text);
    }
    Err(format!("expected {what} of 1 to 128 letters, digits, '-', '.' and '_'; found \"{text}\""))
}

fn http(section: &mut Section<'_, '_>) -> HttpProvider {
    let provider = HttpProvider {
        base_url: section.get_checked("base_url", None, base_url),
        api_key: api_key(section),
        key_header: section.get_checked("api_key_header", None, |name: String| {
            header(&name, "")
                .map(|()| name.clone())
                .or_else(|message| if is_secret(&name) { Ok(name) } else { Err(message) })
        }),
        headers: headers(section),
        max_output_tokens: section.get_some_within("max_output_tokens", 1..=10_000_000),
    };
    if section.is_set("api_key_header") && !section.is_set("api_key_env") && !section.is_set("api_key_file") {
        let message = "expected api_key_env or api_key_file beside it, or there is no key to send";
        section.problem(&["api_key_header"], message.to_owned());
    }
    if !section.is_set("base_url") && !section.is_set("api_key_env") && !section.is_set("api_key_file") {
        section.problem(
            &["kind"],
            "expected api_key_env or api_key_file, or the base_url of a server that needs no key".to_owned(),
        );
    }
    provider
}

fn base_url(url: String) -> Result<String, String> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
    if host.contains('@') {
        return Err("expected a URL without a password; write api_key_env or api_key_file".to_owned());
    }
    if host.is_empty() || url.contains(char::is_whitespace) {
        return Err("expected a URL that begins with https:// or http://".to_owned());
    }
    let port = host.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.contains(']'));
    if port.is_some_and(|port| !port.parse::<u16>().is_ok_and(|port| port > 0)) {
        return Err("expected a URL whose port is a number from 1 to 65535".to_owned());
    }
    Ok(url)
}

fn api_key(section: &mut Section<'_, '_>) -> Option<Secret> {
    section.refuse(
        "api_key",
        "a key does not belong in this file, which gets copied and committed; put it into an environment variable and \
         write api_key_env = \"NAME_OF_THE_VARIABLE\", or into a file of its own and write api_key_file = \"path\"",
    );
    let environment = section.environment();
    let from_environment =
        section.get_checked("api_key_env", None, |name: String| key_in_variable(environment, &name));
    let from_file = section.get_path("api_key_file", None).and_then(|path| {
        key_in_file(&path).map_err(|message| section.problem(&["api_key_file"], message)).ok()
    });
    if section.is_set("api_key_env") && section.is_set("api_key_file") {
        section.problem(&["api_key_file"], "expected only one of api_key_env and api_key_file".to_owned());
    }
    from_environment.or(from_file)
}

/// Reads an API key from a variable. An invalid name is not repeated in the message, because it may be the key itself.
pub(in crate::config) fn key_in_variable(environment: &Environment, name: &str) -> Result<Secret, String> {
    let is_name = !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !is_name {
        return Err("expected the name of an environment variable: letters, digits and '_'".to_owned());
    }
    match environment.get(name) {
        Ok(Some(key)) => secret(key).ok_or_else(|| format!("environment variable {name} holds no key")),
        Ok(None) => Err(format!("environment variable {name} is not set")),
        Err(_) => Err(format!("environment variable {name} is not UTF-8 text")),
    }
}

pub(in crate::config) fn key_in_file(path: &Path) -> Result<Secret, String> {
    let text = crate::config::text_of(path, KEY_FILE_BYTES_MAX)?;
    secret(&text).ok_or_else(|| format!("{} holds no key", path.display()))
}

/// Checks that a key is one printable word, which a header can carry.
fn secret(text: &str) -> Option<Secret> {
    let text = text.trim();
    let is_word = !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
    is_word.then(|| Secret::new(text))
}

fn headers(section: &mut Section<'_, '_>) -> Vec<(String, Secret)> {
    let headers = section.get_texts("headers");
    let mut problems = Vec::new();
    if headers.len() > HEADERS_MAX {
        problems.push(format!("expected at most {HEADERS_MAX} headers"));
    }
    problems.extend(headers.iter().filter_map(|(name, value)| header(name, value).err()));
    for message in problems {
        section.problem(&["headers"], message);
    }
    headers.into_iter().map(|(name, value)| (name, Secret::new(value))).collect()
}

fn header(name: &str, value: &str) -> Result<(), String> {
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    if !is_name {
        return Err(format!("expected a header's name of letters, digits, '-' and '_'; found \"{name}\""));
    }
    if is_secret(name) {
        let how = "write api_key_env or api_key_file, and api_key_header where it is not the vendor's header";
        return Err(format!("{name} carries a secret; {how}"));
    }
    if RESERVED_HEADERS.iter().any(|reserved| reserved.eq_ignore_ascii_case(name)) {
        return Err(format!("{name} is set by the server itself"));
    }
    let is_text = value.chars().all(|c| c == '\t' || (' '..='~').contains(&c));
    if is_text { Ok(()) } else { Err(format!("expected the value of {name} in printable ASCII")) }
}

fn is_secret(header: &str) -> bool {
    SECRET_HEADERS.iter().any(|secret| secret.eq_ignore_ascii_case(header))
}

/// Reads the path of a script or recording, and checks that the file exists.
fn file(section: &mut Section<'_, '_>, expected: &str) -> Option<PathBuf> {
    let file = section.get_path("file", None);
    match &file {
        Some(file) if !file.is_file() => {
            section.problem(&["file"], format!("there is no file {}", file.display()));
        }
        None if !section.is_set("file") => {
            section.problem(&["file", "kind"], format!("expected {expected}"));
        }
        _ => {}
    }
    file
}

/// Makes providers from API keys in the environment, under the vendors' usual variable names.
pub(in crate::config) fn of_environment(root: &mut Section<'_, '_>) -> BTreeMap<String, ProviderConfig> {
    let responses = |http| Backend::OpenAiResponses(ResponsesConfig { http, or_chat: true });
    let openai = vendor(root, "OPENAI_API_KEY", "OPENAI_BASE_URL").map(responses);
    let anthropic = vendor(root, "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL").or_else(|| {
        let http = vendor(root, "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL")?;
        Some(HttpProvider { key_header: Some("authorization".to_owned()), ..http })
    });
    let anthropic = anthropic.map(AnthropicConfig::new).map(Backend::Anthropic);
    let gemini = vendor(root, "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL")
        .or_else(|| vendor(root, "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"))
        .map(Backend::Gemini);
    let named = [("openai", openai), ("anthropic", anthropic), ("gemini", gemini)];
    named.into_iter().filter_map(|(name, backend)| Some((name.to_owned(), backend?.into()))).collect()
}

fn vendor(root: &mut Section<'_, '_>, key: &'static str, url: &'static str) -> Option<HttpProvider> {
    let environment = root.environment();
    if environment.get(key) == Ok(None) {
        return None;
    }
    let api_key = key_in_variable(environment, key).map_err(|message| root.problem_in(key, message)).ok();
    let base_url = match environment.get(url) {
        Ok(None) => None,
        Ok(Some(text)) => base_url(text.to_owned()).map_err(|message| root.problem_in(url, message)).ok(),
        Err(_) => {
            root.problem_in(url, "expected UTF-8 text".to_owned());
            None
        }
    };
    Some(HttpProvider { base_url, api_key, ..HttpProvider::default() })
}
