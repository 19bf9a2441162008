//! The builder of a tool host, and the host that it makes.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use crate::host::{
    config::{HostConfig, HostEvent, HostListener, HostStatus},
    error::HostError,
    extension::Extension,
    link::reconnect::ReconnectLoop,
    runtimes::Runtimes,
    tool::Tool,
};
use crate::{Backoff, ClientBuilder, ids};

const CONCURRENCY: usize = 16;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
const HOST_ID_BYTES_MAX: usize = 128;

/// A configured tool host.
#[derive(Debug)]
pub struct ToolHost {
    pub(in crate::host) config: HostConfig,
}

impl ToolHost {
    /// Starts to build a host for the server at `endpoint`, such as `http://127.0.0.1:50051`.
    pub fn builder(endpoint: impl Into<String>) -> ToolHostBuilder {
        ToolHostBuilder {
            config: HostConfig {
                client: ClientBuilder::new(endpoint),
                host_id: format!("rust-{}", ids::fresh()),
                tools: BTreeMap::new(),
                extensions: BTreeMap::new(),
                runtimes: None,
                concurrency: CONCURRENCY,
                labels: BTreeMap::new(),
                drain_timeout: DRAIN_TIMEOUT,
                backoff: Backoff { max_retries: u32::MAX, ..Backoff::default() },
                listener: HostListener::default(),
                status: HostStatus::default(),
            },
            duplicate: None,
        }
    }

    /// The id of this process. It is the same through all reconnects.
    pub fn host_id(&self) -> &str {
        &self.config.host_id
    }

    /// Serves calls until `shutdown` is ready, and reconnects for as long as it takes. Then the host accepts no more
    /// calls, finishes those that run, delivers their results and disconnects. Dropping the future drops every running
    /// call.
    ///
    /// # Errors
    /// When the server refuses the host for a lasting reason. [`HostError::Undelivered`] when results could not be
    /// delivered in time after `shutdown`.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<(), HostError> {
        let mut host = ReconnectLoop::new(self.config)?;
        let stop = host.shutdown_token();
        tokio::select! {
            ended = host.run() => ended,
            never = async {
                shutdown.await;
                stop.cancel();
                std::future::pending::<Result<(), HostError>>().await
            } => never,
        }
    }
}

/// Builder of a [`ToolHost`].
#[derive(Debug)]
pub struct ToolHostBuilder {
    config: HostConfig,
    /// Name of a tool or extension that was added twice.
    duplicate: Option<String>,
}

impl ToolHostBuilder {
    /// Sets the id of this process. A restarted process needs another one. Default: a new random id.
    pub fn host_id(mut self, id: impl Into<String>) -> Self {
        self.config.host_id = id.into();
        self
    }

    /// Trusts servers whose certificate leads to one of these roots, in PEM, instead of those of the system.
    pub fn tls_ca(mut self, pem: impl Into<String>) -> Self {
        self.config.client = self.config.client.tls_ca(pem);
        self
    }

    /// Presents this certificate, in PEM, to the server. The key, in PEM, belongs to it.
    pub fn tls_identity(mut self, certificate: impl Into<String>, key: impl Into<String>) -> Self {
        self.config.client = self.config.client.tls_identity(certificate, key);
        self
    }

    /// Expects this name in the server's certificate, where it is not the one in the address.
    pub fn tls_server_name(mut self, name: impl Into<String>) -> Self {
        self.config.client = self.config.client.tls_server_name(name);
        self
    }

    /// Adds a tool. Two tools of one name make [`ToolHostBuilder::build`] fail.
    pub fn tool(mut self, tool: Tool) -> Self {
        if let Some(replaced) = self.config.tools.insert(tool.name().to_owned(), tool) {
            self.duplicate = Some(replaced.name().to_owned());
        }
        self
    }

    /// Adds a planner, a hook or a context source.
    pub fn extension(mut self, extension: Extension) -> Self {
        if let Some(replaced) = self.config.extensions.insert(extension.key(), extension) {
            self.duplicate = Some(replaced.key().1);
        }
        self
    }

    /// Sets the functions that open and close the runtimes of tools with
    /// [`crate::host::ToolBuilder::requires_runtime`].
    pub fn runtimes(mut self, runtimes: Runtimes) -> Self {
        self.config.runtimes = Some(runtimes);
        self
    }

    /// Sets the number of calls that run at a time, at least 1. Default 16.
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.config.concurrency = calls.max(1);
        self
    }

    /// Adds a label that people see in the list of hosts.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.config.labels.insert(name.into(), value.into());
        self
    }

    /// Sets a function that tells people the host's state, such as `"3 browsers open"`. It is called before each heartbeat, and
    /// must not block. A panic is logged. The first 1 KiB of the text is sent.
    pub fn status(mut self, status: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.config.status = HostStatus(Some(Arc::new(status)));
        self
    }

    /// Sends this bearer token to the server.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.config.client = self.config.client.token(token);
        self
    }

    /// Sets the time that a shutdown may take to finish running calls and deliver their results. Default 30 s.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.config.drain_timeout = timeout;
        self
    }

    /// Sets the waits between connections. The host never gives up, so `max_retries` has no effect.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.config.backoff = backoff;
        self
    }

    /// Calls `listener` on every [`HostEvent`]. It must not block. A panic is logged.
    pub fn on_event(mut self, listener: impl Fn(&HostEvent) + Send + Sync + 'static) -> Self {
        self.config.listener = HostListener(Some(Arc::new(listener)));
        self
    }

    /// Completes the host.
    ///
    /// # Errors
    /// When it has no tools and no extensions, two of one name, or a tool or an id that a server would refuse.
    pub fn build(self) -> Result<ToolHost, HostError> {
        let config = self.config;
        if let Some(tool) = self.duplicate {
            return Err(HostError::InvalidTool { tool, problem: "is given twice".into() });
        }
        if config.tools.is_empty() && config.extensions.is_empty() {
            return Err(HostError::NoTools);
        }
        config.tools.values().try_for_each(Tool::check)?;
        if !is_id(&config.host_id) {
            return Err(HostError::InvalidHostId(config.host_id));
        }
        Ok(ToolHost { config })
    }
}

fn is_id(id: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
    !id.is_empty() && id.len() <= HOST_ID_BYTES_MAX && id.chars().all(allowed)
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
    fn a_host_that_a_server_would_refuse_is_not_built() {
        let host = || ToolHost::builder("localhost:1");
        assert!(matches!(host().build(), Err(HostError::NoTools)));
        let twice = host().tool(tool("t")).tool(tool("t")).build();
        assert!(matches!(twice, Err(HostError::InvalidTool { .. })));
        for id in ["", "with space", "slash/"] {
            let named = host().tool(tool("t")).host_id(id).build();
            assert!(matches!(named, Err(HostError::InvalidHostId(_))), "{id}");
        }
        assert!(host().tool(tool("t")).build().is_ok(), "the random id is valid");
    }
}
