//! The sections that describe the process: `[server]`, `[store]`, `[log]`, `[runs]`, `[hosts]`, `[retention]`, `[blobs]`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use agentloop_core::limits::GRPC_MESSAGE_BYTES_MAX;
use agentloop_core::time::Millis;
use percent_encoding::percent_decode_str;
use tracing_subscriber::EnvFilter;

use super::providers::{key_in_file, key_in_variable};
use crate::auth::Authentication;
use crate::config::section::Section;
use crate::secret::Secret;

const MINUTE: Millis = Millis::secs(60);
const HOUR: Millis = Millis::secs(60 * 60);
const DAY: Millis = Millis::secs(24 * 60 * 60);
const ZERO: Millis = Millis(0);
const MILLISECOND: Millis = Millis(1);
const GIB: u64 = 1024 * 1024 * 1024;
/// The largest number that the database has.
const BLOB_BYTES_MAX: u64 = i64::MAX as u64;
/// The default interval of heartbeats with `[cluster]`. Hosts leave a server that is silent for two intervals, so after 3 s: by
/// then, another replica can have taken over.
const HEARTBEAT_INTERVAL_OF_REPLICAS: Millis = Millis(1_500);

/// `[server]`: the listening address and limits on load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerOptions {
    /// The address to listen on. Other addresses than loopback need `[tls]` and `[auth]`, or `allow_insecure_remote`.
    pub listen: SocketAddr,
    /// Runs that may have a task at one time. Runs that wait for a human have none.
    pub max_live_runs: usize,
    /// Bytes that all live runs together may hold in memory. 0 means half of what the machine or control group has.
    pub max_live_bytes: usize,
    /// Largest gRPC message in either direction, in bytes.
    pub max_message_bytes: usize,
    /// RPCs (HTTP/2 streams) that one connection may have open.
    pub max_concurrent_streams: u32,
    /// Connections at one time, tool hosts included.
    pub max_connections: usize,
    /// Time that a shutdown waits for runs and streams before it stops them.
    pub shutdown_grace: Millis,
}

/// `[store]`: the place of the database, and its search index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreOptions {
    /// The place of the database.
    pub location: StoreLocation,
    /// True if a path is set. Otherwise the location is in the current folder, and whoever starts the server may choose
    /// another.
    pub is_set: bool,
    /// True if messages are indexed for `SearchEntries`.
    pub search: bool,
    /// True opens a database that has less than it had. No key sets it: it is for one start.
    pub accept_loss: bool,
}

/// The place of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreLocation {
    /// In memory. The data is lost when the process ends.
    Memory,
    /// In this SQLite file.
    File(PathBuf),
    /// In a PostgreSQL database.
    Postgres(Box<PostgresLocation>),
}

/// A PostgreSQL database, and how it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresLocation {
    /// Its address, which may have the password.
    pub url: Secret,
    /// The password, if it is not in the address.
    pub password: Option<Secret>,
    /// Number of connections for queries.
    pub readers: u32,
    /// Longest time of a query.
    pub statement_timeout: Millis,
    /// Time for which a write is tried again while the database cannot be reached.
    pub retry_for: Millis,
}

impl PostgresLocation {
    /// The secrets that it names, which must not be shown.
    pub(in crate::config) fn secrets(&self) -> impl Iterator<Item = Secret> {
        let (_, rest) = self.url.expose().split_once("://").unwrap_or_default();
        let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
        let user = address.rsplit_once('@').map(|(user, _)| user);
        let of_user = user.and_then(|user| user.split_once(':')).map(|(_, password)| password);
        let of_query = query.split('&').find_map(|pair| pair.strip_prefix("password="));
        let of_url = of_user.into_iter().chain(of_query);
        // As the address writes it, and as the database knows it.
        let of_url = of_url.flat_map(|written| {
            [Secret::new(written), Secret::new(percent_decode_str(written).decode_utf8_lossy())]
        });
        [self.url.clone()].into_iter().chain(of_url).chain(self.password.clone())
    }
}

/// `[log]`: format and level of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogOptions {
    /// The form of a line: text for people, or JSON.
    pub format: LogFormat,
    /// A `tracing` filter: a level, or directives like `info,agentloop_server::engine=debug`.
    pub level: String,
}

/// The form of a line of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines of text for people.
    Text,
    /// One JSON object per line, for programs.
    Json,
}

