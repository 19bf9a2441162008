//! Extensions on hosts that dialled in: who offers what, and what is asked of whom.
//!
//! Beside the fleet that places tool calls: an extension is asked and answers, within its time, and nothing of it is
//! kept. One that is lost or answers nonsense is followed by the next host that offers the same.

mod ask;
mod offers;
mod proxy;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentloop_core::extension::{ExtensionKind, Terms};
use agentloop_core::host::ConnectionId;
use agentloop_core::id::{HostId, TenantId};
use async_trait::async_trait;
use tokio::sync::{Notify, oneshot};

pub use ask::{Ask, Question, Reply, Said};
use offers::{Key, State};
use proxy::{RemoteHook, RemotePlanner, RemoteSource};

use super::{ContextSource, ExtensionError, Extensions, Hook, Planner};

/// An extension as its host declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offered {
    /// Its name.
    pub name: String,
    /// The rest.
    pub terms: Terms,
}

/// Where questions for one host go.
pub trait Line: Send + Sync + 'static {
    /// Puts a question on its way; `false` when the host cannot be reached. Never waits.
    fn ask(&self, ask: Box<Ask>) -> bool;
}

/// One host's stream.
pub struct Joining {
    /// The tenant that it belongs to.
    pub tenant: TenantId,
    /// The stream.
    pub connection: ConnectionId,
    /// The host.
    pub host: HostId,
    /// The largest frame it takes, in bytes.
    pub max_frame_bytes: usize,
    /// Where its questions go.
    pub line: Arc<dyn Line>,
}

/// Extensions on hosts. Shared by the engine and the hosts' streams.
pub struct RemoteExtensions {
    /// How long whoever asks for an extension that nobody ever offered waits for somebody to do so.
    wait: Duration,
    state: Mutex<State>,
    /// Told when somebody offers something. Waiters are woken in the order in which they came, as they are not by a watch
    /// channel.
    changed: Notify,
}

impl RemoteExtensions {
    /// Without hosts.
    #[must_use]
    pub fn new(wait: Duration) -> Arc<Self> {
        Arc::new(Self { wait, state: Mutex::new(State::new()), changed: Notify::new() })
    }

    /// Takes in what a new host offers: why each is refused, if it is. It is asked nothing before
    /// [`Self::activate`].
    pub fn offer(&self, joining: Joining, offered: &[Offered]) -> Vec<Option<String>> {
        let connection = joining.connection;
        let mut state = self.lock();
        state.join(joining);
        state.replace(connection, offered)
    }

    /// Takes in what a host offers in place of what it offered before: why each is refused, if it is.
    pub fn replace(&self, connection: ConnectionId, offered: &[Offered]) -> Vec<Option<String>> {
        let verdicts = self.lock().replace(connection, offered);
        self.changed.notify_waiters();
        verdicts
    }

    /// The host is in: it may be asked.
    pub fn activate(&self, connection: ConnectionId) {
        if let Some(known) = self.lock().connections.get_mut(&connection) {
            known.active = true;
        }
        self.changed.notify_waiters();
    }

    /// The host takes nothing new; what it was asked it may still answer.
    pub fn drain(&self, connection: ConnectionId) {
        self.lock().withdraw(connection);
    }

    /// The stream is gone: what it was asked is asked elsewhere.
    pub fn leave(&self, connection: ConnectionId) {
        let lost = self.lock().leave(connection);
        for waiting in lost {
            // Whoever gave up waiting does not mind.
            let _gone = waiting.send(Err(ExtensionError::Lost));
        }
    }

    /// A host answers. An answer that nobody waits for is dropped.
    pub fn answered(&self, connection: ConnectionId, reply: Reply) {
        let waiting = self.lock().take_asked(connection, &reply.id);
        if let Some(waiting) = waiting {
            let _gone = waiting.send(reply.answer);
        }
    }

    /// What each host of a tenant offers, for people: `hook audit`.
    #[must_use]
    pub fn snapshot(&self, tenant: &TenantId) -> BTreeMap<HostId, Vec<String>> {
        let state = self.lock();
        let of_tenant = state.connections.values().filter(|connection| connection.tenant == *tenant);
        let shown = |(_, kind, name): &Key| format!("{} {name}", kind.as_str());
        of_tenant
            .map(|connection| (connection.host.clone(), connection.offers.iter().map(shown).collect()))
            .collect()
    }

