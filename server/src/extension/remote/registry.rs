//! The state behind [`RemoteExtensions`](super::RemoteExtensions): the extensions that hosts offer, their connections, and
//! the requests that are open.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;

use agentloop_core::extension::{ExtensionDeclaration, ExtensionKind};
use agentloop_core::host::ConnectionId;
use agentloop_core::id::{HostId, TenantId};
use agentloop_core::limits::EXTENSIONS_PER_TENANT_MAX;
use tokio::sync::oneshot;

use super::{ExtensionOffer, NewConnection, RequestSender, ResponseBody};
use crate::extension::ExtensionError;
use crate::extension::changes::Followers;

/// The key of an extension. Two kinds may use the same name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ExtensionKey {
    pub(super) tenant: TenantId,
    pub(super) kind: ExtensionKind,
    pub(super) name: String,
}

/// Receives the response to one request.
pub(super) type ResponseSender = oneshot::Sender<Result<ResponseBody, ExtensionError>>;

pub(super) struct Registry {
    /// Random. It tells requests of this process from those of an earlier one, whose responses may come late.
    process: u64,
    pub(super) extensions: BTreeMap<ExtensionKey, Extension>,
    pub(super) connections: BTreeMap<ConnectionId, ExtensionHost>,
    open: BTreeMap<u64, OpenRequest>,
    last_id: u64,
    /// Followers that mirror the connections.
    pub(super) followers: Followers<ConnectionId>,
}

/// An extension that a host offers, or has offered. Its terms stay known while no host offers it.
pub(super) struct Extension {
    pub(super) declaration: ExtensionDeclaration,
    connections: BTreeSet<ConnectionId>,
}

/// A request without a response yet.
struct OpenRequest {
    connection: ConnectionId,
    response: ResponseSender,
}

/// The id of a new request, and the connection to send it on.
pub(super) struct NewRequest {
    pub(super) id: u64,
    /// The id as it is sent.
    pub(super) wire_id: String,
    pub(super) sender: Arc<dyn RequestSender>,
    pub(super) max_frame_bytes: usize,
}

/// A connected host with the extensions that it offers.
pub(super) struct ExtensionHost {
    pub(super) tenant: TenantId,
    pub(super) host: HostId,
    /// True once the host may be sent requests.
    pub(super) active: bool,
    pub(super) offers: BTreeSet<ExtensionKey>,
    pub(super) max_frame_bytes: usize,
    sender: Arc<dyn RequestSender>,
    open: BTreeSet<u64>,
}

impl ExtensionKey {
    pub(super) fn new(tenant: &TenantId, kind: ExtensionKind, name: &str) -> Self {
        Self { tenant: tenant.clone(), kind, name: name.to_owned() }
    }
}

impl Registry {
    /// A registry without hosts.
    pub(super) fn new() -> Self {
        Self {
            process: RandomState::new().build_hasher().finish(),
            extensions: BTreeMap::new(),
            connections: BTreeMap::new(),
            open: BTreeMap::new(),
            last_id: 0,
            followers: Followers::default(),
        }
    }

    /// A request's id as it is sent.
    fn wire_id(&self, id: u64) -> String {
        format!("{:016x}-{id}", self.process)
    }

    /// Adds a connection, which is not active yet.
    pub(super) fn join(&mut self, new: NewConnection) {
        self.followers.mark(&new.connection);
        self.connections.insert(new.connection, ExtensionHost::new(new));
    }

    /// The host of this connection may be sent requests from now on.
    pub(super) fn activate(&mut self, connection: ConnectionId) {
        if let Some(stream) = self.connections.get_mut(&connection) {
            stream.active = true;
            self.followers.mark(&connection);
        }
    }

    /// Notes the terms of an extension, whatever was known of it before.
    pub(super) fn learn(&mut self, tenant: &TenantId, offer: &ExtensionOffer) {
        let key = ExtensionKey::new(tenant, offer.declaration.kind(), &offer.name);
        match self.extensions.get_mut(&key) {
            Some(known) => known.declaration = offer.declaration.clone(),
            None => {
                if self.make_room(tenant, key.kind).is_ok() {
                    let declaration = offer.declaration.clone();
                    self.extensions.insert(key, Extension { declaration, connections: BTreeSet::new() });
                }
            }
        }
    }

    /// Replaces the offers of a connection. Returns for each the reason why it is refused, or `None`.
    pub(super) fn replace(
        &mut self,
        connection: ConnectionId,
        offered: &[ExtensionOffer],
    ) -> Vec<Option<String>> {
        self.withdraw(connection);
        let Some(tenant) = self.connections.get(&connection).map(|stream| stream.tenant.clone()) else {
            return offered.iter().map(|_| Some("the connection is closed".to_owned())).collect();
        };
        offered.iter().map(|extension| self.add(&tenant, connection, extension).err()).collect()
    }

