//! The configuration: a file, with environment variables that override it. It is checked before anything starts, and
//! all problems are reported together, with line and column.
//!
//! The result is plain data. `app` hands each module the part that concerns it.

mod environment;
mod error;
mod hint;
mod keys;
mod reader;
mod reading;
mod section;
mod value;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use agentloop_core::agent::RunSpec;
use agentloop_core::tool::TermsOptions;

use crate::auth::{Authentication, QuotaLimits};
use crate::bounded_file;
use crate::mask::Masks;
use crate::secret::Secret;

pub use self::environment::Environment;
pub use self::error::{ConfigError, Place, Problem};
pub use self::keys::cluster::{ClusterOptions, ClusterTls};
pub use self::keys::jwt::{JwksPlace, JwtOptions};
pub use self::keys::process::{
    BlobOptions, HostOptions, LogFormat, LogOptions, PostgresLocation, RetentionOptions, RunOptions,
    ServerOptions, StoreLocation, StoreOptions,
};
pub use self::keys::providers::{
    AnthropicConfig, Backend, HttpProvider, OpenAiConfig, ProviderConfig, ResponsesConfig,
};
pub use self::keys::security::{AuditOptions, AuthOptions, TlsOptions};
pub use self::keys::telemetry::{MetricsOptions, TelemetryOptions};
use self::keys::{agents, cluster, process, providers, rules, security, telemetry, tools};
use self::reader::FILE_BYTES_MAX;
use self::reading::Reading;
use self::section::Section;

/// The name of the agent for runs that name none.
pub const DEFAULT_AGENT: &str = "default";

/// The whole configuration, checked and with every default filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `[server]`: the listening address and limits on load.
    pub server: ServerOptions,
    /// `[tls]`: encryption of the gRPC port; `None` without it.
    pub tls: Option<TlsOptions>,
    /// `[auth]`: the credentials of callers; `None` without authentication.
    pub auth: Option<AuthOptions>,
    /// `[quotas]`: bounds on the RPCs of principals and tenants.
    pub quotas: QuotaLimits,
    /// `[audit]`: the audit log; `None` where none is written.
    pub audit: Option<AuditOptions>,
    /// `[store]`: the place of the database, and its search index.
    pub store: StoreOptions,
    /// `[cluster]`: this server as one of several replicas; `None` for a server alone.
    pub cluster: Option<ClusterOptions>,
    /// `[log]`: format and level of the log.
    pub log: LogOptions,
    /// `[metrics]`: the endpoint that Prometheus reads.
    pub metrics: MetricsOptions,
    /// `[telemetry]`: the OpenTelemetry collector.
    pub telemetry: TelemetryOptions,
    /// `[runs]`: times and limits of all runs.
    pub runs: RunOptions,
    /// `[hosts]`: times and limits of all tool hosts.
    pub hosts: HostOptions,
    /// `[retention]`: the time after which unused sessions are deleted.
    pub retention: RetentionOptions,
    /// `[blobs]`: bounds on files, and the time that unused ones are kept.
    pub blobs: BlobOptions,
    /// `[tools]`: the terms of tools.
    pub tools: TermsOptions,
    /// `[tools.NAME] sensitive`: the arguments that people do not see, as JSON Pointers by tool.
    pub sensitive_arguments: BTreeMap<String, Vec<String>>,
    /// `[providers.NAME]`, by the name before the slash in `provider/model`.
    pub providers: BTreeMap<String, ProviderConfig>,
    /// `[agents.NAME]`, by the name that a request uses. The model of an agent that names none is empty.
    pub agents: BTreeMap<String, RunSpec>,
    /// `description` of `[agents.NAME]`, for people, of the agents that have one.
    pub agent_descriptions: BTreeMap<String, String>,
}

impl Config {
    /// Reads the file, if a path is given, and the environment of this process.
    ///
    /// # Errors
    /// When the file cannot be read, or with all problems in it and in the environment.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let environment = Environment::of_process();
        let Some(path) = path else { return Self::parse_with("", "", &environment) };
        let read = read_text(path, FILE_BYTES_MAX);
        let text = read.map_err(|cause| ConfigError::Read { path: path.to_owned(), cause })?;
        Self::parse_with(&text, &path.to_string_lossy(), &environment)
    }

    /// Reads the text of a file of this name without any environment variables.
    ///
    /// # Errors
    /// With all problems in it.
    pub fn parse(text: &str, name: &str) -> Result<Self, ConfigError> {
        Self::parse_with(text, name, &Environment::default())
    }

    /// Reads the text of a file of this name with these environment variables. Relative paths in the text start from the
    /// folder of `name`.
    ///
    /// # Errors
    /// With all problems in both.
    pub fn parse_with(text: &str, name: &str, environment: &Environment) -> Result<Self, ConfigError> {
        match read(text, name, environment) {
            Reading { value: Some(config), problems, .. } if problems.is_empty() => Ok(config),
            Reading { problems, .. } => Err(ConfigError::Invalid(problems)),
        }
    }

    /// The places of sensitive arguments.
    #[must_use]
    pub fn masks(&self) -> Masks {
        Masks::new(self.sensitive_arguments.clone())
    }
}

