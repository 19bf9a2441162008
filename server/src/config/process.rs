//! The sections that describe the process: `[server]`, `[store]`, `[log]`, `[runs]`, `[hosts]`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use agentloop_core::limits::GRPC_MESSAGE_BYTES_MAX;
use agentloop_core::time::Millis;
use tracing_subscriber::EnvFilter;

use super::section::Section;

const MINUTE: Millis = Millis::secs(60);
const HOUR: Millis = Millis::secs(60 * 60);
const DAY: Millis = Millis::secs(24 * 60 * 60);
const ZERO: Millis = Millis(0);
const MILLISECOND: Millis = Millis(1);

/// Where the server listens and how much it takes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerOptions {
    /// The address to listen on. Loopback, unless the operator has said that he means it.
    pub listen: SocketAddr,
    /// Runs that have a task at one time; runs that wait for a human have none.
    pub max_live_runs: usize,
    /// Largest gRPC message in either direction, in bytes.
    pub max_message_bytes: usize,
    /// Calls that one connection may have open.
    pub max_concurrent_streams: u32,
    /// Connections at one time, tool hosts included.
    pub max_connections: usize,
    /// How long a shutdown waits before it stops what is left.
    pub shutdown_grace: Millis,
}

/// Where everything that counts is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreOptions {
    /// The database.
    pub location: StoreLocation,
    /// Whether what is said is indexed.
    pub search: bool,
}

/// Where a database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreLocation {
    /// In memory, gone with the process.
    Memory,
    /// In this file.
    File(PathBuf),
}

/// How the process logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogOptions {
    /// For whom.
    pub format: LogFormat,
    /// A filter as `tracing` knows it: a level, or directives like `info,agentloop_server::engine=debug`.
    pub level: String,
}

/// For whom the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// People.
    Text,
    /// Programs: one JSON object a line.
    Json,
}

/// What holds for all runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOptions {
    /// A run that waits longer than this before its next try gives up its task until then.
    pub park_after: Millis,
    /// How long a call whose effects are unknown waits for someone who knows; absent means for ever.
    pub in_doubt_timeout: Option<Millis>,
    /// From the offer of a call to its result, where its tool does not say.
    pub tool_timeout: Millis,
    /// How long a subscriber may take no event before its stream is ended.
    pub subscriber_stall: Millis,
    /// Events kept for a subscriber that is slow to take them.
    pub subscriber_buffer: usize,
}

/// What holds for all tool hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostOptions {
    /// How often a host is to say that it lives.
    pub heartbeat_interval: Millis,
    /// A host that says nothing for this long is lost.
    pub lease_timeout: Millis,
    /// How long a lost host may come back to its calls.
    pub grace_period: Millis,
    /// How long a call waits for a host that serves its tool.
    pub host_wait: Millis,
    /// How long a host may take to accept a call.
    pub accept_timeout: Millis,
    /// How long a tool stays known after its last host has gone.
    pub tool_retention: Millis,
    /// Hosts connected at one time.
    pub max_hosts: usize,
    /// Calls that wait for room on a host, for each tool.
    pub queue_per_tool: usize,
}

pub(super) fn server(section: &mut Section<'_, '_>) -> ServerOptions {
    let default = SocketAddr::from((Ipv4Addr::LOCALHOST, 50_051));
    let options = ServerOptions {
        listen: section.get_or("listen", default),
        max_live_runs: section.get_within("max_live_runs", 10_000, 1..=1_000_000),
        max_message_bytes: section.get_within(
            "max_message_bytes",
            GRPC_MESSAGE_BYTES_MAX,
            64 * 1024..=GRPC_MESSAGE_BYTES_MAX,
        ),
        max_concurrent_streams: section.get_within("max_concurrent_streams", 1_024, 1..=1_000_000),
        max_connections: section.get_within("max_connections", 20_000, 1..=1_000_000),
        shutdown_grace: section.get_within("shutdown_grace", Millis::secs(10), ZERO..=HOUR),
    };
    let insecure = section.get_or("allow_insecure_remote", false);
    if !options.listen.ip().is_loopback() && !insecure {
        let message = format!(
            "{} can be reached from other machines, and nobody is asked who they are: whoever connects can run every \
             tool and read every session; listen on 127.0.0.1, or set server.allow_insecure_remote = true if something \
             else keeps strangers out",
            options.listen
        );
        section.problem(&["listen"], message);
    }
    options
}

