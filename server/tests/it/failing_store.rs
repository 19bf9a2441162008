//! A store that fails in the middle of a run. Nothing is shown that is not stored, and the run continues when the store
//! is back.

#![expect(clippy::disallowed_methods, reason = "a test starts a thread of its own")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use agentloop_core::id::{RunId, Seq, TenantId};
use agentloop_core::model::delta::Delta;
use agentloop_core::run::event::{Event, Record};
use agentloop_core::run::input::AbortCause;
use agentloop_core::run::status::{RunErrorCode, RunStatus};
use agentloop_core::time::Millis;
use agentloop_server::engine::error::EngineError;
use agentloop_server::engine::feed::FeedItem;
use agentloop_server::engine::{Engine, EngineOptions, EngineParts};
use agentloop_server::model::{Model, ModelError, ModelRequest};
use agentloop_server::store::sqlite::SqliteStore;
use agentloop_server::store::{Append, JournalStore as _, StoreError};
use futures_util::FutureExt as _;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use tokio::runtime;
use tokio::sync::Notify;

use crate::support::answer::answer;
use crate::support::intercepted::{Intercept, Intercepted};
use crate::support::keeping::Keeping;
use crate::support::one_model::one_model;
use crate::support::patience::PATIENCE;
use crate::support::start_request::named_request;
use crate::support::tool_call::tool_call;

/// Writes that can be made to fail.
#[derive(Default)]
struct FlakyWrites {
    broken: AtomicBool,
    /// True if another owner claims each run just before it is written.
    overtaken: AtomicBool,
    /// True if writes are made, and their answers are lost.
    deaf: AtomicBool,
    /// True if appends are acknowledged, and not made.
    lies: AtomicBool,
    refused: Notify,
    /// Number of writes that were refused.
    refusals: AtomicUsize,
    /// Number of runs that were written, or refused, without a look whether they are there.
    blind_starts: AtomicUsize,
}

type Flaky = Intercepted<FlakyWrites>;

impl Intercept for FlakyWrites {
    async fn write<T: Send>(
        &self,
        write: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        if self.broken.load(Ordering::SeqCst) {
            self.refusals.fetch_add(1, Ordering::SeqCst);
            self.refused.notify_one();
            return Err(StoreError::Unavailable { what: "the disk is full".to_owned() });
        }
        write.await
    }

    async fn append(&self, store: &SqliteStore, append: Append) -> Result<(), StoreError> {
        if append.create.as_ref().is_some_and(|create| create.is_blind) {
            self.blind_starts.fetch_add(1, Ordering::SeqCst);
        }
        if self.lies.load(Ordering::SeqCst) {
            return Ok(());
        }
        let append = async {
            if self.overtaken.load(Ordering::SeqCst) {
                store.claim(&append.tenant, &append.run).await?.expect("the run is there");
            }
            let appended = store.append(append).await;
            if appended.is_err() {
                self.refused.notify_one();
            }
            if self.deaf.load(Ordering::SeqCst) {
                return Err(StoreError::Unavailable { what: "the answer is lost".to_owned() });
            }
            appended
        };
        self.write(append).await
    }
}

async fn flaky_store() -> Arc<Flaky> {
    Arc::new(Intercepted::new(FlakyWrites::default()).await)
}

/// An engine on such a store, whose model answers once the test allows it.
struct Bed {
    store: Arc<Flaky>,
    engine: Engine,
    called: Arc<Notify>,
    may_speak: Arc<Notify>,
}

async fn bed(says: impl Into<Vec<Delta>>) -> Bed {
    let store = flaky_store().await;
    let model = Waiting::to_say(says);
    let (called, may_speak) = (model.called.clone(), model.may_speak.clone());
    let engine = EngineParts::default().start(store.clone(), one_model(model), Arc::new(Keeping::default()));
    Bed { store, engine, called, may_speak }
}

/// A model that answers once the test allows it.
struct Waiting {
    called: Arc<Notify>,
    may_speak: Arc<Notify>,
    says: Vec<Delta>,
}

impl Waiting {
    fn to_say(says: impl Into<Vec<Delta>>) -> Self {
        Self { called: Arc::default(), may_speak: Arc::default(), says: says.into() }
    }
}

