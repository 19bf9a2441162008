//! What subscribers see of a run: its journal from any point on, exactly once, then what happens live.
//!
//! A feed exists while the run has a task or a subscriber. The ring between them is bounded and shared: a subscriber
//! that falls behind loses what is transient, reads what is durable from the journal, and never slows the run.

mod item;
mod ring;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use agentloop_core::context::assemble::Assembler;
use agentloop_core::delta::Delta;
use agentloop_core::id::{CallSlot, RunKey, Seq, SessionId, TenantId};
use agentloop_core::message::Message;
use agentloop_core::run::event::{Event, Record};
use agentloop_core::time::{Millis, Timestamp};
use futures_util::Stream;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::engine::error::EngineError;
use crate::engine::feed::ring::{Listener, Missed, Patience, Ring};
use crate::store::{Store, StretchMax};

pub use self::item::{FeedItem, Sendable};

/// What is read from the journal at a time.
const CATCH_UP_MAX: StretchMax = StretchMax { records: 256, bytes: 1024 * 1024 };

/// Durable events of a live run that are at hand without the journal.
const RECENT_MAX: usize = 64;
/// Their bytes, but for the last one, which is always at hand.
const RECENT_BYTES_MAX: usize = 256 * 1024;

/// What waits for those who listen to one run. Who misses something finds it in the journal.
const WAITING_BYTES_MAX: usize = 1024 * 1024;
/// What any item takes beside its texts.
const ITEM_BYTES: usize = 128;

/// Entries of feeds that are gone are not worth sweeping below this many.
const SWEEP_AT_LEAST: usize = 64;

/// Work in progress, stamped.
#[derive(Debug, Clone, PartialEq)]
pub struct Transient {
    /// The time at which it happened.
    pub at: Timestamp,
    /// What is shown.
    pub what: Progress,
}

/// Work in progress.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// A piece of the model's answer.
    Delta {
        /// Which model call and which try.
        call: ModelAttempt,
        /// Rising within the try.
        delta_seq: u64,
        /// The piece.
        delta: Delta,
    },
    /// The model's answer so far.
    Partial {
        /// Which model call and which try.
        call: ModelAttempt,
        /// The last delta in it.
        delta_seq: u64,
        /// The message so far.
        message: Message,
    },
    /// How far a tool call is.
    Call {
        /// The call.
        slot: CallSlot,
        /// The try, counted from 1.
        attempt: u32,
        /// What the tool reports, as people read it.
        message: String,
        /// 0 to 1.
        fraction: Option<f64>,
    },
    /// Output of a running tool call.
    Output {
        /// The call.
        slot: CallSlot,
        /// The try, counted from 1.
        attempt: u32,
        /// From 1.
        chunk_seq: u64,
        /// Whether it is standard error.
        stderr: bool,
        /// The bytes.
        data: Vec<u8>,
    },
}

/// A try of a model call. Later ones are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModelAttempt {
    /// The model call, counted from 1 in its run.
    pub model_call: u32,
    /// The try, counted from 1 in its call.
    pub attempt: u32,
}

/// The model's message in the making.
struct Speaking {
    call: ModelAttempt,
    delta_seq: u64,
    assembler: Assembler,
}

struct Inner {
    session: SessionId,
    ring: Arc<Ring<FeedItem>>,
    speaking: Mutex<Option<Speaking>>,
    recent: Mutex<Recent>,
}

/// What was published last: without a gap.
#[derive(Default)]
struct Recent {
    records: VecDeque<Weighed>,
    bytes: usize,
}

/// An event, and roughly its bytes.
#[derive(Clone)]
struct Weighed {
    record: Arc<Sendable<Arc<Record>>>,
    bytes: usize,
}

/// Where a live run stands.
pub(in crate::engine) struct Standing {
    /// Its session.
    pub(in crate::engine) session: SessionId,
    /// Its last durable event.
    pub(in crate::engine) last: Arc<Record>,
}

/// One run's feed.
#[derive(Clone)]
pub struct Feed(Arc<Inner>);

/// The feeds that exist now.
#[derive(Default)]
pub struct Feeds(Mutex<Register>);

#[derive(Default)]
struct Register {
    feeds: HashMap<RunKey, Weak<Inner>>,
    /// How many entries it may have before those of feeds that are gone are swept out.
    sweep_at: usize,
}