pub(super) fn store(section: &mut Section<'_, '_>) -> StoreOptions {
    let default = PathBuf::from("agentloop.db");
    let path = section.get_path("path", Some(&default)).unwrap_or(default);
    let memory = path.file_name().is_some_and(|name| name == ":memory:");
    StoreOptions {
        location: if memory { StoreLocation::Memory } else { StoreLocation::File(path) },
        search: section.get_or("search", true),
    }
}

pub(super) fn log(section: &mut Section<'_, '_>) -> LogOptions {
    let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    let default = "info".to_owned();
    LogOptions {
        format: section.get_choice("format", Some("text"), &formats).unwrap_or(LogFormat::Text),
        level: section.get_checked("level", Some(&default), log_level).unwrap_or(default),
    }
}

/// A lone word that is no level would name a module, and silence everything else: a misspelt level must not do that.
fn log_level(level: String) -> Result<String, String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
    let stray = level.split(',').map(str::trim).find(|word| !word.contains(['=', '[']) && !is_level(word));
    if let Some(stray) = stray {
        let levels = LEVELS.join(", ");
        return Err(format!(
            "expected one of {levels}, or directives like \"info,agentloop_server::engine=debug\"; found \"{stray}\""
        ));
    }
    EnvFilter::try_new(&level).map_err(|error| format!("expected a filter; {error}"))?;
    Ok(level)
}

pub(super) fn runs(section: &mut Section<'_, '_>) -> RunOptions {
    let in_doubt = section.get_within("in_doubt_timeout", Millis::secs(15 * 60), ZERO..=Millis(365 * DAY.0));
    RunOptions {
        park_after: section.get_within("park_after", Millis::secs(5), ZERO..=HOUR),
        in_doubt_timeout: (in_doubt != ZERO).then_some(in_doubt),
        tool_timeout: section.get_within("tool_timeout", Millis(10 * MINUTE.0), Millis::secs(1)..=DAY),
        subscriber_stall: section.get_within("subscriber_stall", Millis::secs(30), Millis::secs(1)..=HOUR),
        subscriber_buffer: section.get_within("subscriber_buffer", 1_024, 16..=1_000_000),
    }
}

pub(super) fn hosts(section: &mut Section<'_, '_>) -> HostOptions {
    let options = HostOptions {
        heartbeat_interval: section.get_within("heartbeat_interval", Millis::secs(5), MILLISECOND..=HOUR),
        lease_timeout: section.get_within("lease_timeout", Millis::secs(15), MILLISECOND..=HOUR),
        grace_period: section.get_within("grace_period", Millis::secs(10), ZERO..=HOUR),
        host_wait: section.get_within("host_wait", Millis::secs(30), ZERO..=DAY),
        accept_timeout: section.get_within("accept_timeout", Millis::secs(10), MILLISECOND..=HOUR),
        tool_retention: section.get_within("tool_retention", Millis(10 * MINUTE.0), ZERO..=DAY),
        max_hosts: section.get_within("max_hosts", 10_000, 1..=1_000_000),
        queue_per_tool: section.get_within("queue_per_tool", 10_000, 1..=1_000_000),
    };
    if options.heartbeat_interval >= options.lease_timeout {
        let message = "expected lease_timeout to be longer than heartbeat_interval, or every host is lost between two \
                       heartbeats";
        section.problem(&["lease_timeout", "heartbeat_interval"], message.to_owned());
    }
    options
}
