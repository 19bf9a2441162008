//! A server in the test's process, on a free port, with a database of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use agentloop_client::v1 as wire;
use agentloop_server::app::{Server, ServerBuilder};
use agentloop_server::config::Config;
use agentloop_server::engine::Engine;
use agentloop_server::extension::LocalExtensions;
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};
use wire::agent_loop_client::AgentLoopClient;
use wire::blobs_client::BlobsClient;
use wire::server_client::ServerClient;
use wire::sessions_client::SessionsClient;
use wire::tool_host_client::ToolHostClient;
use wire::tools_client::ToolsClient;

use crate::events::Events;
use crate::model::Model;
use crate::scrape::Scrape;
use crate::soon;
use crate::stored::Stored;
use crate::vendor::{Format, Vendor};

/// The largest message that a test wants to see in one piece.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Adds parts of one's own to a server that starts.
type Extend = Arc<dyn Fn(ServerBuilder) -> ServerBuilder + Send + Sync>;

/// One provider of a server that asks several.
pub struct Provider<'a> {
    /// The name before the first `/` of a model reference.
    pub name: &'a str,
    /// The model server that the server asks.
    pub vendor: &'a Vendor,
    /// The kind of API.
    pub format: Format,
    /// More keys of its section.
    pub keys: &'a str,
}

/// A running server with its files.
pub struct TestServer {
    server: Option<Server>,
    config: String,
    extend: Extend,
    directory: TempDir,
    stored: Stored,
    channel: Channel,
    url: String,
}

impl TestServer {
    /// With this model as `fake/m`, which the agent `default` uses.
    pub async fn start(model: &Model) -> Self {
        Self::with(model, "").await
    }

    /// With more keys of the section `[server]`.
    pub async fn with_server(model: &Model, keys: &str) -> Self {
        Self::configured(model, keys, "").await
    }

    /// With more sections. `[server]`, `[store]`, `[providers.fake]` and `[agents.default]` are there already.
    pub async fn with(model: &Model, more: &str) -> Self {
        Self::configured(model, "", more).await
    }

    /// With extensions in the server's process.
    pub async fn extended(
        model: &Model,
        more: &str,
        extend: impl Fn(&mut LocalExtensions) + Send + Sync + 'static,
    ) -> Self {
        let with_extensions = move |builder: ServerBuilder| {
            let mut extensions = LocalExtensions::new();
            extend(&mut extensions);
            builder.extensions(extensions)
        };
        Self::embedded(model, "", more, Arc::new(with_extensions)).await
    }

    /// With parts of the embedder's own.
    pub async fn built(
        model: &Model,
        more: &str,
        extend: impl Fn(ServerBuilder) -> ServerBuilder + Send + Sync + 'static,
    ) -> Self {
        Self::embedded(model, "", more, Arc::new(extend)).await
    }

    /// With more keys of the section `[server]`, and with more sections.
    pub async fn configured(model: &Model, server_keys: &str, more: &str) -> Self {
        Self::embedded(model, server_keys, more, Arc::new(std::convert::identity::<ServerBuilder>)).await
    }

    async fn embedded(model: &Model, server_keys: &str, more: &str, extend: Extend) -> Self {
        let fake = format!("[providers.fake]\nkind = \"openai\"\nbase_url = \"{}\"", model.base_url());
        Self::providing(&fake, "fake/m", server_keys, more, extend).await
    }

    /// With these providers and no other, the model that the agent `default` uses, and more sections.
    pub async fn asking(providers: &[Provider<'_>], model: &str, more: &str) -> Self {
        let section = |provider: &Provider<'_>| {
            let Provider { name, vendor, format, keys } = provider;
            let (kind, url) = (format.kind(), vendor.base_url(*format));
            format!("[providers.{name}]\nkind = \"{kind}\"\nbase_url = \"{url}\"\n{keys}\n")
        };
        let sections: String = providers.iter().map(section).collect();
        let extend = Arc::new(std::convert::identity::<ServerBuilder>);
        Self::providing(&sections, model, "", more, extend).await
    }

