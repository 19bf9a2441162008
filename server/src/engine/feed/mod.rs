//! The stream of a run for its subscribers: every durable event from any point on, exactly once, with work in progress
//! between them.
//!
//! A feed exists while the run has a task or a subscriber. Its ring is bounded and shared. A subscriber that falls behind
//! loses work in progress, reads durable events from the journal, and never slows the run.

mod callers;
mod item;
mod ring;
mod subscription;
mod table;

use std::collections::VecDeque;
use std::sync::Arc;

use agentloop_core::context::assemble::{AssembleError, Assembler};
use agentloop_core::id::{Seq, SessionId};
use agentloop_core::message::{FinishReason, SharedMessage, Usage};
use agentloop_core::model::delta::Delta;
use agentloop_core::run::event::{Event, Record};
use agentloop_core::run::input::ResponseSoFar;
use agentloop_core::time::Timestamp;
use agentloop_core::tool::Digest;
use parking_lot::Mutex;

use crate::engine::feed::ring::Ring;

pub(crate) use self::callers::CallerGuard;
pub(in crate::engine) use self::callers::Callers;
pub use self::item::{EncodeOnce, FeedItem, LiveProgress, ModelAttempt, Transient};
pub(in crate::engine) use self::subscription::{SubscriptionDeps, subscribe};
pub use self::table::Feeds;

/// The most durable events of a live run that are kept in memory for new subscribers.
const RECENT_MAX: usize = 64;
/// The most bytes of these events. The last one is kept whatever its size.
const RECENT_BYTES_MAX: usize = 256 * 1024;

/// The response that a piece or an end is for is not under way.
const ENDED: AssembleError = AssembleError::Malformed("the response was ended before");

/// The feed of one run. Clones share it.
#[derive(Clone)]
pub struct Feed(Arc<Inner>);

struct Inner {
    session: SessionId,
    ring: Arc<Ring<FeedItem>>,
    partial: Mutex<Option<PartialResponse>>,
    recent: Mutex<Recent>,
}

/// The response of the model call under way, as far as it has come.
struct PartialResponse {
    call: ModelAttempt,
    /// Digest of the tools that the model was offered.
    tools: Digest,
    began: Timestamp,
    /// When the first piece came.
    first: Option<Timestamp>,
    delta_seq: u64,
    content: ResponseContent,
}

enum ResponseContent {
    /// It grows by each piece.
    Growing(Box<Assembler>),
    /// It is complete, and its event is not published yet.
    Complete(SharedMessage, Usage),
}

/// A response that is complete.
pub(in crate::engine) struct CompleteResponse {
    pub(in crate::engine) message: SharedMessage,
    /// Reason why the model ended it.
    pub(in crate::engine) finish: FinishReason,
    /// Tokens of the attempt, without their cost.
    pub(in crate::engine) usage: Usage,
}

/// The last events that were published, without a gap between them.
#[derive(Default)]
struct Recent {
    records: VecDeque<SizedRecord>,
    bytes: usize,
}

#[derive(Clone)]
struct SizedRecord {
    record: Arc<EncodeOnce<Arc<Record>>>,
    /// Approximate size in bytes.
    bytes: usize,
}

/// The session and the last durable event of a run, as far as its feed knows.
pub(in crate::engine) struct FeedHead {
    pub(in crate::engine) session: SessionId,
    pub(in crate::engine) last: Arc<Record>,
}

impl Feed {
    /// Shows durable events to subscribers. Call it only after they are durable.
    pub fn publish(&self, records: &[Arc<Record>]) {
        let sized = |record: &Arc<Record>| SizedRecord {
            bytes: record.weight(),
            record: Arc::new(EncodeOnce::new(record.clone())),
        };
        let records: Vec<SizedRecord> = records.iter().map(sized).collect();
        // Before they are sent: a subscriber that joins now and misses them in the ring finds them in memory.
        self.remember(&records);
        if records.iter().any(|new| ends_response(&new.record.event)) {
            *self.0.partial.lock() = None;
        }
        let Some(at) = records.last().map(|last| last.record.at) else { return };
        let items =
            records.into_iter().map(|SizedRecord { record, bytes }| (FeedItem::Durable(record), bytes));
        self.0.ring.send_all(items, at);
    }

    fn remember(&self, records: &[SizedRecord]) {
        let mut recent = self.0.recent.lock();
        let last = recent.records.back().map(|last| last.record.seq);
        let new = records.iter().filter(|new| last.is_none_or(|last| new.record.seq > last));
        // A gap: events were written without being published. They are only in the journal.
        if new.clone().next().zip(last).is_some_and(|(next, last)| next.record.seq != last.next()) {
            *recent = Recent::default();
        }
        new.for_each(|new| recent.push(new.clone()));
    }

    fn head(&self) -> Option<FeedHead> {
        let recent = self.0.recent.lock();
        let last: &Arc<Record> = &recent.records.back()?.record;
        Some(FeedHead { session: self.0.session.clone(), last: last.clone() })
    }

    /// Every durable event after `after` until now. `None` if some of them are not in memory.
    fn recent_after(&self, after: Seq) -> Option<Vec<FeedItem>> {
        let recent = self.0.recent.lock();
        let first = recent.records.front()?.record.seq;
        let records = recent.records.iter().map(|recent| &recent.record);
        let wanted = records.filter(|record| record.seq > after);
        (first <= after.next()).then(|| wanted.cloned().map(FeedItem::Durable).collect())
    }

