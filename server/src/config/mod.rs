//! The configuration: a file, and the environment over it. Everything in it is checked before anything starts, and
//! everything wrong with it is reported at once, with line and column.
//!
//! What comes out is plain data. Each module is handed the part that concerns it.

mod agents;
mod environment;
mod error;
mod hint;
mod models;
mod process;
mod prompts;
mod providers;
mod reader;
mod rules;
mod section;
mod telemetry;
mod value;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use agentloop_core::agent::RunSpec;

pub use self::environment::Environment;
pub use self::error::{ConfigError, Place, Problem};
pub use self::process::{
    HostOptions, LogFormat, LogOptions, RunOptions, ServerOptions, StoreLocation, StoreOptions,
};
pub use self::providers::{
    AnthropicConfig, Backend, HttpProvider, OpenAiConfig, ProviderConfig, ResponsesConfig,
};
use self::reader::{FILE_BYTES_MAX, Reading};
use self::section::Section;
pub use self::telemetry::{MetricsOptions, TelemetryOptions};

/// The agent that a run gets when it names none.
pub const DEFAULT_AGENT: &str = "default";

/// Everything that an operator decides.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where the server listens and how much it takes on.
    pub server: ServerOptions,
    /// Where everything is kept.
    pub store: StoreOptions,
    /// How the process logs.
    pub log: LogOptions,
    /// Where metrics can be read.
    pub metrics: MetricsOptions,
    /// Where traces and metrics are sent.
    pub telemetry: TelemetryOptions,
    /// What holds for all runs.
    pub runs: RunOptions,
    /// What holds for all tool hosts.
    pub hosts: HostOptions,
    /// Where models are, by the name that comes before the slash in `provider/model`.
    pub providers: BTreeMap<String, ProviderConfig>,
    /// What runs are told to be, by the name that a request gives. The model of one that names none is empty.
    pub agents: BTreeMap<String, RunSpec>,
}

impl Config {
    /// Reads the file, if there is one to read, and the environment of this process.
    ///
    /// # Errors
    /// When the file cannot be read, or with everything that is wrong in it and in the environment.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let environment = Environment::of_process();
        let Some(path) = path else { return Self::parse_with("", "", &environment) };
        let read = read_text(path, FILE_BYTES_MAX);
        let text = read.map_err(|cause| ConfigError::Read { path: path.to_owned(), cause })?;
        Self::parse_with(&text, &path.to_string_lossy(), &environment)
    }

    /// Reads the text of a file of this name, as if no environment variable were set.
    ///
    /// # Errors
    /// With everything that is wrong in it.
    pub fn parse(text: &str, name: &str) -> Result<Self, ConfigError> {
        Self::parse_with(text, name, &Environment::default())
    }

    /// Reads the text of a file of this name in this environment. Relative paths in the text start from the folder
    /// of `name`.
    ///
    /// # Errors
    /// With everything that is wrong in either.
    pub fn parse_with(text: &str, name: &str, environment: &Environment) -> Result<Self, ConfigError> {
        match read(text, name, environment) {
            Reading { value: Some(config), problems, .. } if problems.is_empty() => Ok(config),
            Reading { problems, .. } => Err(ConfigError::Invalid(problems)),
        }
    }
}

fn read(text: &str, name: &str, environment: &Environment) -> Reading<Config> {
    reader::read(text, name, environment, config)
}

fn config(root: &mut Section<'_, '_>) -> Config {
    let server = root.overridable_section("server", process::server);
    let store = root.overridable_section("store", process::store);
    let log = root.overridable_section("log", process::log);
    let metrics = root.overridable_section("metrics", telemetry::metrics);
    let telemetry = root.overridable_section("telemetry", telemetry::telemetry);
    let runs = root.overridable_section("runs", process::runs);
    let hosts = root.overridable_section("hosts", process::hosts);
    let (providers, names) = providers(root);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut agents = root.each("agents", |name, section| Some(agents::agent(name, section, &names)));
    if agents.is_empty() && !root.contains("providers") && !providers.is_empty() {
        agents.insert(DEFAULT_AGENT.to_owned(), nameless_agent());
    }
    Config { server, store, log, metrics, telemetry, runs, hosts, providers, agents }
}

/// The providers, and the names of all of them, those with problems included: a provider that is there and wrong is
/// not also missing.
fn providers(root: &mut Section<'_, '_>) -> (BTreeMap<String, ProviderConfig>, Vec<String>) {
    let mut names = Vec::new();
    let mut providers = root.each("providers", |name, section| {
        names.push(name.to_owned());
        providers::provider(name, section)
    });
    if names.is_empty() && !root.contains("providers") {
        providers = providers::of_environment(root);
        names.extend(providers.keys().cloned());
    }
    (providers, names)
}

/// An agent of nothing but defaults: whoever uses it names a model.
fn nameless_agent() -> RunSpec {
    RunSpec { agent: DEFAULT_AGENT.to_owned(), ..RunSpec::default() }
}

/// A file's text, for a key that names the file; the error is for the operator.
fn text_of(path: &Path, bytes_max: usize) -> Result<String, String> {
    read_text(path, bytes_max).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn read_text(path: &Path, bytes_max: usize) -> io::Result<String> {
    let mut text = String::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path)?.take(limit).read_to_string(&mut text)?;
    if text.len() > bytes_max {
        return Err(io::Error::other(format!("it is longer than {bytes_max} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
