//! The configuration of a tool host, and the listener for its events.

use std::{
    collections::BTreeMap,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use crate::host::{
    call::outcome::cut,
    extension::{CapabilityKind, Extension},
    runtimes::Runtimes,
    tool::Tool,
};
use crate::{Backoff, ClientBuilder};

/// The length of a host's status that the server shows.
const STATUS_BYTES_MAX: usize = 1024;

/// Everything that the builder collects, checked.
#[derive(Debug)]
pub(crate) struct HostConfig {
    pub(crate) client: ClientBuilder,
    pub(crate) host_id: String,
    pub(crate) tools: BTreeMap<String, Tool>,
    pub(crate) extensions: BTreeMap<(CapabilityKind, String), Extension>,
    pub(crate) runtimes: Option<Runtimes>,
    pub(crate) concurrency: usize,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) drain_timeout: Duration,
    pub(crate) backoff: Backoff,
    pub(crate) listener: HostListener,
    pub(crate) status: HostStatus,
}

/// The function that gives a host's words about itself, if it has one.
#[derive(Clone, Default)]
pub(crate) struct HostStatus(pub(crate) Option<Arc<dyn Fn() -> String + Send + Sync>>);

impl HostStatus {
    pub(crate) fn text(&self) -> String {
        let Some(status) = &self.0 else { return String::new() };
        // A panic would end the host.
        let mut text = catch_unwind(AssertUnwindSafe(|| status())).unwrap_or_else(|_| {
            tracing::error!("the function of the host's status panicked");
            String::new()
        });
        cut(&mut text, STATUS_BYTES_MAX);
        text
    }
}

impl fmt::Debug for HostStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostStatus")
    }
}

/// Something that happened to a host, for logs and status lines.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostEvent {
    /// A server accepted the host.
    Connected {
        /// The connection's name in the server's logs.
        connection_id: String,
        /// Tools and extensions that the server refused.
        refused: Vec<RefusedCapability>,
    },
    /// The connection was lost; running calls go on.
    Lost {
        /// The reason, for people.
        reason: String,
        /// The wait until the host connects again.
        retry_in: Duration,
    },
    /// The server says that the host broke the protocol.
    ProtocolError {
        /// The reason, for people. Programs should not depend on its words.
        message: String,
        /// The call that it is about; empty if there is none.
        call_id: String,
    },
    /// The host shuts down: it accepts no more calls, and finishes those that run.
    Draining,
}

/// A tool or an extension that a server refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedCapability {
    /// Name of the tool or extension.
    pub name: String,
    /// The server's reason, for people.
    pub reason: String,
}

/// The caller's function for host events, if there is one.
#[derive(Clone, Default)]
pub(crate) struct HostListener(pub(crate) Option<Arc<ListenerFn>>);

type ListenerFn = dyn Fn(&HostEvent) + Send + Sync;

impl HostListener {
    pub(crate) fn notify(&self, event: &HostEvent) {
        tracing::debug!(?event, "tool host");
        if let Some(listener) = &self.0 {
            // A panic would end the host.
            if catch_unwind(AssertUnwindSafe(|| listener(event))).is_err() {
                tracing::error!("the listener of the host's events panicked");
            }
        }
    }
}

impl fmt::Debug for HostListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "HostListener" } else { "no listener" })
    }
}