    /// Every durable event of a run that has ended. `None` if it has not, or if some of them are not in memory.
    pub(in crate::engine) fn ended_journal(&self) -> Option<Vec<Arc<EncodeOnce<Arc<Record>>>>> {
        let recent = self.0.recent.lock();
        let (first, last) = (recent.records.front()?, recent.records.back()?);
        let has_ended = matches!(last.record.event, Event::Finished { .. });
        let is_whole = has_ended && first.record.seq == Seq(0).next();
        is_whole.then(|| recent.records.iter().map(|recent| recent.record.clone()).collect())
    }

    /// Shows work in progress to subscribers.
    pub fn publish_progress(&self, at: Timestamp, progress: LiveProgress) {
        if self.0.ring.receivers() > 0 {
            let bytes = progress.size();
            self.0.ring.send(FeedItem::transient(Transient { at, what: progress }), bytes, at);
        }
    }

    /// Begins the response of an attempt of a model call, with the digest of the tools that the model is offered.
    pub fn begin_response(&self, call: ModelAttempt, tools: Digest, began: Timestamp) {
        let content = ResponseContent::Growing(Box::new(Assembler::new(call.model_call)));
        *self.0.partial.lock() =
            Some(PartialResponse { call, tools, began, first: None, delta_seq: 0, content });
    }

    /// Adds a piece to the response and shows it to subscribers. Later ones get the response so far as a snapshot.
    ///
    /// # Errors
    /// [`AssembleError`] if the message passes its bounds.
    pub fn push_delta(&self, at: Timestamp, delta: Delta) -> Result<(), AssembleError> {
        let (call, delta_seq) = {
            let mut partial = self.0.partial.lock();
            let Some(partial) = partial.as_mut() else { return Ok(()) };
            let ResponseContent::Growing(assembler) = &mut partial.content else { return Ok(()) };
            partial.delta_seq += 1;
            partial.first.get_or_insert(at);
            assembler.consume(partial.delta_seq, &delta)?;
            (partial.call, partial.delta_seq)
        };
        self.publish_progress(at, LiveProgress::Delta { call, delta_seq, delta });
        Ok(())
    }

    /// Completes the response. It stays at hand until its event is published, for a run that ends before that.
    ///
    /// # Errors
    /// [`AssembleError`] if no piece ended the response, or if there is none.
    pub(in crate::engine) fn complete_response(&self) -> Result<CompleteResponse, AssembleError> {
        let mut partial = self.0.partial.lock();
        let content = partial.as_mut().map(|partial| (partial.call.model_call, &mut partial.content));
        let Some((model_call, content)) = content else { return Err(ENDED) };
        let done = match content {
            ResponseContent::Growing(assembler) => {
                std::mem::replace(&mut **assembler, Assembler::new(model_call)).finish()?
            }
            ResponseContent::Complete(..) => return Err(ENDED),
        };
        let message = Arc::new(done.message);
        *content = ResponseContent::Complete(message.clone(), done.usage);
        Ok(CompleteResponse { message, finish: done.finish_reason, usage: done.usage })
    }

    /// Forgets the response, because its attempt failed.
    pub fn drop_response(&self) {
        *self.0.partial.lock() = None;
    }

    /// The response so far, as the machine reads it. Its usage has no cost. `None` if there is none under way.
    pub(in crate::engine) fn response_so_far(&self, now: Timestamp) -> Option<ResponseSoFar> {
        let partial = self.0.partial.lock();
        let partial = partial.as_ref()?;
        let (message, usage) = match &partial.content {
            ResponseContent::Growing(assembler) => (Arc::new(assembler.partial()), assembler.usage()),
            ResponseContent::Complete(message, usage) => (message.clone(), *usage),
        };
        Some(ResponseSoFar {
            model_call: partial.call.model_call,
            attempt: partial.call.attempt,
            message,
            usage,
            first_token: partial.first.unwrap_or(now).since(partial.began),
            duration: now.since(partial.began),
            tools: partial.tools.clone(),
        })
    }

    /// A snapshot of the response so far, if it has any pieces.
    fn snapshot(&self, at: Timestamp) -> Option<Transient> {
        let partial = self.0.partial.lock();
        let partial = partial.as_ref().filter(|partial| partial.delta_seq > 0)?;
        let ResponseContent::Growing(assembler) = &partial.content else { return None };
        let what = LiveProgress::Partial {
            call: partial.call,
            delta_seq: partial.delta_seq,
            message: assembler.partial(),
        };
        Some(Transient { at, what })
    }

    /// True if the run was deleted with its session.
    pub fn is_deleted(&self) -> bool {
        self.0.ring.is_closed()
    }

    fn session(&self) -> &SessionId {
        &self.0.session
    }

    fn ring(&self) -> &Arc<Ring<FeedItem>> {
        &self.0.ring
    }
}

/// True for events after which the response so far is not shown any more.
fn ends_response(event: &Event) -> bool {
    matches!(event, Event::AssistantMessage { .. } | Event::ModelCallFailed { .. } | Event::Finished { .. })
}

impl Recent {
    fn push(&mut self, new: SizedRecord) {
        self.bytes += new.bytes;
        self.records.push_back(new);
        while self.records.len() > 1 && (self.records.len() > RECENT_MAX || self.bytes > RECENT_BYTES_MAX) {
            self.bytes -= self.records.pop_front().map_or(0, |old| old.bytes);
        }
    }
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("subscribers", &self.0.ring.receivers()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
