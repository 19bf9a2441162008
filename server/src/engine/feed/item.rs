//! What subscribers are shown, and the form in which it is sent to them.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use agentloop_core::run::event::Record;
use bytes::Bytes;

use crate::engine::feed::Transient;

/// Something to show.
#[derive(Debug, Clone)]
pub enum FeedItem {
    /// A durable event.
    Durable(Arc<Sendable<Arc<Record>>>),
    /// Work in progress.
    Transient(Arc<Sendable<Transient>>),
}

/// Something to show, and as what it is sent: made by whoever sends it first, for everyone who is shown it. That lives
/// as long as what it was made of, so what is shown takes at most about twice its room.
#[derive(Debug)]
pub struct Sendable<T> {
    what: T,
    encoded: OnceLock<Bytes>,
}

impl FeedItem {
    /// A durable event that nobody was shown.
    #[must_use]
    pub fn durable(record: Arc<Record>) -> Self {
        Self::Durable(Arc::new(Sendable::new(record)))
    }

    /// Work in progress that nobody was shown.
    #[must_use]
    pub fn transient(transient: Transient) -> Self {
        Self::Transient(Arc::new(Sendable::new(transient)))
    }

    /// As what it is sent. All who send it must agree on `encode`, which is called for one of them.
    pub fn encoded(&self, encode: impl FnOnce(&Self) -> Bytes) -> Bytes {
        let encoded = match self {
            Self::Durable(record) => &record.encoded,
            Self::Transient(transient) => &transient.encoded,
        };
        encoded.get_or_init(|| encode(self)).clone()
    }
}

impl<T> Sendable<T> {
    pub(in crate::engine) fn new(what: T) -> Self {
        Self { what, encoded: OnceLock::new() }
    }
}

impl<T> Deref for Sendable<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.what
    }
}
