//! The extensions of hosts that are connected to another replica. They are registered here as if their hosts were connected
//! to this one, and a request to them goes to that replica.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::host::ConnectionId;
use agentloop_core::id::{HostId, TenantId};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::registry::ExtensionKey;
use super::{
    CloseRequestOnDrop, ExtensionOffer, ForwardedRequest, NewConnection, RemoteExtensions, RequestSender,
    ResponseBody,
};
use crate::extension::ExtensionError;
use crate::extension::changes::Changes;

/// A host's connection, as the other replicas mirror it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirroredHost {
    /// The tenant that the host belongs to.
    pub tenant: TenantId,
    /// The host, by the id of its hello.
    pub host: HostId,
    /// The largest frame that the host takes, in bytes.
    pub max_frame_bytes: usize,
    /// True once the host may be sent requests.
    pub is_active: bool,
    /// The extensions that it offers.
    pub offers: Vec<ExtensionOffer>,
}

/// An extension that a host offers, or has offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownExtension {
    /// The tenant that it belongs to.
    pub tenant: TenantId,
    /// Its name and its terms.
    pub offer: ExtensionOffer,
}

impl RemoteExtensions {
    /// Follows the connections of hosts, those that there are included.
    pub(crate) fn follow(&self) -> Arc<Changes<ConnectionId>> {
        let mut registry = self.registry.lock();
        let keys = registry.connections.keys().copied().collect();
        registry.followers.follow(keys)
    }

    /// These connections as they are now. `None` for one that is closed.
    pub(crate) fn mirrored(
        &self,
        connections: BTreeSet<ConnectionId>,
    ) -> Vec<(ConnectionId, Option<MirroredHost>)> {
        let registry = self.registry.lock();
        let mirrored = |id: &ConnectionId| {
            let connection = registry.connections.get(id)?;
            let offer = |key: &ExtensionKey| {
                let declaration = registry.extensions.get(key)?.declaration.clone();
                Some(ExtensionOffer { name: key.name.clone(), declaration })
            };
            Some(MirroredHost {
                tenant: connection.tenant.clone(),
                host: connection.host.clone(),
                max_frame_bytes: connection.max_frame_bytes,
                is_active: connection.active,
                offers: connection.offers.iter().filter_map(offer).collect(),
            })
        };
        connections.into_iter().map(|id| (id, mirrored(&id))).collect()
    }

    /// All extensions whose terms are known, also those that no host offers at the moment.
    pub(crate) fn known(&self) -> Vec<KnownExtension> {
        let registry = self.registry.lock();
        let known = registry.extensions.iter().map(|(key, extension)| KnownExtension {
            tenant: key.tenant.clone(),
            offer: ExtensionOffer { name: key.name.clone(), declaration: extension.declaration.clone() },
        });
        known.collect()
    }

    /// Notes extensions that another replica knows.
    pub(crate) fn learn(&self, known: Vec<KnownExtension>) {
        let mut registry = self.registry.lock();
        for KnownExtension { tenant, offer } in known {
            registry.learn(&tenant, &offer);
        }
        drop(registry);
        self.changed.notify_waiters();
    }

    /// Enters a host that is connected to another replica, or its new offers. `connection` is its number here.
    pub(crate) fn mirror(
        &self,
        connection: ConnectionId,
        mirrored: MirroredHost,
        sender: Arc<dyn RequestSender>,
    ) {
        let MirroredHost { tenant, host, max_frame_bytes, is_active, offers } = mirrored;
        let mut registry = self.registry.lock();
        if !registry.connections.contains_key(&connection) {
            registry.join(NewConnection {
                tenant: tenant.clone(),
                connection,
                host,
                max_frame_bytes,
                sender,
            });
        }
        registry.withdraw(connection);
        for offer in &offers {
            registry.learn(&tenant, offer);
            // The other replica has checked that its hosts agree: there is nothing to refuse.
            let _added = registry.add(&tenant, connection, offer);
        }
        if let Some(known) = registry.connections.get_mut(&connection) {
            known.active = is_active;
        }
        drop(registry);
        self.changed.notify_waiters();
    }

    /// Passes a request of another replica on to the host with this connection. It has `wait` to respond.
    ///
    /// # Errors
    /// The error of the host, or [`ExtensionError::Lost`] if the host is gone.
    pub(crate) async fn forward(
        &self,
        connection: ConnectionId,
        encoded: Vec<u8>,
        wait: Duration,
    ) -> Result<ResponseBody, ExtensionError> {
        let (sender, response) = oneshot::channel();
        let new = self.registry.lock().begin(connection, sender).ok_or(ExtensionError::Lost)?;
        let _forget = CloseRequestOnDrop { extensions: self, id: new.id };
        if !new.sender.forward(ForwardedRequest { id: new.wire_id, encoded }) {
            return Err(ExtensionError::Lost);
        }
        match tokio::time::timeout(wait, response).await {
            Ok(response) => response.unwrap_or(Err(ExtensionError::Lost)),
            Err(_late) => Err(ExtensionError::Timeout),
        }
    }
}
