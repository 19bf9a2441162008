//! `[providers.NAME]`: where models are, and with which key.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use agentloop_core::context::prompt::PromptTemplates;
use agentloop_core::model::ModelFacts;
use agentloop_core::model_traits::TraitOverrides;

use super::environment::Environment;
use super::section::Section;
use super::{models, prompts};
use crate::secret::Secret;

/// Longer than any key, shorter than a file that was meant for something else.
const KEY_FILE_BYTES_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 64;

/// Headers that carry secrets, which the file must not hold.
const SECRET_HEADERS: [&str; 6] =
    ["authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"];

/// One provider of models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderConfig {
    /// What it is.
    pub backend: Backend,
    /// The file that its calls are recorded in, if they are.
    pub record: Option<PathBuf>,
    /// What is known of its models, by the provider's own names for them.
    pub models: BTreeMap<String, ModelFacts>,
    /// What its models take, where the vendor's table is wrong or says nothing, by the same names.
    pub traits: BTreeMap<String, TraitOverrides>,
    /// What system prompts are put into.
    pub templates: PromptTemplates,
}

impl From<Backend> for ProviderConfig {
    /// With nothing else.
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

/// What answers in a provider's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backend {
    /// OpenAI's Chat Completions, and everyone who speaks them.
    OpenAi(OpenAiConfig),
    /// OpenAI's Responses, and everyone who speaks them.
    OpenAiResponses(ResponsesConfig),
    /// Anthropic's Messages.
    Anthropic(AnthropicConfig),
    /// Google's `generateContent`: the Gemini API and Vertex AI.
    Gemini(HttpProvider),
    /// Answers read from a file, for demonstrations and tests.
    Scripted {
        /// The file.
        file: PathBuf,
    },
    /// The answers of a provider whose calls were recorded.
    Replay {
        /// The recording.
        file: PathBuf,
    },
}

/// What every provider over HTTP has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpProvider {
    /// Before the path of each request; absent means the vendor's own.
    pub base_url: Option<String>,
    /// Absent for servers that ask for none.
    pub api_key: Option<Secret>,
    /// The header that carries the key, in `authorization` as a bearer token; absent means the vendor's.
    pub key_header: Option<String>,
    /// Sent with every request.
    pub headers: Vec<(String, String)>,
    /// Asked for where a run does not say how long an answer may be.
    pub max_output_tokens: Option<u32>,
}

/// A provider of Chat Completions, and how it differs from OpenAI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAiConfig {
    /// Where it is.
    pub http: HttpProvider,
    /// Whether reasoning goes back to the model as text; absent means by the model's name.
    pub send_reasoning: Option<bool>,
    /// Whether token counts are asked for.
    pub include_usage: bool,
    /// The request field that bounds the answer; absent means whatever fits `base_url`.
    pub max_tokens_field: Option<String>,
}

impl OpenAiConfig {
    /// Without peculiarities.
    #[must_use]
    pub fn new(http: HttpProvider) -> Self {
        Self { http, send_reasoning: None, include_usage: true, max_tokens_field: None }
    }
}

/// A provider of Responses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponsesConfig {
    /// Where it is.
    pub http: HttpProvider,
    /// Whether a server that does not know Responses is asked in Chat Completions from then on. Only of a provider that
    /// nobody configured but by its key.
    pub or_chat: bool,
}

/// A provider of Messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnthropicConfig {
    /// Where it is.
    pub http: HttpProvider,
    /// The version of the API; absent means the one that every server knows.
    pub api_version: Option<String>,
    /// Features of the API that are not in its version.
    pub betas: Vec<String>,
    /// Whether the prompt is marked for the provider's cache.
    pub prompt_cache: bool,
}