impl Feeds {
    /// The feed of this run of this session, made if there is none.
    pub fn of(&self, key: &RunKey, session: &SessionId, buffer: usize) -> Feed {
        let mut register = self.register();
        let Register { feeds, sweep_at } = &mut *register;
        if let Some(inner) = feeds.get(key).and_then(Weak::upgrade).filter(|inner| inner.session == *session)
        {
            return Feed(inner);
        }
        if feeds.len() >= *sweep_at {
            feeds.retain(|_, feed| feed.strong_count() > 0);
            *sweep_at = SWEEP_AT_LEAST.max(2 * feeds.len());
        }
        let inner = Arc::new(Inner {
            session: session.clone(),
            ring: Ring::new(buffer, WAITING_BYTES_MAX),
            speaking: Mutex::default(),
            recent: Mutex::default(),
        });
        feeds.insert(key.clone(), Arc::downgrade(&inner));
        Feed(inner)
    }

    /// Tells those who listen to a run how far its journal has come: where the answer to a write was lost, nobody
    /// published what it wrote, and the run's end may be among it.
    pub(in crate::engine) fn remind(&self, key: &RunKey, session: &SessionId, last: &Record) {
        if let Some(feed) = self.existing(key).filter(|feed| feed.0.session == *session) {
            feed.publish(&[Arc::new(last.clone())]);
        }
    }

    /// The run's feed, if there is one that has something to say.
    pub(in crate::engine) fn standing(&self, key: &RunKey) -> Option<(Feed, Standing)> {
        let feed = self.existing(key)?;
        let standing = feed.standing()?;
        Some((feed, standing))
    }

    /// The run's feed, if there is one.
    pub(in crate::engine) fn existing(&self, key: &RunKey) -> Option<Feed> {
        self.register().feeds.get(key).and_then(Weak::upgrade).map(Feed)
    }

    /// The session is deleted, and its runs with it: those who listen hear so, and what comes by their ids is others.
    pub(in crate::engine) fn forget(&self, tenant: &TenantId, session: &SessionId) {
        let mut gone = BTreeMap::new();
        self.register().feeds.retain(|key, feed| {
            let Some(feed) = feed.upgrade() else { return false };
            let is_gone = key.tenant == *tenant && feed.session == *session;
            if is_gone {
                gone.insert(key.clone(), feed);
            }
            !is_gone
        });
        // In an order that is the same in every process.
        gone.values().for_each(|feed| feed.ring.close());
    }

    fn register(&self) -> MutexGuard<'_, Register> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Feed {
    /// Shows durable events. They must be durable by now.
    pub fn publish(&self, records: &[Arc<Record>]) {
        let weigh = |record: &Arc<Record>| Weighed {
            bytes: record.weight(),
            record: Arc::new(Sendable::new(record.clone())),
        };
        let records: Vec<Weighed> = records.iter().map(weigh).collect();
        self.keep(&records);
        if records.iter().any(|new| ends_speaking(&new.record.event)) {
            *self.speaking() = None;
        }
        let Some(at) = records.last().map(|last| last.record.at) else { return };
        let shown = records.into_iter().map(|Weighed { record, bytes }| (FeedItem::Durable(record), bytes));
        self.0.ring.send_all(shown, at);
    }

    /// Before they are shown: whoever listens from now on and does not hear them finds them here.
    fn keep(&self, records: &[Weighed]) {
        let mut recent = self.recent();
        let last = recent.records.back().map(|last| last.record.seq);
        let new = records.iter().filter(|new| last.is_none_or(|last| new.record.seq > last));
        // What was written without being published, its answer lost, is only in the journal.
        if new.clone().next().zip(last).is_some_and(|(next, last)| next.record.seq != last.next()) {
            *recent = Recent::default();
        }
        new.for_each(|new| recent.push(new.clone()));
    }

    fn standing(&self) -> Option<Standing> {
        let recent = self.recent();
        let last: &Arc<Record> = &recent.records.back()?.record;
        Some(Standing { session: self.0.session.clone(), last: last.clone() })
    }

    /// Every durable event after `after` so far, if all of them are at hand.
    fn since(&self, after: Seq) -> Option<Vec<FeedItem>> {
        let recent = self.recent();
        let first = recent.records.front()?.record.seq;
        let records = recent.records.iter().map(|recent| &recent.record);
        let wanted = records.filter(|record| record.seq > after);
        (first <= after.next()).then(|| wanted.cloned().map(FeedItem::Durable).collect())
    }