    /// What was declared under this name last; waits for somebody to declare it where nobody ever did.
    async fn terms(&self, key: &Key) -> Result<Terms, ExtensionError> {
        let known = async {
            loop {
                let changed = self.changed.notified();
                let terms = self.lock().offers.get(key).map(|offer| offer.terms.clone());
                if let Some(terms) = terms {
                    return terms;
                }
                changed.await;
            }
        };
        tokio::time::timeout(self.wait, known).await.map_err(|_late| ExtensionError::Unknown)
    }

    /// Asks one host after the other until one answers well, or says that asking elsewhere does not help. Ends only
    /// with an answer: whoever asks has a deadline.
    async fn ask<T>(
        &self,
        key: &Key,
        ask: &Ask,
        read: impl Fn(Said) -> Result<T, String>,
    ) -> Result<T, ExtensionError> {
        let mut tried = BTreeSet::new();
        let mut failure = None;
        loop {
            let changed = self.changed.notified();
            let Some(connection) = self.lock().pick(key, &tried) else {
                match failure.take() {
                    // A host that was lost may come back in time.
                    None | Some(ExtensionError::Lost) => {}
                    Some(error) => return Err(error),
                }
                changed.await;
                continue;
            };
            tried.insert(connection);
            let said = self.ask_one(connection, ask.clone()).await;
            match said.and_then(|said| read(said).map_err(ExtensionError::Nonsense)) {
                Ok(answer) => return Ok(answer),
                Err(error) if error.is_retryable() => {
                    tracing::debug!(extension = key.2, %error, "an extension gave no good answer");
                    failure = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn ask_one(&self, connection: ConnectionId, mut ask: Ask) -> Result<Said, ExtensionError> {
        let (sender, answer) = oneshot::channel();
        let begun = self.lock().begin(connection, sender).ok_or(ExtensionError::Lost)?;
        let _forget = Forget { extensions: self, id: begun.id };
        ask.id = begun.text;
        let max = begun.max_frame_bytes;
        if ask.size() > max {
            let message = format!("the question is larger than the {max} bytes that its host takes");
            return Err(ExtensionError::Failed { message, retryable: true });
        }
        if !begun.line.ask(Box::new(ask)) {
            return Err(ExtensionError::Lost);
        }
        answer.await.unwrap_or(Err(ExtensionError::Lost))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever asked waits no longer, for whatever reason.
struct Forget<'a> {
    extensions: &'a RemoteExtensions,
    id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.extensions.lock().forget(self.id);
    }
}

/// What stands beside each other under one name is one thing.
fn key(tenant: &TenantId, kind: ExtensionKind, name: &str) -> Key {
    (tenant.clone(), kind, name.to_owned())
}

/// The same registry, as what asks through it.
#[derive(Clone)]
pub struct Remote(pub Arc<RemoteExtensions>);

#[async_trait]
impl Extensions for Remote {
    async fn hook(&self, tenant: &TenantId, name: &str) -> Result<Arc<dyn Hook>, ExtensionError> {
        let key = key(tenant, ExtensionKind::Hook, name);
        match self.0.terms(&key).await? {
            Terms::Hook(terms) => Ok(Arc::new(RemoteHook::new(self.0.clone(), key, terms))),
            Terms::Planner { .. } | Terms::ContextSource(_) => Err(ExtensionError::Unknown),
        }
    }

    async fn context_source(
        &self,
        tenant: &TenantId,
        name: &str,
    ) -> Result<Arc<dyn ContextSource>, ExtensionError> {
        let key = key(tenant, ExtensionKind::ContextSource, name);
        match self.0.terms(&key).await? {
            Terms::ContextSource(terms) => Ok(Arc::new(RemoteSource::new(self.0.clone(), key, terms))),
            Terms::Planner { .. } | Terms::Hook(_) => Err(ExtensionError::Unknown),
        }
    }

    async fn planner(&self, tenant: &TenantId, name: &str) -> Result<Arc<dyn Planner>, ExtensionError> {
        let key = key(tenant, ExtensionKind::Planner, name);
        match self.0.terms(&key).await? {
            Terms::Planner { timeout } => Ok(Arc::new(RemotePlanner::new(self.0.clone(), key, timeout))),
            Terms::Hook(_) | Terms::ContextSource(_) => Err(ExtensionError::Unknown),
        }
    }

    fn knows_planner(&self, tenant: &TenantId, name: &str) -> bool {
        self.0.lock().offers.contains_key(&key(tenant, ExtensionKind::Planner, name))
    }
}

impl std::fmt::Debug for RemoteExtensions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteExtensions").finish_non_exhaustive()
    }
}