/// `[runs]`: times and limits of all runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOptions {
    /// A run that waits longer than this for its next attempt is parked: it has no task until then.
    pub park_after: Millis,
    /// Time that a call in doubt waits for a human or a late result; `None` means no limit.
    pub in_doubt_timeout: Option<Millis>,
    /// Time from the offer of a call to its result, for tools that declare no timeout.
    pub tool_timeout: Millis,
    /// Time that a run with `on_disconnect` CANCEL waits for somebody to come back for it after a restart.
    pub caller_grace: Millis,
    /// Time after which the stream of a subscriber that reads nothing is ended.
    pub subscriber_stall: Millis,
    /// Events buffered for a slow subscriber before it loses deltas.
    pub subscriber_buffer: usize,
}

/// `[hosts]`: times and limits of all tool hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostOptions {
    /// Interval at which hosts are to send a heartbeat.
    pub heartbeat_interval: Millis,
    /// Time after which a silent host is lost.
    pub lease_timeout: Millis,
    /// Time that a lost host has to reconnect before its calls are lost too.
    pub grace_period: Millis,
    /// Time that a call waits for a host that serves its tool.
    pub host_wait: Millis,
    /// Time that a host has to accept a call.
    pub accept_timeout: Millis,
    /// Time that a tool is still offered to models after its last host left.
    pub tool_retention: Millis,
    /// Hosts that may be connected at one time.
    pub max_hosts: usize,
    /// Calls that may wait for room on a host, per tool.
    pub queue_per_tool: usize,
}

/// The protection of the gRPC port.
#[derive(Debug, Clone, Copy)]
pub(in crate::config) struct Protection {
    /// True if there is `[tls]`.
    pub(in crate::config) encrypted: bool,
    pub(in crate::config) authentication: Authentication,
}

/// `[retention]`: how long sessions are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetentionOptions {
    /// Time after its last entry at which a session is deleted. `None` keeps all.
    pub max_age: Option<Millis>,
    /// Sessions of each tenant beyond which those that were used the longest ago are deleted. `None` keeps all.
    pub max_sessions: Option<u64>,
}

pub(in crate::config) fn retention(section: &mut Section<'_, '_>) -> RetentionOptions {
    RetentionOptions {
        max_age: section.get_some_within("max_age", DAY..=Millis(100 * 365 * DAY.0)),
        max_sessions: section.get_some_within("max_sessions", 1..=1_000_000_000),
    }
}

/// `[blobs]`: contents that are too large for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobOptions {
    /// Bytes of one blob.
    pub max_bytes: u64,
    /// Bytes of all blobs of all tenants.
    pub total_bytes: u64,
    /// Time that a blob is kept which no session refers to.
    pub unused_kept: Millis,
    /// Time after which an upload or a read that stands still is ended.
    pub idle_timeout: Millis,
}

pub(in crate::config) fn blobs(section: &mut Section<'_, '_>) -> BlobOptions {
    let max_bytes = section.get_within("max_bytes", GIB, 1..=BLOB_BYTES_MAX);
    let total_bytes = section.get_within("total_bytes", 16 * GIB, 1..=BLOB_BYTES_MAX);
    if section.is_set("max_bytes") && total_bytes < max_bytes {
        let message = format!("expected at least max_bytes, which is {max_bytes}; found {total_bytes}");
        section.problem(&["total_bytes", "max_bytes"], message);
    }
    BlobOptions {
        max_bytes,
        total_bytes,
        unused_kept: section.get_within("unused_kept", HOUR, HOUR..=Millis(365 * DAY.0)),
        idle_timeout: section.get_within("idle_timeout", Millis::secs(60), Millis(100)..=HOUR),
    }
}