impl Config {
    /// The secrets that it names, which must not be shown.
    #[must_use]
    pub fn secrets(&self) -> Vec<Secret> {
        let mut secrets: Vec<_> = self.providers.values().flat_map(ProviderConfig::secrets).collect();
        if let StoreLocation::Postgres(postgres) = &self.store.location {
            secrets.extend(postgres.secrets());
        }
        secrets
    }
}

fn read(text: &str, name: &str, environment: &Environment) -> Reading<Config> {
    reading::read(text, name, environment, config)
}

fn config(root: &mut Section<'_, '_>) -> Config {
    let tls = root.overridable_section("tls", security::tls);
    let auth = root.overridable_section("auth", |section| security::auth(section, tls.as_ref()));
    if auth.is_none() && root.contains("auth") {
        root.problem(&["auth"], "expected tokens, [[auth.certificates]] or [auth.jwt]".to_owned());
    }
    let authentication = Authentication::by(auth.as_ref());
    let quotas = root.overridable_section("quotas", |section| security::quotas(section, authentication));
    let audit = root.overridable_section("audit", security::audit);
    let protection = process::Protection { encrypted: tls.is_some(), authentication };
    let server = root.overridable_section("server", |section| process::server(section, protection));
    let store = root.overridable_section("store", process::store);
    let cluster = root.overridable_section("cluster", |section| cluster::cluster(section, &store.location));
    let log = root.overridable_section("log", process::log);
    let metrics = root.overridable_section("metrics", telemetry::metrics);
    let telemetry = root.overridable_section("telemetry", telemetry::telemetry);
    let runs = root.overridable_section("runs", process::runs);
    let hosts = root.overridable_section("hosts", |section| process::hosts(section, cluster.is_some()));
    let retention = root.overridable_section("retention", process::retention);
    let blobs = root.overridable_section("blobs", process::blobs);
    let (tools, sensitive_arguments) = root.overridable_section("tools", tools::tools);
    let rules = root.section("policy", |section| rules::rules(section, authentication));
    let (providers, names) = providers(root);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut agent_descriptions = BTreeMap::new();
    let mut agents = root.each_named("agents", |name, section| {
        agent_descriptions.extend(agents::description(section).map(|text| (name.to_owned(), text)));
        Some(agents::agent(name, section, &names, authentication))
    });
    if agents.is_empty() && !root.contains("providers") && !providers.is_empty() {
        agents.insert(DEFAULT_AGENT.to_owned(), nameless_agent());
    }
    for agent in agents.values_mut() {
        agent.tool_policy.rules.splice(..0, rules.iter().cloned());
    }
    Config {
        server,
        tls,
        auth,
        quotas,
        audit,
        store,
        cluster,
        log,
        metrics,
        telemetry,
        runs,
        hosts,
        retention,
        blobs,
        tools,
        sensitive_arguments,
        providers,
        agents,
        agent_descriptions,
    }
}

/// The providers, and the names of all of them, invalid ones included: an agent that uses an invalid provider is not
/// reported as a second problem.
fn providers(root: &mut Section<'_, '_>) -> (BTreeMap<String, ProviderConfig>, Vec<String>) {
    let mut names = Vec::new();
    let mut providers = root.each_named("providers", |name, section| {
        names.push(name.to_owned());
        providers::provider(name, section)
    });
    if names.is_empty() && !root.contains("providers") {
        providers = providers::of_environment(root);
        names.extend(providers.keys().cloned());
    }
    (providers, names)
}

/// An agent with defaults only. Requests that use it must name a model.
fn nameless_agent() -> RunSpec {
    RunSpec { agent: DEFAULT_AGENT.to_owned(), ..RunSpec::default() }
}

/// Reads a file that a key names. The error is a message for the operator.
fn text_of(path: &Path, bytes_max: usize) -> Result<String, String> {
    read_text(path, bytes_max).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn read_text(path: &Path, bytes_max: usize) -> io::Result<String> {
    io::read_to_string(bounded_file::read(path, bytes_max)?.as_slice())
}

#[cfg(test)]
mod tests;
