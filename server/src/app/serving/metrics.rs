//! Serves `GET /metrics` on an address of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HOST, HeaderName, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::host_check::{HostCheck, HostProblem};
use crate::app::security::Reloader;
use crate::app::store::OwnStore;
use crate::cluster::{HUB, Ownerships, ReplicaPart, Replicas, TakeoverCounts};
use crate::config::Config;
use crate::engine::Engine;
use crate::grpc::edge::audit::AuditLog;
use crate::grpc::edge::forward::wire::links::{Links, SentOnCounts};
use crate::grpc::edge::incoming::{Connection, connections};
use crate::telemetry::metrics::{self, MemoryReadings, Metrics, Readings, ReplicaReadings, StoreReadings};
use crate::telemetry::models::KnownModels;
use crate::tool::RemoteTools;

/// The most connections at one time. A scraper needs one.
const CONNECTIONS_MAX: usize = 16;
/// The longest time that open connections may delay the shutdown.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);

/// Every model that the configuration names. Only these become labels; all others count as one.
pub(in crate::app) fn known_models(config: &Config) -> KnownModels {
    let of_agents = config.agents.values().flat_map(|agent| {
        let also = [&agent.context.summary_model, &agent.background.model];
        std::iter::once(agent.model.clone()).chain(also.into_iter().flatten().cloned())
    });
    let of_providers = config
        .providers
        .iter()
        .flat_map(|(provider, known)| known.models.keys().map(move |model| format!("{provider}/{model}")));
    of_agents.chain(of_providers).filter(|model| !model.is_empty()).collect()
}

/// The sources that are read at a scrape.
pub(in crate::app) struct Sources {
    pub(in crate::app) engine: Engine,
    pub(in crate::app) tools: Arc<RemoteTools>,
    pub(in crate::app) store: Option<OwnStore>,
    pub(in crate::app) reloader: Option<Arc<Reloader>>,
    pub(in crate::app) audit: Option<AuditLog>,
}

/// Registers the gauges and counters that are read at a scrape rather than counted at an event.
pub(in crate::app) fn read_at_scrape(metrics: &Metrics, sources: Sources) {
    let Sources { engine, tools, store, reloader, audit } = sources;
    metrics.read_at_scrape(move || {
        let hosts = tools.counts();
        let memory = engine.memory_use();
        let written = store.as_ref().map(OwnStore::stats);
        Readings {
            live_runs: engine.live_runs(),
            hosts: hosts.connected,
            calls: hosts.calls,
            queued_calls: hosts.queued,
            memory: MemoryReadings {
                used: memory.bytes,
                bound: memory.bytes_max,
                waiting: engine.waiting_for_memory(),
            },
            weaker_declarations: tools.weaker_declarations(),
            slow_subscribers: engine.slow_subscribers(),
            certificate_not_after: reloader.as_ref().and_then(|reloader| reloader.certificate_not_after()),
            retired_sessions: engine.retired_sessions(),
            audit: audit.as_ref().map(AuditLog::counts),
            quotas: engine.quota_readings(),
            store: written.map(|written| StoreReadings {
                appends: written.appends,
                commits: written.commits,
                bytes: written.bytes,
            }),
        }
    });
}

/// Registers the gauges of replicas that share a database.
pub(in crate::app) fn read_replicas_at_scrape(
    metrics: &Metrics,
    ownerships: Ownerships,
    replicas: Arc<dyn Replicas>,
    (takeovers, links): (Arc<TakeoverCounts>, Links),
    reloader: Option<Arc<Reloader>>,
) {
    metrics.read_replicas_at_scrape(move || {
        let rows = replicas.rows();
        let SentOnCounts { responded, moved, unreached, lost } = links.sent_on();
        let living = rows.iter().filter(|row| row.part != ReplicaPart::Fenced);
        ReplicaReadings {
            shards: match &*ownerships.borrow() {
                ownership if ownership.is_valid() => ownership.own().count(),
                _ => 0,
            },
            has_lease: ownerships.borrow().is_valid(),
            is_outdated: takeovers.is_outdated(),
            claimed_shards: takeovers.claimed_shards(),
            fences: takeovers.fences(),
            sent_on: [("responded", responded), ("moved", moved), ("unreached", unreached), ("lost", lost)],
            keeps_hosts: ownerships.borrow().is_mine(HUB),
            living: living.clone().count(),
            silent_for: living.filter_map(|row| row.silent_for).max().unwrap_or_default(),
            certificate_not_after: reloader.as_ref().and_then(|reloader| reloader.links_not_after()),
        }
    });
}

/// A listener with a bound on its connections.
struct ScrapeListener {
    connections: BoxStream<'static, io::Result<Connection>>,
    address: SocketAddr,
}

impl Listener for ScrapeListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            if let Some(Ok(connection)) = self.connections.next().await {
                return (connection, self.address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// Serves scrapes until the soft stop.
pub(super) async fn serve(
    listener: TcpListener,
    address: SocketAddr,
    metrics: Metrics,
    hosts: HostCheck,
    stop: CancellationToken,
) {
    let listener = ScrapeListener { connections: connections(listener, CONNECTIONS_MAX).boxed(), address };
    let app = Router::new()
        .route("/metrics", get(scrape))
        .layer(from_fn_with_state(Arc::new(hosts), check_host))
        .with_state(metrics);
    let stopped = stop.clone();
    let served = axum::serve(listener, app).with_graceful_shutdown(async move { stopped.cancelled().await });
    let grace = async {
        stop.cancelled().await;
        tokio::time::sleep(LEAVE_WITHIN).await;
    };
    tokio::select! {
        served = async { served.await } => {
            if let Err(error) = served {
                tracing::error!(%error, "the metrics endpoint failed; metrics are not served any more");
            }
        }
        () = grace => {}
    }
}

async fn scrape(State(metrics): State<Metrics>) -> impl IntoResponse {
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics.text())
}

/// Refuses what is meant for another name, or comes from a page of another origin.
async fn check_host(State(hosts): State<Arc<HostCheck>>, request: Request, next: Next) -> Response {
    let target = request.uri().authority().map(|authority| authority.as_str());
    let headers = request.headers();
    match hosts.check(target, text(headers, HOST), text(headers, ORIGIN)) {
        Ok(()) => next.run(request).await,
        Err(HostProblem::Host) => {
            let message = "this endpoint does not serve this host; metrics.allowed_hosts has the names\n";
            (StatusCode::MISDIRECTED_REQUEST, message).into_response()
        }
        Err(HostProblem::Origin) => {
            let message = "this endpoint does not serve pages of this origin; metrics.allowed_origins has the origins\n";
            (StatusCode::FORBIDDEN, message).into_response()
        }
    }
}

/// A header that is there once. Of several, none could be trusted, so they read like one that no list has.
fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    Some(value.to_str().ok().filter(|_| values.next().is_none()).unwrap_or_default())
}
