//! The feeds that exist, by run and by session.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use agentloop_core::id::{RunId, RunKey, SessionId, SessionKey, TenantId};
use agentloop_core::run::event::Record;
use parking_lot::{Mutex, MutexGuard};

use super::ring::Ring;
use super::{Feed, FeedHead, Inner};

/// The most bytes in a run's ring. A subscriber that loses durable events there finds them in the journal.
const RING_BYTES_MAX: usize = 1024 * 1024;

/// Entries of feeds that are gone are swept out of the table when it has this many entries, or twice as many as the last
/// sweep left.
pub(super) const SWEEP_AT_LEAST: usize = 64;

/// The feeds that exist now, by run.
#[derive(Default)]
pub struct Feeds(Mutex<FeedTable>);

#[derive(Default)]
pub(super) struct FeedTable {
    feeds: HashMap<RunKey, Weak<Inner>>,
    /// The runs of each session that have an entry in `feeds`, so that a deletion does not look through all feeds.
    pub(super) by_session: HashMap<SessionKey, BTreeSet<RunId>>,
    /// The number of entries at which entries of feeds that are gone are swept out.
    sweep_at: usize,
}

impl Feeds {
    /// The feed of this run of this session. It is made if there is none. `buffer` is the most items in its ring.
    pub fn get_or_create(&self, key: &RunKey, session: &SessionId, buffer: usize) -> Feed {
        let mut table = self.table();
        let known = table.feeds.get(key).and_then(Weak::upgrade).filter(|inner| inner.session == *session);
        if let Some(inner) = known {
            return Feed(inner);
        }
        if table.feeds.len() >= table.sweep_at {
            table.sweep();
        }
        let feed = Feed::apart(session, buffer);
        table.insert(key, &feed.0);
        feed
    }

    /// The run's feed, if there is one.
    pub(in crate::engine) fn get(&self, key: &RunKey) -> Option<Feed> {
        self.table().feeds.get(key).and_then(Weak::upgrade).map(Feed)
    }

    /// The run's feed and its last event, if there is a feed to which an event was published.
    pub(in crate::engine) fn head(&self, key: &RunKey) -> Option<(Feed, FeedHead)> {
        let feed = self.get(key)?;
        let head = feed.head()?;
        Some((feed, head))
    }

    /// Publishes the last event of a run's journal. Subscribers read earlier ones from the journal. This is needed if the
    /// store wrote events and lost the reply: nobody published them, and the run's end may be among them.
    pub(in crate::engine) fn publish_last(&self, key: &RunKey, session: &SessionId, last: &Record) {
        if let Some(feed) = self.get(key).filter(|feed| feed.0.session == *session) {
            feed.publish(&[Arc::new(last.clone())]);
        }
    }

    /// Closes the feeds of a deleted session's runs. A new run with the same id gets a feed of its own.
    pub(in crate::engine) fn close_session(&self, tenant: &TenantId, session: &SessionId) {
        // In the order of the runs, so that a simulation that replays a seed sees the same order.
        for feed in self.table().take_session(tenant, session) {
            feed.ring.close();
        }
    }

    /// Removes the feeds of the sessions that `is_left` names, and closes none of them. They may miss what another replica
    /// writes, so they are no start for later subscribers.
    pub(in crate::engine) fn remove_where(&self, is_left: impl Fn(&TenantId, &SessionId) -> bool) {
        let mut table = self.table();
        let sessions = table.by_session.keys().filter(|key| is_left(&key.tenant, &key.session));
        for SessionKey { tenant, session } in sessions.cloned().collect::<Vec<_>>() {
            drop(table.take_session(&tenant, &session));
        }
    }

    pub(super) fn table(&self) -> MutexGuard<'_, FeedTable> {
        self.0.lock()
    }
}

impl Feed {
    /// A feed that nobody finds: for a run that may yet turn out to be another one's.
    pub(in crate::engine) fn apart(session: &SessionId, buffer: usize) -> Self {
        Self(Arc::new(Inner {
            session: session.clone(),
            ring: Ring::new(buffer, RING_BYTES_MAX),
            partial: Mutex::default(),
            recent: Mutex::default(),
        }))
    }
}

impl FeedTable {
    fn insert(&mut self, key: &RunKey, inner: &Arc<Inner>) {
        self.feeds.insert(key.clone(), Arc::downgrade(inner));
        let of_session = SessionKey::new(key.tenant.clone(), inner.session.clone());
        self.by_session.entry(of_session).or_default().insert(key.run.clone());
    }

    /// Removes the feeds of a session, and returns those that exist still.
    fn take_session(&mut self, tenant: &TenantId, session: &SessionId) -> Vec<Arc<Inner>> {
        let of_session = SessionKey::new(tenant.clone(), session.clone());
        let runs = self.by_session.remove(&of_session).unwrap_or_default();
        let mut taken = Vec::new();
        for run in runs {
            let key = RunKey::new(tenant.clone(), run);
            match self.feeds.get(&key).map(Weak::upgrade) {
                // The id was used again, in another session.
                Some(Some(feed)) if feed.session != *session => {}
                Some(feed) => {
                    self.feeds.remove(&key);
                    taken.extend(feed);
                }
                None => {}
            }
        }
        taken
    }

    /// Removes the entries of feeds that are gone.
    fn sweep(&mut self) {
        let Self { feeds, by_session, sweep_at } = self;
        feeds.retain(|_, feed| feed.strong_count() > 0);
        by_session.retain(|SessionKey { tenant, .. }, runs| {
            runs.retain(|run| feeds.contains_key(&RunKey::new(tenant.clone(), run.clone())));
            !runs.is_empty()
        });
        *sweep_at = SWEEP_AT_LEAST.max(2 * feeds.len());
    }
}
