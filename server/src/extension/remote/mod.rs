//! Extensions on connected hosts: planners, hooks and context sources that hosts offer by name.
//!
//! They are separate from the fleet, which places tool calls. A request to an extension has a deadline and is not stored.
//! If its host is lost or its response is invalid, the next host with the same extension gets the request.

mod message;
mod mirror;
mod proxy;
mod registry;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::extension::{ExtensionDeclaration, ExtensionKind};
use agentloop_core::host::ConnectionId;
use agentloop_core::id::{HostId, TenantId};
use agentloop_core::time::Millis;
use async_trait::async_trait;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

pub use message::{ExtensionRequest, ExtensionResponse, ForwardedRequest, RequestBody, ResponseBody};
pub use mirror::{KnownExtension, MirroredHost};
use proxy::{RemoteHook, RemotePlanner, RemoteSource};
use registry::{ExtensionKey, Registry};

use super::{ContextSource, ExtensionError, Extensions, Hook, Planner};

/// An extension as its host declares it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtensionOffer {
    /// The name that runs use for it.
    pub name: String,
    /// Its kind, with timeouts and the like.
    pub declaration: ExtensionDeclaration,
}

/// Sends requests to one host.
pub trait RequestSender: Send + Sync + 'static {
    /// Queues a request for the host. False if the host cannot be reached or its queue is full. Never waits.
    fn send(&self, request: Box<ExtensionRequest>) -> bool;

    /// As [`Self::send`], for a request of another replica. Only a host that is connected here takes one.
    fn forward(&self, _request: ForwardedRequest) -> bool {
        false
    }
}

/// A connection of a host that has said hello.
pub struct NewConnection {
    /// The tenant that the host belongs to.
    pub tenant: TenantId,
    /// The id of the connection's stream.
    pub connection: ConnectionId,
    /// The host, by the id of its hello.
    pub host: HostId,
    /// The largest frame that the host takes, in bytes.
    pub max_frame_bytes: usize,
    /// Sends requests to the host.
    pub sender: Arc<dyn RequestSender>,
}

/// The extensions of all hosts. Shared by the engine, which calls them, and the hosts' connections.
pub struct RemoteExtensions {
    /// The longest wait for an extension that no host has offered yet.
    wait: Duration,
    registry: Mutex<Registry>,
    /// Notified when a host offers extensions or becomes active. Unlike a watch channel it wakes waiters in their order.
    changed: Notify,
}

impl RemoteExtensions {
    /// No hosts yet. `wait` is the longest wait for an extension that no host has offered yet.
    #[must_use]
    pub fn new(wait: Duration) -> Arc<Self> {
        Arc::new(Self { wait, registry: Mutex::new(Registry::new()), changed: Notify::new() })
    }

    /// Adds a host's connection with its offers. Returns for each offer the reason why it is refused, or `None`. The host
    /// gets no requests before [`Self::activate`].
    pub fn offer(&self, new: NewConnection, offered: &[ExtensionOffer]) -> Vec<Option<String>> {
        let connection = new.connection;
        let mut registry = self.registry.lock();
        registry.join(new);
        registry.replace(connection, offered)
    }

    /// Replaces the offers of a connection. Returns for each offer the reason why it is refused, or `None`.
    pub fn replace(&self, connection: ConnectionId, offered: &[ExtensionOffer]) -> Vec<Option<String>> {
        let verdicts = self.registry.lock().replace(connection, offered);
        self.changed.notify_waiters();
        verdicts
    }

    /// The host is welcomed and may get requests.
    pub fn activate(&self, connection: ConnectionId) {
        self.registry.lock().activate(connection);
        self.changed.notify_waiters();
    }

    /// The host takes no new requests. It may still respond to open ones.
    pub fn drain(&self, connection: ConnectionId) {
        self.registry.lock().withdraw(connection);
    }

    /// The connection is closed. Its open requests go to other hosts.
    pub fn leave(&self, connection: ConnectionId) {
        let lost = self.registry.lock().leave(connection);
        for response in lost {
            // The caller may have stopped waiting.
            let _gone = response.send(Err(ExtensionError::Lost));
        }
    }

    /// A host responds. A response to a request that is not open is dropped.
    pub fn respond(&self, connection: ConnectionId, response: ExtensionResponse) {
        let sender = self.registry.lock().take(connection, &response.id);
        if let Some(sender) = sender {
            let _gone = sender.send(response.result);
        }
    }

    /// The extensions of each host of a tenant, for people. Example: `hook audit`.
    #[must_use]
    pub fn snapshot(&self, tenant: &TenantId) -> BTreeMap<HostId, Vec<String>> {
        let registry = self.registry.lock();
        let of_tenant = registry.connections.values().filter(|connection| connection.tenant == *tenant);
        let shown = |key: &ExtensionKey| format!("{} {}", key.kind.as_str(), key.name);
        of_tenant
            .map(|connection| (connection.host.clone(), connection.offers.iter().map(shown).collect()))
            .collect()
    }

    /// The terms that were declared last under this key. Waits for a while if no host has declared it yet.
    async fn declaration(&self, key: &ExtensionKey) -> Result<ExtensionDeclaration, ExtensionError> {
        let known = async {
            loop {
                let changed = self.changed.notified();
                let declaration =
                    self.registry.lock().extensions.get(key).map(|extension| extension.declaration.clone());
                if let Some(declaration) = declaration {
                    return declaration;
                }
                changed.await;
            }
        };
        tokio::time::timeout(self.wait, known).await.map_err(|_late| ExtensionError::Unknown)
    }

