//! Who offers what, and who was asked what.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;

use agentloop_core::extension::{ExtensionKind, Terms};
use agentloop_core::host::ConnectionId;
use agentloop_core::id::{HostId, TenantId};
use agentloop_core::limits::EXTENSIONS_PER_TENANT_MAX;
use tokio::sync::oneshot;

use super::{Joining, Line, Offered, Said};
use crate::extension::ExtensionError;

/// What names an extension.
pub(super) type Key = (TenantId, ExtensionKind, String);
/// Who waits for an answer.
pub(super) type Waiting = oneshot::Sender<Result<Said, ExtensionError>>;

pub(super) struct State {
    /// Tells this process's questions from those of the one before it, whose answers may come late.
    process: u64,
    pub(super) offers: BTreeMap<Key, Offer>,
    pub(super) connections: BTreeMap<ConnectionId, Connection>,
    asked: BTreeMap<u64, (ConnectionId, Waiting)>,
    last_id: u64,
}

/// An extension that is offered, or was.
pub(super) struct Offer {
    pub(super) terms: Terms,
    connections: BTreeSet<ConnectionId>,
}

/// A question that is about to be asked.
pub(super) struct Begun {
    pub(super) id: u64,
    pub(super) text: String,
    pub(super) line: Arc<dyn Line>,
    pub(super) max_frame_bytes: usize,
}

/// A host's stream.
pub(super) struct Connection {
    pub(super) tenant: TenantId,
    pub(super) host: HostId,
    /// Whether it may be asked.
    pub(super) active: bool,
    pub(super) offers: BTreeSet<Key>,
    max_frame_bytes: usize,
    line: Arc<dyn Line>,
    asked: BTreeSet<u64>,
}

impl State {
    /// Without hosts.
    pub(super) fn new() -> Self {
        Self {
            process: RandomState::new().build_hasher().finish(),
            offers: BTreeMap::new(),
            connections: BTreeMap::new(),
            asked: BTreeMap::new(),
            last_id: 0,
        }
    }

    /// A question's id on the wire.
    pub(super) fn id_text(&self, id: u64) -> String {
        format!("{:016x}-{id}", self.process)
    }

    /// A stream begins.
    pub(super) fn join(&mut self, joining: Joining) {
        self.connections.insert(joining.connection, Connection::new(joining));
    }

    /// What a stream offers, in place of what it offered before: why each is refused, if it is.
    pub(super) fn replace(&mut self, connection: ConnectionId, offered: &[Offered]) -> Vec<Option<String>> {
        self.withdraw(connection);
        let Some(tenant) = self.connections.get(&connection).map(|stream| stream.tenant.clone()) else {
            return offered.iter().map(|_| Some("the stream is gone".to_owned())).collect();
        };
        offered.iter().map(|extension| self.take(&tenant, connection, extension).err()).collect()
    }

    fn take(&mut self, tenant: &TenantId, connection: ConnectionId, offered: &Offered) -> Result<(), String> {
        let key = super::key(tenant, offered.terms.kind(), &offered.name);
        match self.offers.get_mut(&key) {
            Some(known) if known.connections.is_empty() => known.terms = offered.terms.clone(),
            Some(known) if known.terms == offered.terms => {}
            Some(known) => {
                let other = known.connections.first().and_then(|other| self.connections.get(other));
                let other = other.map(|other| other.host.to_string()).unwrap_or_default();
                return Err(format!("host {other} declares the {} differently", key.1.as_str()));
            }
            None => {
                self.make_room(tenant, key.1)?;
                let offer = Offer { terms: offered.terms.clone(), connections: BTreeSet::new() };
                self.offers.insert(key.clone(), offer);
            }
        }
        if let Some(offer) = self.offers.get_mut(&key) {
            offer.connections.insert(connection);
        }
        if let Some(stream) = self.connections.get_mut(&connection) {
            stream.offers.insert(key);
        }
        Ok(())
    }

    /// What nobody offers any more gives way.
    fn make_room(&mut self, tenant: &TenantId, kind: ExtensionKind) -> Result<(), String> {
        let same = |key: &Key| key.0 == *tenant && key.1 == kind;
        if self.offers.keys().filter(|key| same(key)).count() < EXTENSIONS_PER_TENANT_MAX {
            return Ok(());
        }
        let unserved = self.offers.iter().find(|(key, offer)| same(key) && offer.connections.is_empty());
        let unserved = unserved.map(|(key, _)| key.clone());
        match unserved.and_then(|key| self.offers.remove(&key)) {
            Some(_) => Ok(()),
            None => Err(format!("there are {EXTENSIONS_PER_TENANT_MAX} of its kind already")),
        }
    }

    /// A stream offers nothing any more.
    pub(super) fn withdraw(&mut self, connection: ConnectionId) {
        let Some(stream) = self.connections.get_mut(&connection) else { return };
        for key in std::mem::take(&mut stream.offers) {
            if let Some(offer) = self.offers.get_mut(&key) {
                offer.connections.remove(&connection);
            }
        }
    }

    /// A stream is gone; returns who waits for its answers.
    pub(super) fn leave(&mut self, connection: ConnectionId) -> Vec<Waiting> {
        self.withdraw(connection);
        let asked = self.connections.remove(&connection).map(|stream| stream.asked).unwrap_or_default();
        asked.into_iter().filter_map(|id| self.asked.remove(&id)).map(|(_, waiting)| waiting).collect()
    }

    /// Of those that offer it and were not tried, the one with the fewest questions open.
    pub(super) fn pick(&self, key: &Key, tried: &BTreeSet<ConnectionId>) -> Option<ConnectionId> {
        let offer = self.offers.get(key)?;
        let free = offer.connections.iter().filter(|connection| !tried.contains(connection));
        let active = free.filter_map(|id| Some((id, self.connections.get(id)?)));
        let active = active.filter(|(_, connection)| connection.active);
        active.min_by_key(|(_, connection)| connection.asked.len()).map(|(id, _)| *id)
    }

    /// A question is about to be asked; `None` when the stream is gone.
    pub(super) fn begin(&mut self, connection: ConnectionId, waiting: Waiting) -> Option<Begun> {
        let stream = self.connections.get_mut(&connection)?;
        self.last_id += 1;
        stream.asked.insert(self.last_id);
        self.asked.insert(self.last_id, (connection, waiting));
        let (line, max_frame_bytes) = (stream.line.clone(), stream.max_frame_bytes);
        Some(Begun { id: self.last_id, text: self.id_text(self.last_id), line, max_frame_bytes })
    }

    /// Who waits for this answer of this stream.
    pub(super) fn take_asked(&mut self, connection: ConnectionId, id: &str) -> Option<Waiting> {
        let (_, number) = id.split_once('-')?;
        let id = number.parse().ok().filter(|number| self.id_text(*number) == id)?;
        if self.asked.get(&id)?.0 != connection {
            return None;
        }
        self.forget(id)
    }

    /// Nobody waits for this answer any more.
    pub(super) fn forget(&mut self, id: u64) -> Option<Waiting> {
        let (connection, waiting) = self.asked.remove(&id)?;
        if let Some(stream) = self.connections.get_mut(&connection) {
            stream.asked.remove(&id);
        }
        Some(waiting)
    }
}

impl Connection {
    fn new(joining: Joining) -> Self {
        Self {
            tenant: joining.tenant,
            host: joining.host,
            active: false,
            offers: BTreeSet::new(),
            max_frame_bytes: joining.max_frame_bytes,
            line: joining.line,
            asked: BTreeSet::new(),
        }
    }
}
