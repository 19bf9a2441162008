//! The listeners of a server: the one for callers and hosts, and the one for those who read metrics.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use super::host_check::HostCheck;
use super::{CallerListener, metrics};
use crate::app::security::{Reloader, Security, keep_current};
use crate::app::{StartError, listen};
use crate::auth::jwt::KeySource;
use crate::auth::{Authentication, Quotas};
use crate::clock::Clock;
use crate::config::{Config, ServerOptions};
use crate::grpc::edge::identity::{CredentialCheck, IdentityLayer};
use crate::lifecycle::Tasks;
use crate::telemetry::metrics::Metrics;

/// Sockets that listen, and what protects them.
pub(in crate::app) struct Listeners {
    /// The address for callers and hosts.
    pub(in crate::app) address: SocketAddr,
    /// The address for metrics, if they are configured.
    pub(in crate::app) metrics_address: Option<SocketAddr>,
    /// The metrics, if they are configured.
    pub(in crate::app) metrics: Option<Metrics>,
    /// Reads certificates and tokens again, if there are any.
    pub(in crate::app) reloader: Option<Arc<Reloader>>,
    /// The demand that callers present credentials.
    pub(in crate::app) authentication: Authentication,
    options: ServerOptions,
    listener: TcpListener,
    scrapes: Option<(TcpListener, HostCheck)>,
    security: Security,
}

impl Listeners {
    /// Listens on the configured addresses. Nothing is served yet.
    ///
    /// # Errors
    /// [`StartError::Listen`].
    pub(in crate::app) async fn listen(config: &Config, security: Security) -> Result<Self, StartError> {
        let (listener, address) = listen(config.server.listen).await?;
        let (mut scrapes, mut metrics_address, mut counted) = (None, None, None);
        if let Some(configured) = config.metrics.listen {
            let (listener, found) = listen(configured).await?;
            scrapes = Some((listener, HostCheck::new(&config.metrics)));
            metrics_address = Some(found);
            counted = Some(Metrics::new(metrics::known_models(config)));
        }
        Ok(Self {
            address,
            metrics_address,
            metrics: counted,
            reloader: security.reloader.clone(),
            authentication: Authentication::by(security.authenticator.as_ref()),
            options: config.server.clone(),
            listener,
            scrapes,
            security,
        })
    }

    /// Starts what serves metrics, and what reads certificates and tokens again. Returns the listener for callers, to be
    /// served. `identity` is given what checks the credentials of callers, if they must present any.
    pub(in crate::app) fn start(
        self,
        quotas: Option<Quotas>,
        clock: Arc<dyn Clock>,
        identity: impl FnOnce(Option<CredentialCheck>) -> IdentityLayer,
        tasks: &Tasks,
    ) -> CallerListener {
        let Self { metrics_address, metrics, options, listener, scrapes, security, .. } = self;
        if let (Some((listener, hosts)), Some(address), Some(metrics)) = (scrapes, metrics_address, &metrics)
        {
            let serving = metrics::serve(listener, address, metrics.clone(), hosts, tasks.soft().clone());
            drop(tasks.spawn("metrics", serving));
            tracing::info!(%address, "serving metrics");
        }
        security.describe();
        if let Some(reloader) = &security.reloader {
            drop(
                tasks.spawn("certificates and tokens", keep_current(reloader.clone(), tasks.soft().clone())),
            );
        }
        let check = security.authenticator.map(|authenticator| {
            let counted = metrics.clone();
            let keys = security.jwks.map(|jwks| jwks as Arc<dyn KeySource>);
            CredentialCheck::new(authenticator, keys, clock, quotas, move |cause| {
                counted.iter().for_each(|metrics| metrics.rejected(cause));
            })
        });
        let (acceptor, identity) = (security.acceptor, identity(check));
        CallerListener { listener, options, metrics, acceptor, identity }
    }
}
