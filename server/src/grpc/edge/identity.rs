//! The identity of callers: takes the credentials out of each request, calls the authenticator, and puts the principal into the
//! request. Without authentication every request passes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{self, header};
use tower::{Layer, Service};

use crate::auth::jwt::KeySource;
use crate::auth::{
    Authenticator, Credentials, Identity, Principal, Quota, QuotaExceeded, Quotas, Rejection, UsePermit,
};
use crate::clock::Clock;
use crate::grpc::access::Access;
use crate::grpc::edge::audit::{AuditLog, AuditedRpc, record_rpc};
use crate::grpc::edge::forward::route::local::LocalServices;
use crate::grpc::edge::incoming::{HandshakeFailed, RemoteEnd};
use crate::grpc::edge::lapse::{Lapse, lapsing_request, lapsing_response};
use crate::grpc::rpc::Rpc;
use crate::grpc::status::{permission_denied, quota_exceeded, unauthenticated};

/// The scheme of the metadata `authorization`.
const BEARER: &str = "Bearer ";

/// The stream of a tool host.
const CONNECT: &str = "/agentloop.v1.ToolHost/Connect";

/// Counts a refusal by the name of its cause.
type CountRejection = Box<dyn Fn(&'static str) + Send + Sync>;

/// Checks the credentials of requests.
pub struct CredentialCheck {
    authenticator: Arc<Authenticator>,
    /// Reads the keys of JSON Web Tokens again, if there are any.
    keys: Option<Arc<dyn KeySource>>,
    clock: Arc<dyn Clock>,
    quotas: Option<Quotas>,
    rejected: CountRejection,
}

impl CredentialCheck {
    /// `rejected` is called with the cause of each refusal.
    pub fn new(
        authenticator: Arc<Authenticator>,
        keys: Option<Arc<dyn KeySource>>,
        clock: Arc<dyn Clock>,
        quotas: Option<Quotas>,
        rejected: impl Fn(&'static str) + Send + Sync + 'static,
    ) -> Self {
        Self { authenticator, keys, clock, quotas, rejected: Box::new(rejected) }
    }

    /// Puts the principal into the request, and returns its identity. `None` for RPCs that need no credentials.
    async fn authorize(
        &self,
        request: &mut http::Request<Body>,
    ) -> Result<Option<Authorized>, Box<RefusedRequest>> {
        let access = Rpc::of(request.uri().path()).access;
        let is_one = request.headers().get_all(header::AUTHORIZATION).iter().nth(1).is_none();
        // The token goes no further.
        let authorization = request.headers_mut().remove(header::AUTHORIZATION);
        if access == Access::Anyone {
            return Ok(None);
        }
        let certificate = request.extensions().get::<RemoteEnd>().and_then(|peer| peer.certificate.clone());
        let bearer = authorization.as_ref().map(|value| {
            // Another scheme is a credential that nobody knows; so are several, which others may read differently.
            value.to_str().ok().and_then(bearer_token).filter(|_| is_one).unwrap_or_default()
        });
        let identity = self.authenticate(Credentials { bearer, certificate: certificate.as_deref() }).await;
        let identity = identity.map_err(|rejection| self.reject(rejection, bearer))?;
        let refused = |cause, why: String, status| {
            (self.rejected)(cause);
            Box::new(RefusedRequest { status, cause, why, principal: Some(identity.principal.clone()) })
        };
        if let Some(quotas) = &self.quotas {
            quotas.take(&identity.principal, Instant::now()).map_err(|exceeded| {
                let why = format!("the quota {} is used up", exceeded.quota);
                refused("quota", why, quota_exceeded(&exceeded))
            })?;
        }
        if !access.admits(&identity.principal) {
            let why = "the roles of the caller do not allow it".to_owned();
            return Err(refused("role", why, permission_denied("your roles do not allow this RPC")));
        }
        let use_permit = self.hold_stream(request.uri().path(), &identity.principal).map_err(|exceeded| {
            let why = format!("the quota {} is used up", exceeded.quota);
            refused("quota", why, quota_exceeded(&exceeded))
        })?;
        request.extensions_mut().insert(identity.principal.clone());
        Ok(Some(Authorized { identity, use_permit }))
    }

    /// Counts an RPC with a stream. Those of tool hosts are counted as hosts.
    fn hold_stream(&self, path: &str, principal: &Principal) -> Result<Option<UsePermit>, QuotaExceeded> {
        let rpc = Rpc::of(path);
        let is_stream = rpc.sends_stream() || rpc.responds_with_stream();
        let quotas = self.quotas.as_ref().filter(|_| is_stream && path != CONNECT);
        quotas.map(|quotas| quotas.hold(Quota::Streams, &principal.tenant, Some(&principal.name))).transpose()
    }

    /// The identity that the credentials prove. A key that is not known may be there after the keys were read again.
    async fn authenticate(&self, credentials: Credentials<'_>) -> Result<Identity, Rejection> {
        let found = self.authenticator.authenticate(credentials, self.clock.now());
        match (&self.keys, found) {
            (Some(keys), Err(Rejection::UnknownKey)) => {
                keys.refresh().await;
                self.authenticator.authenticate(credentials, self.clock.now())
            }
            (_, found) => found,
        }
    }

    /// Resolves when the credential ends.
    fn lapse(&self, identity: Identity) -> Lapse {
        Lapse::of(self.authenticator.clone(), self.clock.clone(), identity)
    }

    fn reject(&self, rejection: Rejection, bearer: Option<&str>) -> Box<RefusedRequest> {
        (self.rejected)(rejection.name());
        tracing::debug!(cause = %rejection, "an RPC was refused: its credentials prove nobody");
        let status = unauthenticated("the credentials are missing or wrong");
        let (cause, why) = (rejection.name(), rejection.to_string());
        // The operator is to find the token, and whoever still uses it.
        let expired = bearer.filter(|_| rejection == Rejection::ExpiredToken);
        Box::new(match expired.and_then(|token| self.authenticator.holder(token)) {
            Some((id, principal)) => {
                RefusedRequest { status, cause, why: format!("{why} {id}"), principal: Some(principal) }
            }
            None => RefusedRequest { status, cause, why, principal: None },
        })
    }

    /// Does the work of an RPC. Its streams go on as long as the credential counts.
    async fn serve<S>(
        &self,
        Authorized { identity, use_permit }: Authorized,
        mut inner: S,
        request: http::Request<Body>,
    ) -> Result<http::Response<Body>, S::Error>
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>>,
    {
        let rpc = Rpc::of(request.uri().path());
        let request = match rpc.sends_stream() {
            true => lapsing_request(request, self.lapse(identity.clone())),
            false => request,
        };
        let response = inner.call(request).await?;
        Ok(match rpc.responds_with_stream() {
            true => lapsing_response(response, self.lapse(identity), use_permit),
            false => response,
        })
    }
}

/// An RPC that may begin.
struct Authorized {
    identity: Identity,
    /// Counts its stream, if it has one and there is a quota.
    use_permit: Option<UsePermit>,
}

/// An RPC that may not begin.
struct RefusedRequest {
    status: Status,
    /// Name of the cause in metrics.
    cause: &'static str,
    /// The real cause, for the audit log.
    why: String,
    principal: Option<Arc<Principal>>,
}

/// The token of the scheme `Bearer`, whose name may be written in any case.
fn bearer_token(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.split_at_checked(BEARER.len())?;
    scheme.eq_ignore_ascii_case(BEARER).then_some(token)
}

/// Checks the credentials of every request before its service sees it, and has the audit log written.
#[derive(Clone)]
pub struct IdentityLayer {
    check: Option<Arc<CredentialCheck>>,
    audit: Option<AuditLog>,
    /// The services of a replica. RPCs that are refused here are written to their audit log.
    local: Option<LocalServices>,
}

impl IdentityLayer {
    /// Without a check of credentials, every request passes. Without a log, nothing is written.
    #[must_use]
    pub fn new(check: Option<CredentialCheck>, audit: Option<AuditLog>) -> Self {
        Self { check: check.map(Arc::new), audit, local: None }
    }

    /// The layer of a replica. The replica that does an RPC writes it to its audit log. RPCs that are refused here are written to
    /// the audit log of `local`, if it has one.
    #[must_use]
    pub fn of_replica(check: Option<CredentialCheck>, local: LocalServices) -> Self {
        Self { check: check.map(Arc::new), audit: None, local: Some(local) }
    }

    /// The log of what is refused.
    fn refusal_log(&self) -> Option<AuditLog> {
        self.audit.clone().or_else(|| self.local.as_ref()?.audit())
    }

    /// Takes connections whose handshake failed, to have them written.
    #[must_use]
    pub fn failed_handshakes(&self) -> HandshakeFailed {
        let layer = self.clone();
        Arc::new(move |from, why| {
            if let Some(audit) = layer.refusal_log() {
                audit.handshake_failed(from, why);
            }
        })
    }
}

impl<S> Layer<S> for IdentityLayer {
    type Service = Identified<S>;

    fn layer(&self, inner: S) -> Identified<S> {
        Identified { inner, layer: self.clone() }
    }
}

/// A service behind an [`IdentityLayer`].
#[derive(Clone)]
pub struct Identified<S> {
    inner: S,
    layer: IdentityLayer,
}

/// The response to an RPC, which is inspected before it is sent.
type Boxed<R, E> = Pin<Box<dyn Future<Output = Result<R, E>> + Send>>;

impl<S> Service<http::Request<Body>> for Identified<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Either<S::Future, Boxed<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        if self.layer.check.is_none() && self.layer.audit.is_none() {
            return Either::Left(self.inner.call(request));
        }
        let layer = self.layer.clone();
        // The service that is ready is the one that must be called.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        Either::Right(Box::pin(async move {
            let rpc = AuditedRpc::of(&request);
            let authorized = match &layer.check {
                None => None,
                Some(check) => match check.authorize(&mut request).await {
                    Ok(authorized) => authorized,
                    Err(refused) => {
                        let RefusedRequest { status, cause, why, principal } = *refused;
                        let refused = rpc.refusal(&*check.clock, principal.as_deref(), cause, why);
                        if let Some(audit) = layer.refusal_log() {
                            audit.record_refusal(refused);
                        }
                        return Ok(status.into_http());
                    }
                },
            };
            let is_open = Rpc::of(request.uri().path()).access == Access::Anyone;
            let principal = authorized.as_ref().map(|authorized| authorized.identity.principal.clone());
            let IdentityLayer { check, audit, local: _ } = layer;
            let work = async move {
                match (check, authorized) {
                    (Some(check), Some(authorized)) => check.serve(authorized, inner, request).await,
                    _ => inner.call(request).await,
                }
            };
            match audit.filter(|_| !is_open) {
                None => work.await,
                Some(audit) => {
                    let act = audit.begin_act(&rpc, principal.as_deref());
                    record_rpc(audit, rpc, act, work).await
                }
            }
        }))
    }
}