impl Model for Waiting {
    fn stream(&self, _request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        let (called, may_speak) = (self.called.clone(), self.may_speak.clone());
        let says: Vec<_> = self.says.iter().cloned().map(Ok).collect();
        let waits = stream::once(async move {
            called.notify_one();
            may_speak.notified().await;
            stream::iter(says)
        });
        waits.flatten().boxed()
    }
}

#[tokio::test]
async fn a_failed_write_stops_the_run_until_the_store_is_back() {
    let Bed { store, engine, called, may_speak } = bed(answer("Said.")).await;
    let tenant = TenantId::local();

    let run = engine.start(named_request("r")).await.expect("a run").run;
    called.notified().await;
    store.intercept.broken.store(true, Ordering::SeqCst);
    may_speak.notify_one();
    store.intercept.refused.notified().await;

    // The model's answer is not in the journal, so it was not shown.
    let said = |records: &[Record]| {
        records.iter().any(|record| matches!(record.event, Event::AssistantMessage { .. }))
    };
    let records = store.records(&tenant, &run, Seq(0), 100).await.expect("reading works");
    assert!(!said(&records), "{records:?}");
    let refused = engine.abort(&tenant, &run, AbortCause::Caller, "").await;
    assert!(matches!(refused, Err(EngineError::Store(StoreError::Unavailable { .. }))), "{refused:?}");
    let refused = engine.start(named_request("other")).await;
    assert!(matches!(refused, Err(EngineError::Store(StoreError::Unavailable { .. }))), "{refused:?}");

    store.intercept.broken.store(false, Ordering::SeqCst);
    called.notified().await;
    may_speak.notify_one();
    let view = engine.wait(&tenant, &run).await.expect("an end");
    assert_eq!(view.state.status(), Some(RunStatus::Completed));
    let records = store.records(&tenant, &run, Seq(0), 100).await.expect("reading works");
    assert!(said(&records));
    assert!(records.iter().zip(1..).all(|(record, at)| record.seq.0 == at), "dense from 1");
    assert!(engine.start(named_request("other")).await.is_ok(), "what was refused left nothing behind");
}

/// The owner's process was frozen while another owner claimed its run.
#[tokio::test]
async fn an_owner_that_was_overtaken_writes_nothing_shows_nothing_and_offers_nothing() {
    let store = flaky_store().await;
    let model = Waiting::to_say(tool_call("pay"));
    let (called, may_speak) = (model.called.clone(), model.may_speak.clone());
    let tools = Arc::new(Keeping::default());
    let engine = EngineParts::default().start(store.clone(), one_model(model), tools.clone());
    let tenant = TenantId::local();
    let run = engine.start(named_request("r")).await.expect("a run").run;
    called.notified().await;
    let before = store.records(&tenant, &run, Seq(0), 100).await.expect("reading works");
    let subscription = engine.subscribe(&tenant, &run, Seq(0)).await.expect("subscribed");

    store.intercept.overtaken.store(true, Ordering::SeqCst);
    may_speak.notify_one();
    store.intercept.refused.notified().await;
    while engine.live_runs() > 0 {
        tokio::task::yield_now().await;
    }

    assert_eq!(store.records(&tenant, &run, Seq(0), 100).await.expect("reading works"), before);
    assert!(tools.offers.lock().is_empty(), "no host was offered the call");
    let mut events = Box::pin(subscription.events);
    let mut shown = Vec::new();
    while let Some(Some(event)) = events.next().now_or_never() {
        if let FeedItem::Durable(record) = event.expect("an event") {
            shown.push(record.seq);
        }
    }
    let known: Vec<Seq> = before.iter().map(|record| record.seq).collect();
    assert!(known.starts_with(&shown), "{shown:?} of {known:?}");
}

/// The owner's own write was made and its answer lost, so that the journal had gone on when it was made again.
#[tokio::test]
async fn a_run_whose_journal_went_on_is_loaded_again_and_ends() {
    let Bed { store, engine, called, may_speak } = bed(answer("hello")).await;
    let run = engine.start(named_request("r")).await.expect("a run").run;
    called.notified().await;
    store.intercept.overtaken.store(true, Ordering::SeqCst);
    may_speak.notify_one();
    store.intercept.refused.notified().await;
    store.intercept.overtaken.store(false, Ordering::SeqCst);
    called.notified().await;
    may_speak.notify_one();
    assert_eq!(end_of(&store, &run).await, None);
}