    async fn providing(providers: &str, model: &str, server_keys: &str, more: &str, extend: Extend) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let stored = crate::postgres::new_store(directory.path().join("test.db"));
        let store = stored.keys();
        let config = format!(
            r#"
[server]
listen = "127.0.0.1:0"
shutdown_grace = "2s"
{server_keys}
[store]
{store}
{providers}
[agents.default]
model = "{model}"
[agents.default.retry]
max_retries = 2
initial_backoff = "1ms"
max_backoff = "5ms"
{more}
"#
        );
        let (server, channel, url) = start(&config, &extend, &directory).await;
        Self { server: Some(server), config, extend, directory, stored, channel, url }
    }

    /// Its database, to be read and changed past the server.
    pub fn stored(&self) -> &Stored {
        &self.stored
    }

    /// Changes its database by a statement while the server is stopped, and starts it again. Returns the number of changed rows.
    ///
    /// # Panics
    /// When that fails.
    pub async fn change_stored(&mut self, sql: &str) -> u64 {
        self.stop().await;
        let changed = self.stored.execute(sql).await;
        self.restart().await;
        changed
    }

    /// Stops it and starts it again over the same files, on another port.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn restart(&mut self) {
        self.stop().await;
        let (server, channel, url) = start(&self.config, &self.extend, &self.directory).await;
        (self.server, self.channel, self.url) = (Some(server), channel, url);
    }

    /// As [`Self::restart`], with these words of its configuration replaced.
    ///
    /// # Panics
    /// When it does not start, or has no such words.
    pub async fn reconfigure(&mut self, old: &str, new: &str) {
        assert!(self.config.contains(old), "{old} is configured");
        self.config = self.config.replace(old, new);
        self.restart().await;
    }

    /// Lets it read its certificate and tokens again.
    ///
    /// # Panics
    /// When it was stopped.
    pub async fn reload(&self) {
        self.server.as_ref().expect("the server runs").reload().await;
    }

    /// Stops it in good order.
    pub async fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            soon(server.shutdown()).await;
        }
    }

    /// Scrapes its metrics.
    ///
    /// # Panics
    /// When it serves none.
    pub async fn scrape(&self) -> Scrape {
        soon(Scrape::of(self.metrics_address())).await
    }

    /// The address of its metrics.
    ///
    /// # Panics
    /// When it serves none.
    pub fn metrics_address(&self) -> SocketAddr {
        let server = self.server.as_ref().expect("the server runs");
        server.metrics_address().expect("metrics are served")
    }

    /// Its address as a URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A connection to it.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// The engine behind the server, for tests that go past the contract.
    ///
    /// # Panics
    /// When it was stopped.
    pub fn engine(&self) -> &Engine {
        self.server.as_ref().expect("the server runs").engine()
    }

    /// A client of the service `Blobs`.
    pub fn blobs(&self) -> BlobsClient<Channel> {
        BlobsClient::new(self.channel()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// A client of the service `AgentLoop`.
    pub fn agent_loop(&self) -> AgentLoopClient<Channel> {
        AgentLoopClient::new(self.channel()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// A client of the service `Server`.
    pub fn server_service(&self) -> ServerClient<Channel> {
        ServerClient::new(self.channel())
    }

    /// A client of the service `Sessions`.
    pub fn sessions(&self) -> SessionsClient<Channel> {
        SessionsClient::new(self.channel()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// A client of the service `Tools`.
    pub fn tools(&self) -> ToolsClient<Channel> {
        ToolsClient::new(self.channel())
    }

    /// A client of the service `ToolHost`.
    pub fn tool_host(&self) -> ToolHostClient<Channel> {
        ToolHostClient::new(self.channel())
    }

    /// `Run`, to its end.
    ///
    /// # Panics
    /// When the call fails.
    pub async fn run(&self, input: wire::RunInput) -> wire::RunResult {
        Box::pin(self.try_run(input)).await.expect("the call succeeds")
    }

    /// `Run`, whatever comes of it.
    ///
    /// # Errors
    /// The call's.
    pub async fn try_run(&self, input: wire::RunInput) -> Result<wire::RunResult, tonic::Status> {
        let request = wire::RunRequest { input: Some(input) };
        let response = soon(self.agent_loop().run(request)).await?;
        Ok(response.into_inner().result.expect("a result"))
    }

    /// Calls `RunStream`, which must succeed.
    ///
    /// # Panics
    /// When the call fails.
    pub async fn stream(&self, input: wire::RunInput) -> Events {
        let request = wire::RunStreamRequest { input: Some(input), after_seq: 0 };
        Events::of_run(soon(self.agent_loop().run_stream(request)).await.expect("the call succeeds"))
    }

    /// Calls `Subscribe`, which must succeed.
    ///
    /// # Panics
    /// When the call fails.
    pub async fn subscribe(&self, run: &str, after_seq: u64) -> Events {
        let request = wire::SubscribeRequest { run_id: run.to_owned(), after_seq, durable_only: false };
        Events::of_subscription(soon(self.agent_loop().subscribe(request)).await.expect("the call succeeds"))
    }

    /// Calls `GetRun`, which must succeed.
    ///
    /// # Panics
    /// When the call fails.
    pub async fn get_run(&self, run: &str) -> wire::Run {
        let request = wire::GetRunRequest { run_id: run.to_owned() };
        let response = soon(self.agent_loop().get_run(request)).await.expect("the call succeeds");
        response.into_inner().run.expect("a run")
    }

    /// `Abort` of a run.
    ///
    /// # Panics
    /// When the call fails.
    pub async fn abort(&self, run: &str) -> wire::AbortResponse {
        let target = wire::abort_request::Target::RunId(run.to_owned());
        let request = wire::AbortRequest { target: Some(target), reason: "enough".to_owned() };
        soon(self.agent_loop().abort(request)).await.expect("the call succeeds").into_inner()
    }

    /// Calls `Step` for this run.
    ///
    /// # Errors
    /// The call's.
    pub async fn step(
        &self,
        run: &str,
        request: &str,
        approve: &str,
    ) -> Result<wire::StepResponse, tonic::Status> {
        let request = wire::StepRequest {
            run_id: run.to_owned(),
            request_id: request.to_owned(),
            approve_request_id: approve.to_owned(),
        };
        soon(self.agent_loop().step(request)).await.map(tonic::Response::into_inner)
    }

    /// Calls `ReplayRun`, which must succeed.
    ///
    /// # Panics
    /// When the call fails.
    pub async fn replay(&self, run: &str) -> wire::ReplayRunResponse {
        let request = wire::ReplayRunRequest { run_id: run.to_owned() };
        soon(self.agent_loop().replay_run(request)).await.expect("the call succeeds").into_inner()
    }

    /// Calls `SubmitApproval` with this decision.
    ///
    /// # Errors
    /// The call's.
    pub async fn decide(
        &self,
        request_id: &str,
        decision: wire::decision::Decision,
    ) -> Result<wire::HumanRequest, tonic::Status> {
        let request = wire::SubmitApprovalRequest {
            request_id: request_id.to_owned(),
            decision: Some(wire::Decision { decision: Some(decision) }),
            decided_by: "ada".to_owned(),
            ..Default::default()
        };
        let response = soon(self.agent_loop().submit_approval(request)).await?;
        Ok(response.into_inner().request.expect("the question"))
    }

    /// `ListPending`, all of them.
    ///
    /// # Panics
    /// When the call fails.
    pub async fn pending(&self) -> Vec<wire::HumanRequest> {
        let request = wire::ListPendingRequest::default();
        soon(self.agent_loop().list_pending(request)).await.expect("the call succeeds").into_inner().requests
    }

    /// `ListEntries`, the first 500.
    ///
    /// # Panics
    /// When the call fails.
    pub async fn entries(&self, session: &str) -> Vec<wire::Entry> {
        let request =
            wire::ListEntriesRequest { session_id: session.to_owned(), page_size: 500, ..Default::default() };
        soon(self.sessions().list_entries(request)).await.expect("the call succeeds").into_inner().entries
    }
}

async fn start(config: &str, extend: &Extend, directory: &TempDir) -> (Server, Channel, String) {
    let name = directory.path().join("test.toml");
    let config = Config::parse(config, &name.to_string_lossy()).expect("the configuration is right");
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let builder = extend(Server::builder(config));
    let server = soon(Box::pin(builder.start())).await.expect("the server starts");
    let url = format!("{scheme}://{}", server.address());
    let endpoint = Endpoint::from_shared(url.clone()).expect("a good address").tcp_nodelay(true);
    (server, endpoint.connect_lazy(), url)
}
