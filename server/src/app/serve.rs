//! Serves gRPC: the services, their limits, health and reflection.

use std::sync::Arc;
use std::time::Duration;

use agentloop_proto::FILE_DESCRIPTOR_SET;
use agentloop_proto::v1::agent_loop_server::AgentLoopServer;
use agentloop_proto::v1::sessions_server::SessionsServer;
use agentloop_proto::v1::{
    agent_loop_server, blobs_server, server_server, sessions_server, tool_host_server, tools_server,
};
use futures_util::StreamExt as _;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tower::util::{MapRequestLayer, MapResponseLayer};

use crate::config::ServerOptions;
use crate::engine::Engine;
use crate::grpc::convert::input::Agents;
use crate::grpc::edge::audit::AuditLog;
use crate::grpc::edge::identity::{Gate, IdentityLayer};
use crate::grpc::edge::incoming::{connections, tls_connections};
use crate::grpc::edge::receive_budget::ReceiveBudget;
use crate::grpc::edge::tls::Acceptor;
use crate::grpc::edge::transport_errors::{overload_reason, with_contract_status};
use crate::grpc::service::agent_loop::AgentLoopService;
use crate::grpc::service::blobs::BlobsService;
use crate::grpc::service::server::{ServerFacts, ServerService};
use crate::grpc::service::sessions::SessionsService;
use crate::grpc::service::tool_host::ToolHostService;
use crate::grpc::service::tools::ToolsService;
use crate::ids::Ids;
use crate::lifecycle::Tasks;
use crate::model::Models;
use crate::store::Store;
use crate::telemetry::metrics::Metrics;
use crate::tool::RemoteTools;

/// The time between two checks that the store still answers.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// The time between two keepalive pings on an idle connection.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(20);
/// A connection that does not answer a keepalive ping for this long is closed.
const KEEPALIVE_WAIT: Duration = Duration::from_secs(20);
/// All headers of a request together, in bytes.
const HEADERS_BYTES_MAX: u32 = 16 * 1024;
/// The most streams that a client may open and reset before they are accepted. More of them end its connection.
const PENDING_RESETS_MAX: usize = 64;
/// The health service that says only that the process lives, whatever the store's state.
const LIVENESS: &str = "liveness";
/// The health services that say if the server takes requests: it as a whole, and each of its services.
const READINESS: [&str; 7] = [
    "",
    agent_loop_server::SERVICE_NAME,
    blobs_server::SERVICE_NAME,
    server_server::SERVICE_NAME,
    sessions_server::SERVICE_NAME,
    tool_host_server::SERVICE_NAME,
    tools_server::SERVICE_NAME,
];

/// Everything that the services need.
pub(super) struct Services {
    pub(super) engine: Engine,
    pub(super) models: Arc<dyn Models>,
    pub(super) agents: Arc<Agents>,
    pub(super) tools: Arc<RemoteTools>,
    pub(super) ids: Arc<dyn Ids>,
    pub(super) store: Arc<dyn Store>,
    pub(super) facts: ServerFacts,
    /// Time after which a transfer of a blob that stands still is ended.
    pub(super) blobs_idle: Duration,
    /// Counts refused calls, if metrics are configured.
    pub(super) metrics: Option<Metrics>,
    /// The newest acceptor, if there is TLS.
    pub(super) acceptor: Option<watch::Receiver<Acceptor>>,
    /// Checks the credentials of callers, if they must present any.
    pub(super) gate: Option<Gate>,
    /// The audit log, if one is written.
    pub(super) audit: Option<AuditLog>,
}

