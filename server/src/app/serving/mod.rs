//! Serves gRPC: the services, their limits, health and reflection. Beside it, the listeners and the endpoint of the metrics.

pub(super) mod health;
mod host_check;
pub(super) mod listeners;
pub(super) mod metrics;
mod reflection;

use std::sync::Arc;
use std::time::Duration;

use agentloop_proto::v1::agent_loop_server::AgentLoopServer;
use agentloop_proto::v1::sessions_server::SessionsServer;
use futures_util::StreamExt as _;
use tokio::net::TcpListener;
use tokio::sync::watch;
pub(super) use tonic::service::Routes;
use tonic::transport::Server;
use tower::util::{MapRequestLayer, MapResponseLayer, option_layer};

use self::health::Readiness;
use self::reflection::with_reflection;
use crate::config::ServerOptions;
use crate::engine::Engine;
use crate::grpc::convert::run_input::input::Agents;
use crate::grpc::edge::deadline::DeadlineLayer;
use crate::grpc::edge::forward::layer::ForwardLayer;
use crate::grpc::edge::identity::IdentityLayer;
use crate::grpc::edge::incoming::{connections, tls_connections};
use crate::grpc::edge::receive_budget::ReceiveBudget;
use crate::grpc::edge::request_size::{ImportsApart, import_bytes_max};
use crate::grpc::edge::tls::Acceptor;
use crate::grpc::edge::transport_errors::{overload_reason, with_contract_status};
use crate::grpc::service::agent_loop::AgentLoopService;
use crate::grpc::service::blobs::BlobsService;
use crate::grpc::service::server::{ServerFacts, ServerService, SharedDatabase};
use crate::grpc::service::sessions::SessionsService;
use crate::grpc::service::tool_host::ToolHostService;
use crate::grpc::service::tools::ToolsService;
use crate::ids::Ids;
use crate::lifecycle::Tasks;
use crate::model::Models;
use crate::telemetry::metrics::Metrics;
use crate::tool::RemoteTools;

/// The time between two keepalive pings on an idle connection.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(20);
/// A connection that does not return a keepalive ping for this long is closed.
const KEEPALIVE_WAIT: Duration = Duration::from_secs(20);
/// All headers of a request together, in bytes.
const HEADERS_BYTES_MAX: u32 = 16 * 1024;
/// The most streams that a client may open and reset before they are accepted. More of them end its connection.
const PENDING_RESETS_MAX: usize = 64;

/// Everything that the services need.
pub(super) struct Services {
    pub(super) engine: Engine,
    pub(super) models: Arc<dyn Models>,
    pub(super) agents: Arc<Agents>,
    pub(super) tools: Arc<RemoteTools>,
    pub(super) ids: Arc<dyn Ids>,
    pub(super) facts: ServerFacts,
    /// Time after which a transfer of a blob that stands still is ended.
    pub(super) blobs_idle: Duration,
    /// The replicas that share the database, if it is shared.
    pub(super) shared_database: Option<SharedDatabase>,
}

impl Services {
    /// The services of the contract, which take messages of so many bytes.
    pub(super) fn routes(self, max: usize, tasks: &Tasks) -> Routes {
        let Self { engine, models, agents, tools, ids, facts, blobs_idle, shared_database } = self;
        let server =
            ServerService::server(facts, engine.clone(), models.clone(), agents.clone(), shared_database);
        let agent_loop = AgentLoopService::new(engine.clone(), models, agents.clone());
        let sessions = SessionsService::new(engine.clone(), ids);
        let (soft, tracker) = (tasks.soft().clone(), tasks.tracker().clone());
        let blobs = BlobsService::server(engine.clone(), blobs_idle, soft, tracker.clone());
        let quotas = engine.quotas().cloned();
        let mut routes = Routes::builder();
        routes
            .add_service(AgentLoopServer::new(agent_loop).max_decoding_message_size(max))
            .add_service(blobs.max_decoding_message_size(max))
            .add_service(server)
            .add_service(ImportsApart::new(
                SessionsServer::new(sessions.clone()).max_decoding_message_size(import_bytes_max(max)),
                SessionsServer::new(sessions).max_decoding_message_size(max),
            ))
            .add_service(ToolHostService::server(tools.clone(), tracker, quotas))
            .add_service(ToolsService::server(tools, engine, agents));
        routes.routes()
    }
}

/// The listener for callers and hosts.
pub(super) struct CallerListener {
    pub(super) listener: TcpListener,
    pub(super) options: ServerOptions,
    /// Counts refused RPCs, if metrics are configured.
    pub(super) metrics: Option<Metrics>,
    /// The newest acceptor, if there is TLS.
    pub(super) acceptor: Option<watch::Receiver<Acceptor>>,
    /// Finds out who calls, and has the audit log written.
    pub(super) identity: IdentityLayer,
}

/// Serves until `stopped`, then waits until every RPC has ended. With a forward layer, RPCs of the contract go there, and not to
/// the routes.
pub(super) async fn serve(
    caller_listener: CallerListener,
    routes: Routes,
    forward: Option<ForwardLayer>,
    readiness: Readiness,
    stopped: impl Future<Output = ()>,
    tasks: Tasks,
) {
    let CallerListener { listener, options, metrics, acceptor, identity } = caller_listener;
    let (health, health_service) = tonic_health::server::health_reporter();
    health::report(health, readiness, &tasks).await;
    let receive_budget = ReceiveBudget::new();
    let incoming = match acceptor {
        Some(acceptor) => {
            let failed = identity.failed_handshakes();
            tls_connections(listener, options.max_connections, acceptor, failed).left_stream()
        }
        None => connections(listener, options.max_connections).right_stream(),
    };
    let served = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE_EVERY))
        .http2_keepalive_timeout(Some(KEEPALIVE_WAIT))
        .http2_max_header_list_size(HEADERS_BYTES_MAX)
        .http2_max_pending_accept_reset_streams(Some(PENDING_RESETS_MAX))
        .max_concurrent_streams(options.max_concurrent_streams)
        .layer(DeadlineLayer)
        .layer(MapResponseLayer::new(move |response| {
            let response = with_contract_status(response);
            if let Some(metrics) = &metrics
                && let Some(reason) = overload_reason(&response)
            {
                metrics.refused(reason);
            }
            response
        }))
        .layer(identity)
        .layer(MapRequestLayer::new(move |request| receive_budget.limit(request)))
        .layer(option_layer(forward))
        .add_routes(with_reflection(routes).add_service(health_service))
        .serve_with_incoming_shutdown(incoming, stopped)
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "the gRPC server failed; shutting down");
        tasks.soft().cancel();
    }
}