    /// Waits until a host offers the extension, as long as [`Self::declaration`] waits for its terms.
    async fn wait_for_host(&self, key: &ExtensionKey) {
        let offered = async {
            loop {
                let changed = self.changed.notified();
                if self.registry.lock().pick(key, &BTreeSet::new()).is_some() {
                    return;
                }
                changed.await;
            }
        };
        // The call says then that there was none.
        let _nobody = tokio::time::timeout(self.wait, offered).await;
    }

    /// Sends a request to one host after the other, until one gives a valid response or an error that is not retryable.
    /// Waits for more hosts if all were lost, so the caller must set a timeout. The request has the time that is left now.
    async fn call<T>(
        &self,
        key: &ExtensionKey,
        request: &ExtensionRequest,
        read: impl Fn(ResponseBody) -> Result<T, String>,
    ) -> Result<T, ExtensionError> {
        let began = Instant::now();
        let mut tried = BTreeSet::new();
        let mut failure = None;
        loop {
            let changed = self.changed.notified();
            let Some(connection) = self.registry.lock().pick(key, &tried) else {
                match failure.take() {
                    // A host may connect in time.
                    None | Some(ExtensionError::Lost) => {}
                    Some(error) => return Err(error),
                }
                changed.await;
                continue;
            };
            tried.insert(connection);
            let time_left = Millis::of(request.time_left.duration().saturating_sub(began.elapsed()));
            let response =
                self.call_host(connection, ExtensionRequest { time_left, ..request.clone() }).await;
            match response.and_then(|body| read(body).map_err(ExtensionError::Nonsense)) {
                Ok(result) => return Ok(result),
                Err(error) if error.is_retryable_elsewhere() => {
                    tracing::debug!(extension = key.name, %error, "an extension failed; calling another host");
                    failure = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn call_host(
        &self,
        connection: ConnectionId,
        mut request: ExtensionRequest,
    ) -> Result<ResponseBody, ExtensionError> {
        let (sender, response) = oneshot::channel();
        let new = self.registry.lock().begin(connection, sender).ok_or(ExtensionError::Lost)?;
        let _forget = CloseRequestOnDrop { extensions: self, id: new.id };
        request.id = new.wire_id;
        let max = new.max_frame_bytes;
        if request.size() > max {
            let message = format!("the request is larger than the {max} bytes that its host takes");
            return Err(ExtensionError::Failed { message, retryable: true });
        }
        if !new.sender.send(Box::new(request)) {
            return Err(ExtensionError::Lost);
        }
        response.await.unwrap_or(Err(ExtensionError::Lost))
    }
}

/// Closes a request when its caller stops waiting, for whatever reason.
struct CloseRequestOnDrop<'a> {
    extensions: &'a RemoteExtensions,
    id: u64,
}

impl Drop for CloseRequestOnDrop<'_> {
    fn drop(&mut self) {
        self.extensions.registry.lock().forget(self.id);
    }
}

/// [`RemoteExtensions`] as the engine sees them.
#[derive(Clone)]
pub struct Remote(pub Arc<RemoteExtensions>);

#[async_trait]
impl Extensions for Remote {
    async fn hook(&self, tenant: &TenantId, name: &str) -> Result<Arc<dyn Hook>, ExtensionError> {
        let key = ExtensionKey::new(tenant, ExtensionKind::Hook, name);
        match self.0.declaration(&key).await? {
            ExtensionDeclaration::Hook(declaration) => {
                Ok(Arc::new(RemoteHook::new(self.0.clone(), key, declaration)))
            }
            ExtensionDeclaration::Planner { .. } | ExtensionDeclaration::ContextSource(_) => {
                Err(ExtensionError::Unknown)
            }
        }
    }

    async fn context_source(
        &self,
        tenant: &TenantId,
        name: &str,
    ) -> Result<Arc<dyn ContextSource>, ExtensionError> {
        let key = ExtensionKey::new(tenant, ExtensionKind::ContextSource, name);
        match self.0.declaration(&key).await? {
            ExtensionDeclaration::ContextSource(declaration) => {
                Ok(Arc::new(RemoteSource::new(self.0.clone(), key, declaration)))
            }
            ExtensionDeclaration::Planner { .. } | ExtensionDeclaration::Hook(_) => {
                Err(ExtensionError::Unknown)
            }
        }
    }

    async fn planner(&self, tenant: &TenantId, name: &str) -> Result<Arc<dyn Planner>, ExtensionError> {
        let key = ExtensionKey::new(tenant, ExtensionKind::Planner, name);
        match self.0.declaration(&key).await? {
            ExtensionDeclaration::Planner { timeout } => {
                Ok(Arc::new(RemotePlanner::new(self.0.clone(), key, timeout)))
            }
            ExtensionDeclaration::Hook(_) | ExtensionDeclaration::ContextSource(_) => {
                Err(ExtensionError::Unknown)
            }
        }
    }

    fn knows_planner(&self, tenant: &TenantId, name: &str) -> bool {
        self.0.registry.lock().extensions.contains_key(&ExtensionKey::new(
            tenant,
            ExtensionKind::Planner,
            name,
        ))
    }
}

impl std::fmt::Debug for RemoteExtensions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteExtensions").finish_non_exhaustive()
    }
}