/// Serves until the soft stop, then waits until every call has ended.
pub(super) async fn serve(listener: TcpListener, services: Services, options: ServerOptions, tasks: Tasks) {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_service_status(LIVENESS, ServingStatus::Serving).await;
    // Before the first call is answered, so that nobody is told that a store works which does not.
    let ready = check(&health, &*services.store, None).await;
    drop(tasks.spawn("health", watch(health, services.store, tasks.clone(), ready)));
    let reflect = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // With these, clients without proto files can read the details of an error.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    let reflection = reflect().build_v1().expect("the descriptors were compiled with this program");
    // Many tools still use the older version.
    let older_reflection =
        reflect().build_v1alpha().expect("the descriptors were compiled with this program");
    let max = options.max_message_bytes;
    let metrics = services.metrics.clone();
    let server = ServerService::server(
        services.facts,
        services.engine.clone(),
        services.models.clone(),
        services.agents.clone(),
    );
    let agent_loop = AgentLoopService::new(services.engine.clone(), services.models, services.agents.clone());
    let sessions = SessionsService::new(services.engine.clone(), services.ids);
    let hosts = services.tools.clone();
    let blobs = BlobsService::server(
        services.engine.clone(),
        services.blobs_idle,
        tasks.soft().clone(),
        tasks.tracker().clone(),
    );
    let quotas = services.engine.quotas().cloned();
    let stop = tasks.soft().clone();
    let offers_wait = super::offers_wait(options.shutdown_grace.duration());
    let stopped = async move {
        stop.cancelled().await;
        hosts.close_offers(offers_wait).await;
        hosts.go_away();
        hosts.close();
    };
    let receive_budget = ReceiveBudget::new();
    let incoming = match services.acceptor {
        Some(acceptor) => tls_connections(listener, options.max_connections, acceptor).left_stream(),
        None => connections(listener, options.max_connections).right_stream(),
    };
    let served = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE_EVERY))
        .http2_keepalive_timeout(Some(KEEPALIVE_WAIT))
        .http2_max_header_list_size(HEADERS_BYTES_MAX)
        .http2_max_pending_accept_reset_streams(Some(PENDING_RESETS_MAX))
        .max_concurrent_streams(options.max_concurrent_streams)
        .layer(MapResponseLayer::new(move |response| {
            let response = with_contract_status(response);
            if let Some(metrics) = &metrics
                && let Some(reason) = overload_reason(&response)
            {
                metrics.refused(reason);
            }
            response
        }))
        .layer(IdentityLayer::new(services.gate, services.audit))
        .layer(MapRequestLayer::new(move |request| receive_budget.limit(request)))
        .add_service(health_service)
        .add_service(reflection)
        .add_service(older_reflection)
        .add_service(AgentLoopServer::new(agent_loop).max_decoding_message_size(max))
        .add_service(blobs.max_decoding_message_size(max))
        .add_service(server)
        .add_service(SessionsServer::new(sessions).max_decoding_message_size(max))
        .add_service(ToolHostService::server(services.tools.clone(), tasks.tracker().clone(), quotas))
        .add_service(ToolsService::server(services.tools, services.engine, services.agents))
        .serve_with_incoming_shutdown(incoming, stopped)
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "the gRPC server failed; shutting down");
        tasks.soft().cancel();
    }
}

/// Keeps the health status up to date: serving while the store answers and no shutdown has begun.
async fn watch(health: HealthReporter, store: Arc<dyn Store>, tasks: Tasks, mut ready: bool) {
    while tasks.soft().run_until_cancelled(tokio::time::sleep(CHECK_EVERY)).await.is_some() {
        ready = check(&health, &*store, Some(ready)).await;
    }
    set_readiness(&health, ServingStatus::NotServing).await;
}

async fn set_readiness(health: &HealthReporter, status: ServingStatus) {
    for service in READINESS {
        health.set_service_status(service, status).await;
    }
}

/// Checks the store and reports a change. Returns true if it answers.
async fn check(health: &HealthReporter, store: &dyn Store, before: Option<bool>) -> bool {
    let now = store.check().await;
    if let Err(error) = &now
        && before != Some(false)
    {
        tracing::error!(%error, "the store does not answer; not ready");
    }
    if before != Some(now.is_ok()) {
        let status = if now.is_ok() { ServingStatus::Serving } else { ServingStatus::NotServing };
        set_readiness(health, status).await;
    }
    now.is_ok()
}