    /// Shows work in progress.
    pub fn show(&self, at: Timestamp, what: Progress) {
        if self.0.ring.listeners() > 0 {
            let bytes = what.size();
            self.0.ring.send(FeedItem::transient(Transient { at, what }), bytes, at);
        }
    }

    /// The model begins to speak.
    pub fn begin(&self, call: ModelAttempt) {
        *self.speaking() = Some(Speaking { call, delta_seq: 0, assembler: Assembler::new(call.model_call) });
    }

    /// The model says more: kept for those who join later, shown to those who listen.
    ///
    /// # Errors
    /// When the message passes its bounds.
    pub fn say(
        &self,
        at: Timestamp,
        delta: Delta,
    ) -> Result<(), agentloop_core::context::assemble::AssembleError> {
        let (call, delta_seq) = {
            let mut speaking = self.speaking();
            let Some(speaking) = speaking.as_mut() else { return Ok(()) };
            speaking.delta_seq += 1;
            speaking.assembler.consume(speaking.delta_seq, &delta)?;
            (speaking.call, speaking.delta_seq)
        };
        self.show(at, Progress::Delta { call, delta_seq, delta });
        Ok(())
    }

    /// The model has finished: takes what it said.
    pub fn end(&self) -> Option<Assembler> {
        self.speaking().take().map(|speaking| speaking.assembler)
    }

    fn snapshot(&self, at: Timestamp) -> Option<Transient> {
        let speaking = self.speaking();
        let speaking = speaking.as_ref().filter(|speaking| speaking.delta_seq > 0)?;
        let what = Progress::Partial {
            call: speaking.call,
            delta_seq: speaking.delta_seq,
            message: speaking.assembler.partial(),
        };
        Some(Transient { at, what })
    }

