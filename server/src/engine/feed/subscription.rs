//! One subscription of a run: reads the journal up to the present, then follows the feed, and goes back to the journal
//! whenever it has lost items.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use agentloop_core::id::{RunKey, Seq};
use agentloop_core::run::event::Event;
use agentloop_core::time::Millis;
use futures_util::Stream;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::engine::error::EngineError;
use crate::engine::feed::Feed;
use crate::engine::feed::callers::CallerGuard;
use crate::engine::feed::item::{FeedItem, LiveProgress, ModelAttempt};
use crate::engine::feed::ring::{Receiver, RecvError, StallPolicy};
use crate::store::{Store, StoreError, StretchMax};

/// The most that is read from the journal at a time.
const CATCH_UP_MAX: StretchMax = StretchMax { records: 256, bytes: 1024 * 1024 };

/// The parts of the engine that a subscription needs.
pub(in crate::engine) struct SubscriptionDeps {
    pub(in crate::engine) store: Arc<dyn Store>,
    pub(in crate::engine) clock: Arc<dyn Clock>,
    /// A subscriber that is behind and has not read for this long is ended.
    pub(in crate::engine) stall: Millis,
    /// Cancelled when the session is given to another replica, and when the server shuts down. The subscription then ends.
    pub(in crate::engine) stop: CancellationToken,
    /// Cancelled when the server shuts down.
    pub(in crate::engine) shutdown: CancellationToken,
    /// Counts subscribers that were ended because they did not read.
    pub(in crate::engine) slow: Arc<AtomicU64>,
    /// Held as long as the stream of events, if the subscriber counts as a caller of the run.
    pub(in crate::engine) _caller: Option<CallerGuard>,
}

/// The events after `after`, to the end of the run. None if the subscriber `is_complete`: it has the run's last event.
pub(in crate::engine) fn subscribe(
    feed: Feed,
    deps: SubscriptionDeps,
    key: RunKey,
    after: Seq,
    is_complete: bool,
) -> impl Stream<Item = Result<FeedItem, EngineError>> + Send + 'static {
    let policy = StallPolicy { stall: deps.stall, stalled: deps.slow.clone() };
    let receiver = feed.ring().subscribe(deps.clock.now(), policy);
    let subscription = RunSubscription {
        feed,
        receiver,
        deps,
        key,
        last: after,
        last_delta: None,
        ready: VecDeque::new(),
        mode: if is_complete { SubscriptionMode::Ended } else { SubscriptionMode::CatchUp },
    };
    futures_util::stream::unfold(subscription, |mut subscription| async move {
        let item = subscription.next().await?;
        if item.is_err() {
            subscription.mode = SubscriptionMode::Ended;
        }
        Some((item, subscription))
    })
}

enum SubscriptionMode {
    /// Reads what it has not seen from memory or the journal.
    CatchUp,
    /// Follows the feed's ring.
    Live,
    /// Has no more items.
    Ended,
}

struct RunSubscription {
    feed: Feed,
    receiver: Receiver<FeedItem>,
    deps: SubscriptionDeps,
    key: RunKey,
    /// The last durable event that was shown.
    last: Seq,
    /// The last delta that was shown or is part of a snapshot that was. Earlier ones are repetitions. After the end of an
    /// attempt, all its deltas are: they are void, or the message has them.
    last_delta: Option<(ModelAttempt, u64)>,
    /// Items to show next.
    ready: VecDeque<FeedItem>,
    mode: SubscriptionMode,
}