pub(in crate::config) fn server(section: &mut Section<'_, '_>, protection: Protection) -> ServerOptions {
    let default = SocketAddr::from((Ipv4Addr::LOCALHOST, 50_051));
    let options = ServerOptions {
        listen: section.get_or("listen", default),
        max_live_runs: section.get_within("max_live_runs", 10_000, 1..=1_000_000),
        max_live_bytes: section.get_within("max_live_bytes", 0, 0..=usize::MAX),
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
    let lacks = match protection {
        Protection { encrypted: true, authentication: Authentication::Required } => None,
        Protection { authentication: Authentication::NotRequired, .. } => Some(
            "there is no authentication: whoever connects can run every tool and read every session; add [auth] and [tls], \
             listen on 127.0.0.1",
        ),
        Protection { encrypted: false, authentication: Authentication::Required } => {
            Some("there is no [tls]: others can read tokens and everything else; add it, listen on 127.0.0.1")
        }
    };
    if let Some(lacks) = lacks.filter(|_| !options.listen.ip().is_loopback() && !insecure) {
        let message = format!(
            "{} can be reached from other machines, and {lacks}, or set server.allow_insecure_remote = true if a firewall \
             or proxy controls access",
            options.listen
        );
        section.problem(&["listen"], message);
    }
    options
}

pub(in crate::config) fn store(section: &mut Section<'_, '_>) -> StoreOptions {
    let default = PathBuf::from("agentloop.db");
    let set = section.get_path("path", None);
    let postgres = postgres(section);
    let is_set = set.is_some() || postgres.is_some();
    if set.is_some() && postgres.is_some() {
        section
            .problem(&["url"], "expected only one of path, for SQLite, and url, for PostgreSQL".to_owned());
    }
    let path = set.unwrap_or(default);
    let memory = path.file_name().is_some_and(|name| name == ":memory:");
    StoreOptions {
        location: match postgres {
            Some(postgres) => StoreLocation::Postgres(Box::new(postgres)),
            None if memory => StoreLocation::Memory,
            None => StoreLocation::File(path),
        },
        is_set,
        search: section.get_or("search", true),
        accept_loss: false,
    }
}

fn postgres(section: &mut Section<'_, '_>) -> Option<PostgresLocation> {
    let environment = section.environment();
    let url = section.get_checked("url", None, |url: String| {
        // The text is not repeated: it may have a password.
        let is_url = url.starts_with("postgres://") || url.starts_with("postgresql://");
        is_url.then(|| Secret::new(&url)).ok_or_else(|| {
            "expected the address of a PostgreSQL database, as postgres://USER@HOST:PORT/DATABASE".to_owned()
        })
    });
    let from_environment =
        section.get_checked("password_env", None, |name: String| key_in_variable(environment, &name));
    let from_file = section.get_path("password_file", None).and_then(|path| {
        key_in_file(&path).map_err(|message| section.problem(&["password_file"], message)).ok()
    });
    if section.is_set("password_env") && section.is_set("password_file") {
        section.problem(&["password_file"], "expected only one of password_env and password_file".to_owned());
    }
    let readers = section.get_within("readers", 8, 1..=100);
    let statement_timeout = section.get_within("statement_timeout", MINUTE, Millis::secs(1)..=HOUR);
    let retry_for = section.get_within("retry_for", Millis::secs(10), ZERO..=Millis(10 * MINUTE.0));
    if !section.is_set("url") {
        let keys = ["password_env", "password_file", "readers", "statement_timeout", "retry_for"];
        for key in keys {
            if section.is_set(key) {
                section.problem(&[key], "it is for PostgreSQL, and url is not set".to_owned());
            }
        }
    }
    let password = from_environment.or(from_file);
    url.map(|url| PostgresLocation { url, password, readers, statement_timeout, retry_for })
}

pub(in crate::config) fn log(section: &mut Section<'_, '_>) -> LogOptions {
    let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    let default = "info".to_owned();
    LogOptions {
        format: section.get_choice("format", Some("text"), &formats).unwrap_or(LogFormat::Text),
        level: section.get_checked("level", Some(&default), log_level).unwrap_or(default),
    }
}

/// Checks the filter. A misspelt level would be read as the name of a module and silence the rest of the log, so single
/// words must be levels.
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

pub(in crate::config) fn runs(section: &mut Section<'_, '_>) -> RunOptions {
    let in_doubt = section.get_within("in_doubt_timeout", Millis::secs(15 * 60), ZERO..=Millis(365 * DAY.0));
    RunOptions {
        park_after: section.get_within("park_after", Millis::secs(5), ZERO..=HOUR),
        in_doubt_timeout: (in_doubt != ZERO).then_some(in_doubt),
        tool_timeout: section.get_within("tool_timeout", Millis(10 * MINUTE.0), Millis::secs(1)..=DAY),
        caller_grace: section.get_within("caller_grace", Millis::secs(30), ZERO..=HOUR),
        subscriber_stall: section.get_within("subscriber_stall", Millis::secs(30), Millis::secs(1)..=HOUR),
        subscriber_buffer: section.get_within("subscriber_buffer", 1_024, 16..=1_000_000),
    }
}

pub(in crate::config) fn hosts(section: &mut Section<'_, '_>, is_replica: bool) -> HostOptions {
    let heartbeat_interval = section.get_within("heartbeat_interval", Millis::secs(5), MILLISECOND..=HOUR);
    let is_default = is_replica && !section.is_set("heartbeat_interval");
    let options = HostOptions {
        heartbeat_interval: if is_default { HEARTBEAT_INTERVAL_OF_REPLICAS } else { heartbeat_interval },
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
