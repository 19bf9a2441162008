//! The items that subscribers are shown: durable events and work in progress.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use agentloop_core::id::{Attempt, CallSlot};
use agentloop_core::message::Message;
use agentloop_core::model::delta::Delta;
use agentloop_core::run::event::Record;
use agentloop_core::time::Timestamp;
use bytes::Bytes;

/// Bytes of an item beside its texts.
const ITEM_BYTES: usize = 128;

/// An item of a feed: a durable event, or work in progress.
#[derive(Debug, Clone)]
pub enum FeedItem {
    /// A durable event of the run's journal.
    Durable(Arc<EncodeOnce<Arc<Record>>>),
    /// Work in progress. It is not stored and may be lost.
    Transient(Arc<EncodeOnce<Transient>>),
}

/// An item with its encoded form, which the first subscriber makes and all others share. Both live as long as the item,
/// so an item takes about twice its bytes.
#[derive(Debug)]
pub struct EncodeOnce<T> {
    item: T,
    encoded: OnceLock<Bytes>,
}

/// Work in progress, with the time at which it happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Transient {
    /// The time at which it happened.
    pub at: Timestamp,
    /// The kind of work and its content.
    pub what: LiveProgress,
}

/// Work in progress, which is not part of the journal.
#[derive(Debug, Clone, PartialEq)]
pub enum LiveProgress {
    /// A piece of the model's response.
    Delta {
        /// The attempt of the model call that it belongs to.
        call: ModelAttempt,
        /// Number of the piece, counted from 1 within the attempt.
        delta_seq: u64,
        /// The text, or another part of the response.
        delta: Delta,
    },
    /// A snapshot of the model's response.
    Partial {
        /// The attempt of the model call that it belongs to.
        call: ModelAttempt,
        /// Number of the last delta in the snapshot.
        delta_seq: u64,
        /// The message so far.
        message: Message,
    },
    /// A progress report of a tool call.
    Call {
        /// The slot of the tool call in its run.
        slot: CallSlot,
        /// The attempt that reports it.
        attempt: Attempt,
        /// The tool's message, for people.
        message: String,
        /// The share that is done, from 0 to 1.
        fraction: Option<f64>,
    },
    /// Output of a running tool call.
    Output {
        /// The slot of the tool call in its run.
        slot: CallSlot,
        /// The attempt that wrote it.
        attempt: Attempt,
        /// Number of the chunk, counted from 1 within the attempt.
        chunk_seq: u64,
        /// True for standard error, false for standard output.
        stderr: bool,
        /// The bytes as the tool wrote them.
        data: Vec<u8>,
    },
}

/// An attempt of a model call. Later ones are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModelAttempt {
    /// The model call, counted from 1 in its run.
    pub model_call: u32,
    /// The attempt, counted from 1 in its model call.
    pub attempt: Attempt,
}

impl FeedItem {
    /// An item for a durable event, not encoded yet.
    #[must_use]
    pub fn durable(record: Arc<Record>) -> Self {
        Self::Durable(Arc::new(EncodeOnce::new(record)))
    }

    /// An item for work in progress, not encoded yet.
    #[must_use]
    pub fn transient(transient: Transient) -> Self {
        Self::Transient(Arc::new(EncodeOnce::new(transient)))
    }

    /// The time at which it happened.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        match self {
            Self::Durable(record) => record.at,
            Self::Transient(transient) => transient.at,
        }
    }

    /// The item's encoded form. Every caller must pass the same `encode`: it is called for the first one only.
    pub fn encoded(&self, encode: impl FnOnce(&Self) -> Bytes) -> Bytes {
        let encoded = match self {
            Self::Durable(record) => &record.encoded,
            Self::Transient(transient) => &transient.encoded,
        };
        encoded.get_or_init(|| encode(self)).clone()
    }
}

impl<T> EncodeOnce<T> {
    pub(in crate::engine) fn new(item: T) -> Self {
        Self { item, encoded: OnceLock::new() }
    }
}

impl<T> Deref for EncodeOnce<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.item
    }
}

impl LiveProgress {
    /// Approximate size in bytes.
    pub(super) fn size(&self) -> usize {
        let texts = match self {
            Self::Delta { delta, .. } => delta.size(),
            Self::Partial { message, .. } => message.size(),
            Self::Call { message, .. } => message.len(),
            Self::Output { data, .. } => data.len(),
        };
        ITEM_BYTES + texts
    }
}