    /// Whether its run was deleted.
    pub fn is_gone(&self) -> bool {
        self.0.ring.is_closed()
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.0.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn speaking(&self) -> MutexGuard<'_, Option<Speaking>> {
        self.0.speaking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the message in the making is over with this.
fn ends_speaking(event: &Event) -> bool {
    matches!(event, Event::AssistantMessage { .. } | Event::ModelCallFailed { .. } | Event::Finished { .. })
}

impl Recent {
    fn push(&mut self, new: Weighed) {
        self.bytes += new.bytes;
        self.records.push_back(new);
        while self.records.len() > 1 && (self.records.len() > RECENT_MAX || self.bytes > RECENT_BYTES_MAX) {
            self.bytes -= self.records.pop_front().map_or(0, |old| old.bytes);
        }
    }
}

impl Progress {
    /// Roughly its bytes.
    fn size(&self) -> usize {
        let texts = match self {
            Self::Delta { delta, .. } => delta.size(),
            Self::Partial { message, .. } => message.size(),
            Self::Call { message, .. } => message.len(),
            Self::Output { data, .. } => data.len(),
        };
        ITEM_BYTES + texts
    }
}

/// What a subscription rests on.
pub(in crate::engine) struct Sources {
    pub(in crate::engine) store: Arc<dyn Store>,
    pub(in crate::engine) clock: Arc<dyn Clock>,
    pub(in crate::engine) stall: Millis,
    /// When the server goes down, subscriptions end.
    pub(in crate::engine) stop: CancellationToken,
    /// Counts those that are ended because they do not read.
    pub(in crate::engine) slow: Arc<AtomicU64>,
}

/// Events after `after`, to the end of the run; none if that is `over` and has no more.
pub(in crate::engine) fn subscribe(
    feed: Feed,
    sources: Sources,
    key: RunKey,
    after: Seq,
    over: bool,
) -> impl Stream<Item = Result<FeedItem, EngineError>> + Send + 'static {
    let patience = Patience { stall: sources.stall, stalled: sources.slow.clone() };
    let listener = feed.0.ring.listen(sources.clock.now(), patience);
    let reader = Reader {
        feed,
        listener,
        sources,
        key,
        last: after,
        heard: None,
        ready: VecDeque::new(),
        mode: if over { Mode::Over } else { Mode::CatchUp },
    };
    futures_util::stream::unfold(reader, |mut reader| async move {
        let item = reader.next().await?;
        if item.is_err() {
            reader.mode = Mode::Over;
        }
        Some((item, reader))
    })
}

enum Mode {
    CatchUp,
    Live,
    Over,
}

struct Reader {
    feed: Feed,
    listener: Listener<FeedItem>,
    sources: Sources,
    key: RunKey,
    /// The last durable event shown.
    last: Seq,
    /// The last delta shown or contained in a snapshot: what is at or below it is a repetition.
    heard: Option<(ModelAttempt, u64)>,
    ready: VecDeque<FeedItem>,
    mode: Mode,
}

impl Reader {
    async fn next(&mut self) -> Option<Result<FeedItem, EngineError>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(Ok(self.note(item)));
            }
            match self.mode {
                Mode::Over => return None,
                Mode::CatchUp => {
                    if let Err(error) = self.catch_up().await {
                        return Some(Err(error));
                    }
                }
                Mode::Live => match self.hear().await {
                    None => return Some(Err(EngineError::ShuttingDown)),
                    Some(Ok(item)) => self.admit(item),
                    Some(Err(Missed::Some)) => self.mode = Mode::CatchUp,
                    Some(Err(Missed::Closed)) => return Some(Err(EngineError::RunNotFound)),
                    Some(Err(Missed::All)) => return Some(Err(EngineError::SubscriberTooSlow)),
                },
            }
        }
    }

    /// The next live item; `None` when the server goes down.
    async fn hear(&mut self) -> Option<Result<FeedItem, Missed>> {
        tokio::select! { biased;
            item = self.listener.hear() => Some(item),
            () = self.sources.stop.cancelled() => None,
        }
    }

    async fn catch_up(&mut self) -> Result<(), EngineError> {
        if self.feed.is_gone() {
            return Err(EngineError::RunNotFound);
        }
        let RunKey { tenant, run } = &self.key;
        let after = self.ready_last();
        if let Some(recent) = self.feed.since(after) {
            self.ready.extend(recent);
            self.live();
            return Ok(());
        }
        let stretch = self.sources.store.stretch(tenant, run, after, CATCH_UP_MAX).await?;
        if stretch.records.is_empty() {
            // Nothing follows yet, or nothing is left of it.
            let row = self.sources.store.run(tenant, run).await?;
            row.filter(|row| row.session == self.feed.0.session).ok_or(EngineError::RunNotFound)?;
        }
        self.ready.extend(stretch.records.into_iter().map(|record| FeedItem::durable(Arc::new(record))));
        if !stretch.more {
            self.live();
        }
        Ok(())
    }

    /// From here on, what happens is heard; what the model has said so far is told at once.
    fn live(&mut self) {
        self.mode = Mode::Live;
        if let Some(partial) = self.feed.snapshot(self.sources.clock.now()) {
            self.ready.push_back(FeedItem::transient(partial));
        }
    }

    fn ready_last(&self) -> Seq {
        self.ready
            .iter()
            .rev()
            .find_map(|item| match item {
                FeedItem::Durable(record) => Some(record.seq),
                FeedItem::Transient(_) => None,
            })
            .unwrap_or(self.last)
    }

    /// Takes in a live item, unless it was shown before; a gap sends the reader back to the journal.
    fn admit(&mut self, item: FeedItem) {
        match &item {
            FeedItem::Durable(record) if record.seq <= self.last => {}
            FeedItem::Durable(record) if record.seq > self.last.next() => self.mode = Mode::CatchUp,
            FeedItem::Durable(_) => self.ready.push_back(item),
            FeedItem::Transient(transient) => {
                if let Progress::Delta { call, delta_seq, .. } = &transient.what
                    && self.heard.is_some_and(|heard| (*call, *delta_seq) <= heard)
                {
                    return;
                }
                self.ready.push_back(item);
            }
        }
    }

    fn note(&mut self, item: FeedItem) -> FeedItem {
        self.listener.read(self.sources.clock.now());
        match &item {
            FeedItem::Durable(record) => {
                self.last = record.seq;
                if matches!(record.event, Event::Finished { .. }) {
                    self.ready.clear();
                    self.mode = Mode::Over;
                }
            }
            FeedItem::Transient(transient) => match &transient.what {
                Progress::Delta { call, delta_seq, .. } | Progress::Partial { call, delta_seq, .. } => {
                    self.heard = Some((*call, *delta_seq));
                }
                Progress::Call { .. } | Progress::Output { .. } => {}
            },
        }
        item
    }
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("listeners", &self.0.ring.listeners()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