impl AnthropicConfig {
    /// Without peculiarities.
    #[must_use]
    pub fn new(http: HttpProvider) -> Self {
        Self { http, api_version: None, betas: Vec::new(), prompt_cache: true }
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    OpenAi,
    OpenAiResponses,
    Anthropic,
    Gemini,
    Scripted,
    Replay,
}

pub(super) fn provider(name: &str, section: &mut Section<'_, '_>) -> Option<ProviderConfig> {
    if let Err(message) = provider_name(name) {
        section.problem(&[], message);
    }
    let kinds = [
        ("openai-responses", Kind::OpenAiResponses),
        ("openai", Kind::OpenAi),
        ("anthropic", Kind::Anthropic),
        ("gemini", Kind::Gemini),
        ("scripted", Kind::Scripted),
        ("replay", Kind::Replay),
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
    // Read whatever becomes of the rest, so that none of it is unknown.
    let record = section.get_path("record", None);
    let mut templates = PromptTemplates { provider: prompts::template(section), models: BTreeMap::new() };
    let mut traits = BTreeMap::new();
    let models = section.each("models", |name, section| {
        let own = models::traits(section);
        traits.extend((own != TraitOverrides::default()).then(|| (name.to_owned(), own)));
        let facts = models::facts(section);
        templates.models.extend(prompts::template(section).map(|template| (name.to_owned(), template)));
        Some(facts)
    });
    let backend = match kind {
        Kind::OpenAi => Backend::OpenAi(openai(section)),
        Kind::OpenAiResponses => {
            Backend::OpenAiResponses(ResponsesConfig { http: http(section), or_chat: false })
        }
        Kind::Anthropic => Backend::Anthropic(anthropic(section)),
        Kind::Gemini => Backend::Gemini(http(section)),
        Kind::Scripted => Backend::Scripted { file: file(section, "file = \"script\"")? },
        Kind::Replay => Backend::Replay { file: file(section, "file = \"recording\"")? },
    };
    if matches!(&backend, Backend::Replay { file } if Some(file) == record.as_ref()) {
        section.problem(&["record"], "expected another file than the one that is replayed".to_owned());
    }
    Some(ProviderConfig { backend, record, models, traits, templates })
}

/// The name is the part of `provider/model` before the first slash.
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

/// One word that can stand in a header.
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
    if !section.is_set("base_url") && !section.is_set("api_key_env") && !section.is_set("api_key_file") {
        section.problem(
            &["kind"],
            "expected api_key_env or api_key_file, or the base_url of a server that asks for no key"
                .to_owned(),
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

/// What is not a variable's name is not repeated: it may well be the key itself.
fn key_in_variable(environment: &Environment, name: &str) -> Result<Secret, String> {
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

fn key_in_file(path: &Path) -> Result<Secret, String> {
    let text = super::text_of(path, KEY_FILE_BYTES_MAX)?;
    secret(&text).ok_or_else(|| format!("{} holds no key", path.display()))
}

/// A key is one word: anything else could not be sent as a header.
fn secret(text: &str) -> Option<Secret> {
    let text = text.trim();
    let is_word = !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
    is_word.then(|| Secret::new(text))
}

fn headers(section: &mut Section<'_, '_>) -> Vec<(String, String)> {
    let headers = section.get_texts("headers");
    let mut problems = Vec::new();
    if headers.len() > HEADERS_MAX {
        problems.push(format!("expected at most {HEADERS_MAX} headers"));
    }
    problems.extend(headers.iter().filter_map(|(name, value)| header(name, value).err()));
    for message in problems {
        section.problem(&["headers"], message);
    }
    headers
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
    let is_text = value.chars().all(|c| c == '\t' || (' '..='~').contains(&c));
    if is_text { Ok(()) } else { Err(format!("expected the value of {name} in printable ASCII")) }
}

fn is_secret(header: &str) -> bool {
    SECRET_HEADERS.iter().any(|secret| secret.eq_ignore_ascii_case(header))
}

/// The file that a provider answers from.
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

/// The providers whose keys lie in the environment under the names that their vendors use.
pub(super) fn of_environment(root: &mut Section<'_, '_>) -> BTreeMap<String, ProviderConfig> {
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
