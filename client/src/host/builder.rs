//! Setting a tool host up.

use std::{collections::BTreeMap, fmt, future::Future, sync::Arc, time::Duration};

use crate::host::{Extension, HostError, Runtimes, Tool, extension::Kind, link::runtime::Runtime};
use crate::{Backoff, ClientBuilder, ids};

const CONCURRENCY: usize = 16;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
const HOST_ID_BYTES_MAX: usize = 128;

/// A tool host, ready to run.
#[derive(Debug)]
pub struct ToolHost {
    pub(crate) client: ClientBuilder,
    pub(crate) host_id: String,
    pub(crate) tools: BTreeMap<String, Tool>,
    pub(crate) extensions: BTreeMap<(Kind, String), Extension>,
    pub(crate) runtimes: Option<Runtimes>,
    pub(crate) concurrency: usize,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) drain_timeout: Duration,
    pub(crate) backoff: Backoff,
    pub(crate) listener: Listener,
}

/// Something that happened to a host, for logs and status lines.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostEvent {
    /// A server took the host in.
    Connected {
        /// The connection's name in the server's logs.
        connection_id: String,
        /// Tools that the server did not take, each with its reason.
        refused: Vec<(String, String)>,
    },
    /// The connection was lost; calls in hand go on.
    Lost {
        /// Why, for people.
        reason: String,
        /// How long the host waits before it connects again.
        retry_in: Duration,
    },
    /// The server says that the host broke the protocol.
    ProtocolError {
        /// The reason, as people read it. Programs should not depend on its words.
        message: String,
        /// The call that it was about; empty where there is none.
        call_id: String,
    },
    /// The host takes no more calls, and finishes those it has.
    Draining,
}

impl ToolHost {
    /// Begins a host of the server at `endpoint`, such as `http://127.0.0.1:50051`.
    pub fn builder(endpoint: impl Into<String>) -> ToolHostBuilder {
        ToolHostBuilder {
            host: ToolHost {
                client: ClientBuilder::new(endpoint),
                host_id: format!("rust-{}", ids::fresh()),
                tools: BTreeMap::new(),
                extensions: BTreeMap::new(),
                runtimes: None,
                concurrency: CONCURRENCY,
                labels: BTreeMap::new(),
                drain_timeout: DRAIN_TIMEOUT,
                backoff: Backoff { max_retries: u32::MAX, ..Backoff::default() },
                listener: Listener::default(),
            },
            duplicate: None,
        }
    }

    /// The host's id.
    pub fn host_id(&self) -> &str {
        &self.host_id
    }

    /// Serves calls until `shutdown` is ready, reconnecting as long as it takes; then takes no more calls, finishes
    /// those it has, hands over their results and leaves. Dropping the future drops every running call.
    ///
    /// # Errors
    /// When the server turns the host away for a reason that stays, and [`HostError::Undelivered`] when results could
    /// not be handed over in time after `shutdown`.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<(), HostError> {
        let mut runtime = Runtime::new(self)?;
        let stop = runtime.stop();
        tokio::select! {
            ended = runtime.run() => ended,
            never = async {
                shutdown.await;
                stop.cancel();
                std::future::pending::<Result<(), HostError>>().await
            } => never,
        }
    }
}

/// Sets up a [`ToolHost`].
#[derive(Debug)]
pub struct ToolHostBuilder {
    host: ToolHost,
    duplicate: Option<String>,
}

impl ToolHostBuilder {
    /// Names this process: the same through its reconnects, another after its restart. Default: made up.
    pub fn host_id(mut self, id: impl Into<String>) -> Self {
        self.host.host_id = id.into();
        self
    }

    /// Offers a tool.
    pub fn tool(mut self, tool: Tool) -> Self {
        if let Some(replaced) = self.host.tools.insert(tool.name().to_owned(), tool) {
            self.duplicate = Some(replaced.name().to_owned());
        }
        self
    }

    /// Offers a planner, a hook or a context source.
    pub fn extension(mut self, extension: Extension) -> Self {
        if let Some(replaced) = self.host.extensions.insert(extension.key(), extension) {
            self.duplicate = Some(replaced.key().1);
        }
        self
    }

    /// How to open and close what tools with [`crate::host::ToolBuilder::requires_runtime`] run in.
    pub fn runtimes(mut self, runtimes: Runtimes) -> Self {
        self.host.runtimes = Some(runtimes);
        self
    }

    /// Calls that run at a time, at least 1. The server is never granted more. Default 16.
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.host.concurrency = calls.max(1);
        self
    }

    /// Adds a label, for people.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.host.labels.insert(name.into(), value.into());
        self
    }

    /// Sends this bearer token.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.host.client = self.host.client.token(token);
        self
    }

    /// How long the host goes on after the shutdown to finish its calls and hand over their results. Default 30 s.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.host.drain_timeout = timeout;
        self
    }

    /// How the host waits between connections. It never gives up, so `max_retries` has no meaning here.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.host.backoff = backoff;
        self
    }

    /// Calls `listener` on every [`HostEvent`]. It must not block.
    pub fn on_event(mut self, listener: impl Fn(&HostEvent) + Send + Sync + 'static) -> Self {
        self.host.listener = Listener(Some(Arc::new(listener)));
        self
    }

    /// Completes the host.
    ///
    /// # Errors
    /// When it has nothing to offer, two of one name, or a tool or an id that a server would refuse.
    pub fn build(self) -> Result<ToolHost, HostError> {
        let host = self.host;
        if let Some(tool) = self.duplicate {
            return Err(HostError::InvalidTool { tool, problem: "is given twice".into() });
        }
        if host.tools.is_empty() && host.extensions.is_empty() {
            return Err(HostError::NoTools);
        }
        host.tools.values().try_for_each(Tool::check)?;
        if !is_id(&host.host_id) {
            return Err(HostError::InvalidHostId(host.host_id));
        }
        Ok(host)
    }
}

fn is_id(id: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
    !id.is_empty() && id.len() <= HOST_ID_BYTES_MAX && id.chars().all(allowed)
}

/// Who is told of events, if anybody.
#[derive(Clone, Default)]
pub(crate) struct Listener(Option<Arc<Listen>>);

type Listen = dyn Fn(&HostEvent) + Send + Sync;

impl Listener {
    pub(crate) fn tell(&self, event: &HostEvent) {
        tracing::debug!(?event, "tool host");
        if let Some(listener) = &self.0 {
            listener(event);
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Listener" } else { "no listener" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{CallContext, NoArguments, ToolError};

    async fn nothing(_: NoArguments, _: CallContext) -> Result<(), ToolError> {
        Ok(())
    }

    fn tool(name: &str) -> Tool {
        Tool::new(name, "d").handler(nothing)
    }

    #[test]
    fn what_a_server_would_refuse_is_refused_here() {
        let host = || ToolHost::builder("localhost:1");
        assert!(matches!(host().build(), Err(HostError::NoTools)));
        let twice = host().tool(tool("t")).tool(tool("t")).build();
        assert!(matches!(twice, Err(HostError::InvalidTool { .. })));
        for id in ["", "with space", "slash/"] {
            let named = host().tool(tool("t")).host_id(id).build();
            assert!(matches!(named, Err(HostError::InvalidHostId(_))), "{id}");
        }
        assert!(host().tool(tool("t")).build().is_ok(), "the id that is made up is a good one");
    }
}