    /// Adds an offer to those of its connection.
    pub(super) fn add(
        &mut self,
        tenant: &TenantId,
        connection: ConnectionId,
        offered: &ExtensionOffer,
    ) -> Result<(), String> {
        let key = ExtensionKey::new(tenant, offered.declaration.kind(), &offered.name);
        self.withdraw_before(&key, connection, offered);
        match self.extensions.get_mut(&key) {
            Some(known) if known.connections.is_empty() => known.declaration = offered.declaration.clone(),
            Some(known) if known.declaration == offered.declaration => {}
            Some(known) => {
                let other = known.connections.first().and_then(|other| self.connections.get(other));
                let other = other.map(|other| other.host.to_string()).unwrap_or_default();
                let kind = key.kind.as_str();
                return Err(format!("host {other} declares the {kind} differently"));
            }
            None => {
                self.make_room(tenant, key.kind)?;
                let new =
                    Extension { declaration: offered.declaration.clone(), connections: BTreeSet::new() };
                self.extensions.insert(key.clone(), new);
            }
        }
        if let Some(extension) = self.extensions.get_mut(&key) {
            extension.connections.insert(connection);
        }
        if let Some(stream) = self.connections.get_mut(&connection) {
            stream.offers.insert(key);
        }
        Ok(())
    }

    /// Withdraws another declaration of the same host, which an earlier connection of it has left behind.
    fn withdraw_before(&mut self, key: &ExtensionKey, connection: ConnectionId, offered: &ExtensionOffer) {
        let host = self.connections.get(&connection).map(|stream| stream.host.clone());
        let Some(known) = self.extensions.get_mut(key) else { return };
        if known.declaration == offered.declaration {
            return;
        }
        for (id, earlier) in &mut self.connections {
            if Some(&earlier.host) == host.as_ref() && known.connections.remove(id) {
                earlier.offers.remove(key);
                self.followers.mark(id);
            }
        }
    }

    /// Makes room for one more extension of a kind: drops one that no host offers any more, if the bound is reached.
    fn make_room(&mut self, tenant: &TenantId, kind: ExtensionKind) -> Result<(), String> {
        let same = |key: &ExtensionKey| key.tenant == *tenant && key.kind == kind;
        if self.extensions.keys().filter(|key| same(key)).count() < EXTENSIONS_PER_TENANT_MAX {
            return Ok(());
        }
        let is_unused =
            |key: &ExtensionKey, extension: &Extension| same(key) && extension.connections.is_empty();
        let unused = self.extensions.iter().find(|(key, extension)| is_unused(key, extension));
        let unused = unused.map(|(key, _)| key.clone());
        match unused.and_then(|key| self.extensions.remove(&key)) {
            Some(_) => Ok(()),
            None => Err(format!("there are {EXTENSIONS_PER_TENANT_MAX} of its kind already")),
        }
    }

    /// Removes all offers of a connection.
    pub(super) fn withdraw(&mut self, connection: ConnectionId) {
        let Some(stream) = self.connections.get_mut(&connection) else { return };
        self.followers.mark(&connection);
        for key in std::mem::take(&mut stream.offers) {
            if let Some(extension) = self.extensions.get_mut(&key) {
                extension.connections.remove(&connection);
            }
        }
    }

    /// Removes a connection. Returns the senders of its open requests.
    pub(super) fn leave(&mut self, connection: ConnectionId) -> Vec<ResponseSender> {
        self.withdraw(connection);
        let open = self.connections.remove(&connection).map(|stream| stream.open).unwrap_or_default();
        open.into_iter().filter_map(|id| self.open.remove(&id)).map(|request| request.response).collect()
    }

    /// The connection for the next attempt: it offers the extension, was not tried, and has the fewest open requests.
    pub(super) fn pick(&self, key: &ExtensionKey, tried: &BTreeSet<ConnectionId>) -> Option<ConnectionId> {
        let extension = self.extensions.get(key)?;
        let free = extension.connections.iter().filter(|connection| !tried.contains(connection));
        let active = free.filter_map(|id| Some((id, self.connections.get(id)?)));
        let active = active.filter(|(_, connection)| connection.active);
        active.min_by_key(|(_, connection)| connection.open.len()).map(|(id, _)| *id)
    }

    /// Opens a request on a connection. `None` if the connection is closed.
    pub(super) fn begin(&mut self, connection: ConnectionId, response: ResponseSender) -> Option<NewRequest> {
        let stream = self.connections.get_mut(&connection)?;
        self.last_id += 1;
        stream.open.insert(self.last_id);
        self.open.insert(self.last_id, OpenRequest { connection, response });
        let (sender, max_frame_bytes) = (stream.sender.clone(), stream.max_frame_bytes);
        Some(NewRequest { id: self.last_id, wire_id: self.wire_id(self.last_id), sender, max_frame_bytes })
    }

    /// Closes the request with this id, if it is open on this connection, and returns the sender of its response.
    pub(super) fn take(&mut self, connection: ConnectionId, wire_id: &str) -> Option<ResponseSender> {
        let (_, number) = wire_id.split_once('-')?;
        let id = number.parse().ok().filter(|number| self.wire_id(*number) == wire_id)?;
        if self.open.get(&id)?.connection != connection {
            return None;
        }
        self.forget(id)
    }

    /// Closes a request: it has its response, or nobody waits for one any more.
    pub(super) fn forget(&mut self, id: u64) -> Option<ResponseSender> {
        let OpenRequest { connection, response } = self.open.remove(&id)?;
        if let Some(stream) = self.connections.get_mut(&connection) {
            stream.open.remove(&id);
        }
        Some(response)
    }
}

impl ExtensionHost {
    fn new(new: NewConnection) -> Self {
        Self {
            tenant: new.tenant,
            host: new.host,
            active: false,
            offers: BTreeSet::new(),
            max_frame_bytes: new.max_frame_bytes,
            sender: new.sender,
            open: BTreeSet::new(),
        }
    }
}