impl RunSubscription {
    async fn next(&mut self) -> Option<Result<FeedItem, EngineError>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                self.mark_shown(&item);
                return Some(Ok(item));
            }
            match self.mode {
                SubscriptionMode::Ended => return None,
                SubscriptionMode::CatchUp => {
                    if let Err(error) = self.catch_up().await {
                        return Some(Err(error));
                    }
                }
                SubscriptionMode::Live => match self.recv().await {
                    None if self.deps.shutdown.is_cancelled() => return Some(Err(EngineError::ShuttingDown)),
                    None => return Some(Err(EngineError::Store(StoreError::Elsewhere))),
                    Some(Ok(item)) => self.accept(item),
                    Some(Err(RecvError::Lagged)) => self.mode = SubscriptionMode::CatchUp,
                    Some(Err(RecvError::Closed)) => return Some(Err(EngineError::RunNotFound)),
                    Some(Err(RecvError::Stalled)) => return Some(Err(EngineError::SubscriberTooSlow)),
                },
            }
        }
    }

    /// The next live item. `None` when the session is given away, or the server shuts down.
    async fn recv(&mut self) -> Option<Result<FeedItem, RecvError>> {
        tokio::select! { biased;
            item = self.receiver.recv() => Some(item),
            () = self.deps.stop.cancelled() => None,
        }
    }

    async fn catch_up(&mut self) -> Result<(), EngineError> {
        if self.feed.is_deleted() {
            return Err(EngineError::RunNotFound);
        }
        let RunKey { tenant, run } = &self.key;
        let after = self.last_read();
        if let Some(recent) = self.feed.recent_after(after) {
            self.ready.extend(recent);
            self.go_live();
            return Ok(());
        }
        let stretch = self.deps.store.stretch(tenant, run, after, CATCH_UP_MAX).await?;
        if stretch.records.is_empty() {
            // Nothing follows yet, or the run was deleted.
            let row = self.deps.store.run(tenant, run).await?;
            row.filter(|row| row.session == *self.feed.session()).ok_or(EngineError::RunNotFound)?;
        }
        self.ready.extend(stretch.records.into_iter().map(|record| FeedItem::durable(Arc::new(record))));
        if !stretch.more {
            self.go_live();
        }
        Ok(())
    }

    /// Follows the feed from here on, after a snapshot of the model's response so far.
    fn go_live(&mut self) {
        self.mode = SubscriptionMode::Live;
        if let Some(partial) = self.feed.snapshot(self.deps.clock.now()) {
            self.ready.push_back(FeedItem::transient(partial));
        }
    }

    /// The last durable event that was shown or is ready to be.
    fn last_read(&self) -> Seq {
        self.ready
            .iter()
            .rev()
            .find_map(|item| match item {
                FeedItem::Durable(record) => Some(record.seq),
                FeedItem::Transient(_) => None,
            })
            .unwrap_or(self.last)
    }

    /// Takes a live item, unless it is a repetition. A gap in the events sends the subscription back to the journal.
    fn accept(&mut self, item: FeedItem) {
        match &item {
            FeedItem::Durable(record) if record.seq <= self.last => {}
            FeedItem::Durable(record) if record.seq > self.last.next() => {
                self.mode = SubscriptionMode::CatchUp
            }
            FeedItem::Durable(_) => self.ready.push_back(item),
            FeedItem::Transient(transient) => {
                let is_next = match &transient.what {
                    LiveProgress::Delta { call, delta_seq, .. } => self.is_next(*call, *delta_seq),
                    LiveProgress::Partial { call, delta_seq, .. } => {
                        self.last_delta.is_none_or(|last| (*call, *delta_seq) > last)
                    }
                    LiveProgress::Call { .. } | LiveProgress::Output { .. } => true,
                };
                if is_next {
                    self.ready.push_back(item);
                }
            }
        }
    }

    /// True if no delta of the attempt is missing before this one. A subscriber that joins as a response ends may find its
    /// last deltas in the ring, but no snapshot of the earlier ones. It gets the finished message instead.
    fn is_next(&self, call: ModelAttempt, delta_seq: u64) -> bool {
        match self.last_delta {
            Some((last, seq)) if last == call => seq.checked_add(1) == Some(delta_seq),
            Some((last, _)) if last > call => false,
            _ => delta_seq == 1,
        }
    }

    fn mark_shown(&mut self, item: &FeedItem) {
        self.receiver.mark_read(self.deps.clock.now());
        match item {
            FeedItem::Durable(record) => {
                self.last = record.seq;
                // An event that was read from the journal may come before deltas that the ring still has.
                if let Some(over) = ended_attempt(&record.event) {
                    self.last_delta = self.last_delta.max(Some((over, u64::MAX)));
                }
                if matches!(record.event, Event::Finished { .. }) {
                    self.ready.clear();
                    self.mode = SubscriptionMode::Ended;
                }
            }
            FeedItem::Transient(transient) => match &transient.what {
                LiveProgress::Delta { call, delta_seq, .. }
                | LiveProgress::Partial { call, delta_seq, .. } => {
                    self.last_delta = Some((*call, *delta_seq));
                }
                LiveProgress::Call { .. } | LiveProgress::Output { .. } => {}
            },
        }
    }
}

/// The attempt of a model call that ends with this event.
pub(super) fn ended_attempt(event: &Event) -> Option<ModelAttempt> {
    match *event {
        Event::AssistantMessage { model_call, attempt, .. }
        | Event::ModelCallFailed { model_call, attempt, .. } => Some(ModelAttempt { model_call, attempt }),
        _ => None,
    }
}