/// Waits until the run has ended, without being a caller of it. Returns the reason.
async fn end_of(store: &Flaky, run: &RunId) -> Option<RunErrorCode> {
    let ended = async {
        loop {
            let row = store.run(&TenantId::local(), run).await.expect("reading works");
            if let Some(row) = row.filter(|row| row.summary.status.is_terminal()) {
                return row.summary.error.map(|error| error.code);
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), ended).await.expect("the run ends")
}

/// The caller gets an error and goes away; the run exists all the same, and its request said that it ends with its caller.
#[tokio::test]
async fn a_run_whose_start_was_written_unheard_ends_with_its_caller() {
    let store = flaky_store().await;
    let options = EngineOptions { caller_grace: Millis(1), ..EngineOptions::default() };
    let model = Waiting::to_say([]);
    let parts = EngineParts { options, ..EngineParts::default() };
    let engine = parts.start(store.clone(), one_model(model), Arc::new(Keeping::default()));
    store.intercept.deaf.store(true, Ordering::SeqCst);
    let mut leaves = named_request("leaves");
    Arc::make_mut(&mut leaves.spec).cancel_on_disconnect = true;
    let refused = engine.start(leaves).await;
    assert!(matches!(refused, Err(EngineError::Store(StoreError::Unavailable { .. }))), "{refused:?}");
    store.intercept.deaf.store(false, Ordering::SeqCst);
    let run = RunId::parse("leaves").expect("an id");
    assert_eq!(end_of(&store, &run).await, Some(RunErrorCode::AbortedByDisconnect));
}

#[tokio::test]
async fn a_run_that_is_over_is_joined_although_nothing_can_be_written() {
    let Bed { store, engine, may_speak, .. } = bed(answer("Said.")).await;
    may_speak.notify_one();
    let first = engine.start(named_request("r")).await.expect("a run");
    engine.wait(&TenantId::local(), &first.run).await.expect("an end");
    store.intercept.broken.store(true, Ordering::SeqCst);
    let again = engine.start(named_request("r")).await.expect("it is there");
    assert_eq!((again.run, again.joined), (first.run, true));
}

/// On a thread of its own: a wait that goes round would keep a bound beside it from being noticed.
#[test]
fn a_wait_for_an_event_that_the_store_has_lost_ends() {
    let (ended, end) = mpsc::channel();
    let waits = async || {
        let Bed { store, engine, called, may_speak } = bed(tool_call("pay")).await;
        let mut asks = named_request("r");
        Arc::make_mut(&mut asks.spec).tool_policy.require_approval_by_default = true;
        let run = engine.start(asks).await.expect("a run").run;
        called.notified().await;
        store.intercept.lies.store(true, Ordering::SeqCst);
        may_speak.notify_one();
        engine.wait(&TenantId::local(), &run).await
    };
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    drop(thread::spawn(move || ended.send(runtime.block_on(waits()))));
    let waited = end.recv_timeout(PATIENCE).expect("it ends");
    assert!(matches!(waited, Err(EngineError::Store(StoreError::Corrupt { .. }))), "{waited:?}");
}

/// Else each start of an outage would leave a run that is tried again until the store is back.
#[tokio::test]
async fn while_a_run_is_tried_again_others_are_looked_up_before_they_start() {
    let Bed { store, engine, called, may_speak } = bed(answer("Said.")).await;
    let blind_starts = || store.intercept.blind_starts.load(Ordering::SeqCst);
    let run = engine.start(named_request("r")).await.expect("a run").run;
    called.notified().await;
    assert_eq!(blind_starts(), 1);
    store.intercept.broken.store(true, Ordering::SeqCst);
    may_speak.notify_one();
    while engine.live_runs() > 0 {
        tokio::task::yield_now().await;
    }
    let refused = engine.start(named_request("s")).await;
    assert!(matches!(refused, Err(EngineError::Store(StoreError::Unavailable { .. }))), "{refused:?}");
    assert_eq!(blind_starts(), 1);
    store.intercept.broken.store(false, Ordering::SeqCst);
    engine.store_is_back();
    called.notified().await;
    may_speak.notify_one();
    assert_eq!(end_of(&store, &run).await, None);
}

#[tokio::test]
async fn a_caller_that_leaves_while_the_store_is_away_takes_its_run_with_it() {
    let Bed { store, engine, called, .. } = bed([]).await;
    let run = engine.start(named_request("r")).await.expect("a run").run;
    called.notified().await;
    store.intercept.broken.store(true, Ordering::SeqCst);
    engine.clone().abort_later(TenantId::local(), run.clone(), AbortCause::Disconnect);
    store.intercept.refused.notified().await;
    store.intercept.broken.store(false, Ordering::SeqCst);
    assert_eq!(end_of(&store, &run).await, Some(RunErrorCode::AbortedByDisconnect));
}

/// Keeps a paused clock from going on by itself while the runtime waits for the store's thread.
fn hold_clock() -> mpsc::Sender<()> {
    let (held, until_dropped) = mpsc::channel();
    drop(tokio::task::spawn_blocking(move || until_dropped.recv()));
    held
}

/// Lets time pass until a write is refused. Returns the seconds.
async fn seconds_until_refused(store: &Flaky) -> u64 {
    let before = store.intercept.refusals.load(Ordering::SeqCst);
    for second in 1..=1_000 {
        tokio::time::advance(Duration::from_secs(1)).await;
        // The tasks get what they read before this does.
        for _ in 0..5 {
            store.run(&TenantId::local(), &RunId::parse("r").expect("an id")).await.expect("reading works");
        }
        if store.intercept.refusals.load(Ordering::SeqCst) > before {
            return second;
        }
    }
    panic!("nothing is written for a long time");
}

/// A run calls a tool, and the store is away for some minutes afterwards.
#[tokio::test(start_paused = true)]
async fn the_wait_of_a_retry_begins_anew_once_the_run_has_gone_on() {
    let _held = hold_clock();
    let store = flaky_store().await;
    let model = Waiting::to_say(tool_call("pay"));
    let (called, may_speak) = (model.called.clone(), model.may_speak.clone());
    let (models, tools) = (one_model(model), Arc::new(Keeping::default()));
    let engine = EngineParts::default().start(store.clone(), models, tools.clone());
    let tenant = TenantId::local();
    let run = engine.start(named_request("r")).await.expect("a run").run;
    called.notified().await;
    store.intercept.broken.store(true, Ordering::SeqCst);
    may_speak.notify_one();
    store.intercept.refused.notified().await;
    let mut waits = Vec::new();
    for _ in 0..6 {
        waits.push(seconds_until_refused(&store).await);
    }
    assert!(waits.is_sorted() && waits[5] >= 32, "{waits:?}");

    // Nothing but the news of the store ends the long wait.
    store.intercept.broken.store(false, Ordering::SeqCst);
    engine.store_is_back();
    called.notified().await;
    may_speak.notify_one();
    while tools.offers.lock().is_empty() {
        tokio::task::yield_now().await;
    }

    store.intercept.broken.store(true, Ordering::SeqCst);
    let refused = engine.abort(&tenant, &run, AbortCause::Caller, "").await;
    assert!(matches!(refused, Err(EngineError::Store(StoreError::Unavailable { .. }))), "{refused:?}");
    while engine.live_runs() > 0 {
        tokio::task::yield_now().await;
    }
    assert!(seconds_until_refused(&store).await <= 2, "the run has gone on meanwhile");
}

/// Its model is called with each retry. Only the take-over is durable.
#[tokio::test(start_paused = true)]
async fn the_wait_of_a_run_that_fails_at_the_same_event_each_time_goes_on_to_grow() {
    let _held = hold_clock();
    let Bed { store, engine, called, may_speak } = bed(answer("Said.")).await;
    engine.start(named_request("r")).await.expect("a run");
    let mut waits = Vec::new();
    called.notified().await;
    for _ in 0..5 {
        store.intercept.broken.store(true, Ordering::SeqCst);
        may_speak.notify_one();
        store.intercept.refused.notified().await;
        while engine.live_runs() > 0 {
            tokio::task::yield_now().await;
        }
        store.intercept.broken.store(false, Ordering::SeqCst);
        let mut seconds = 0;
        while called.notified().now_or_never().is_none() {
            seconds += 1;
            assert!(seconds < 1_000, "it is not tried again");
            tokio::time::advance(Duration::from_secs(1)).await;
            for _ in 0..20 {
                let run = RunId::parse("r").expect("an id");
                store.run(&TenantId::local(), &run).await.expect("reading works");
            }
        }
        waits.push(seconds);
    }
    assert!(waits.is_sorted() && waits[4] >= 16, "{waits:?}");
}
