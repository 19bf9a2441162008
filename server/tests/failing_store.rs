//! A store that fails in the middle of a run. Nothing is shown that is not stored, and the run continues when the store
//! is back.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentloop_core::agent::RunSpec;
use agentloop_core::delta::Delta;
use agentloop_core::id::{
    CallId, EntryNo, Epoch, HostId, RequestId, RuleId, RunId, RunKey, Seq, SessionId, TenantId,
};
use agentloop_core::message::{FinishReason, Message, Role, ToolCall};
use agentloop_core::run::effect::{CancelCause, Offer};
use agentloop_core::run::event::{Event, Record};
use agentloop_core::run::input::{AbortCause, CallFacts};
use agentloop_core::run::status::{RunErrorCode, RunStatus};
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::tool::{Digest, EffectClass};
use agentloop_server::engine::error::EngineError;
use agentloop_server::engine::feed::FeedItem;
use agentloop_server::engine::{EngineOptions, EngineParts, OnBusy, StartRequest};
use agentloop_server::model::{Model, ModelError, ModelRequest, Models, UnknownModel};
use agentloop_server::store::sqlite::SqliteStore;
use agentloop_server::store::{
    Append, Claimed, EntryRow, Interrupted, Job, JobId, JobStore, JournalStore, Page, PageRequest,
    QueueStore, RequestFilter, RequestRow, RequestStore, RuleRow, RunFilter, RunRow, SearchFilter, SearchHit,
    SearchStore, SessionNotes, SessionRow, SessionStore, Store, StoreError, ToolRow, ToolStore,
};
use agentloop_server::tool::{CallOwner, Offered, Seek, Tools};
use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::Notify;

/// A store whose writes can be made to fail.
struct Flaky {
    inner: SqliteStore,
    broken: AtomicBool,
    /// True if another owner claims each run just before it is written.
    overtaken: AtomicBool,
    /// True if writes are made, and their answers are lost.
    deaf: AtomicBool,
    refused: Notify,
}

impl Flaky {
    async fn new() -> Arc<Self> {
        let inner = SqliteStore::in_memory().await.expect("a store");
        let (broken, overtaken) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { inner, broken, overtaken, deaf: AtomicBool::new(false), refused: Notify::new() })
    }
}

impl Flaky {
    fn works(&self) -> Result<(), StoreError> {
        if self.broken.load(Ordering::SeqCst) {
            self.refused.notify_one();
            return Err(StoreError::Unavailable { what: "the disk is full".to_owned() });
        }
        Ok(())
    }
}

#[async_trait]
impl JournalStore for Flaky {
    async fn append(&self, append: Append) -> Result<(), StoreError> {
        self.works()?;
        if self.overtaken.load(Ordering::SeqCst) {
            self.inner.claim(&append.tenant, &append.run).await?.expect("the run is there");
        }
        let appended = self.inner.append(append).await;
        if appended.is_err() {
            self.refused.notify_one();
        }
        if self.deaf.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable { what: "the answer is lost".to_owned() });
        }
        appended
    }

    async fn claim(&self, tenant: &TenantId, run: &RunId) -> Result<Option<Claimed>, StoreError> {
        self.works()?;
        self.inner.claim(tenant, run).await
    }

    fn epoch(&self) -> Epoch {
        self.inner.epoch()
    }

    async fn run(&self, tenant: &TenantId, run: &RunId) -> Result<Option<RunRow>, StoreError> {
        self.inner.run(tenant, run).await
    }

    async fn records(
        &self,
        tenant: &TenantId,
        run: &RunId,
        after: Seq,
        limit: u32,
    ) -> Result<Vec<Record>, StoreError> {
        self.inner.records(tenant, run, after, limit).await
    }

    async fn runs(
        &self,
        tenant: &TenantId,
        filter: RunFilter,
        page: PageRequest,
    ) -> Result<Page<RunRow>, StoreError> {
        self.inner.runs(tenant, filter, page).await
    }

    async fn unfinished(&self) -> Result<Vec<RunKey>, StoreError> {
        self.inner.unfinished().await
    }

    async fn due(&self, now: Timestamp, limit: u32) -> Result<(Vec<RunKey>, Option<Timestamp>), StoreError> {
        self.inner.due(now, limit).await
    }
}

#[async_trait]
impl SessionStore for Flaky {
    async fn create_session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        title: &str,
        labels: &BTreeMap<String, String>,
        now: Timestamp,
    ) -> Result<SessionRow, StoreError> {
        self.works()?;
        self.inner.create_session(tenant, session, title, labels, now).await
    }

    async fn fork(
        &self,
        tenant: &TenantId,
        source: &SessionId,
        at: EntryNo,
        session: &SessionId,
        now: Timestamp,
    ) -> Result<SessionRow, StoreError> {
        self.works()?;
        self.inner.fork(tenant, source, at, session, now).await
    }

    async fn set_session_notes(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        notes: SessionNotes,
    ) -> Result<bool, StoreError> {
        self.inner.set_session_notes(tenant, session, notes).await
    }

    async fn session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<Option<SessionRow>, StoreError> {
        self.inner.session(tenant, session).await
    }

    async fn sessions(&self, tenant: &TenantId, page: PageRequest) -> Result<Page<SessionRow>, StoreError> {
        self.inner.sessions(tenant, page).await
    }

    async fn entries(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        after: EntryNo,
        limit: u32,
    ) -> Result<Vec<EntryRow>, StoreError> {
        self.inner.entries(tenant, session, after, limit).await
    }

    async fn delete_session(&self, tenant: &TenantId, session: &SessionId) -> Result<bool, StoreError> {
        self.works()?;
        self.inner.delete_session(tenant, session).await
    }
}

#[async_trait]
impl QueueStore for Flaky {
    async fn next_queued(&self, tenant: &TenantId, session: &SessionId) -> Result<Option<RunId>, StoreError> {
        self.inner.next_queued(tenant, session).await
    }

    async fn queue_heads(&self) -> Result<Vec<RunKey>, StoreError> {
        self.inner.queue_heads().await
    }

    async fn interrupted(&self) -> Result<Vec<Interrupted>, StoreError> {
        self.inner.interrupted().await
    }

    async fn interrupted_in(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<Option<Interrupted>, StoreError> {
        self.inner.interrupted_in(tenant, session).await
    }

    async fn steered(&self, tenant: &TenantId, id: &RunId) -> Result<Option<(RunId, Digest)>, StoreError> {
        self.inner.steered(tenant, id).await
    }
}

#[async_trait]
impl RequestStore for Flaky {
    async fn request(
        &self,
        tenant: &TenantId,
        request: &RequestId,
    ) -> Result<Option<RequestRow>, StoreError> {
        self.inner.request(tenant, request).await
    }

    async fn pending(
        &self,
        tenant: &TenantId,
        filter: RequestFilter,
        page: PageRequest,
    ) -> Result<Page<RequestRow>, StoreError> {
        self.inner.pending(tenant, filter, page).await
    }

    async fn rules(
        &self,
        tenant: &TenantId,
        session: Option<&SessionId>,
    ) -> Result<Vec<RuleRow>, StoreError> {
        self.inner.rules(tenant, session).await
    }

    async fn delete_rule(&self, tenant: &TenantId, rule: &RuleId) -> Result<bool, StoreError> {
        self.inner.delete_rule(tenant, rule).await
    }
}

#[async_trait]
impl JobStore for Flaky {
    async fn due_jobs(
        &self,
        now: Timestamp,
        limit: u32,
    ) -> Result<(Vec<Job>, Option<Timestamp>), StoreError> {
        self.inner.due_jobs(now, limit).await
    }

    async fn retry_job(&self, job: &JobId, due_at: Timestamp, error: &str) -> Result<(), StoreError> {
        self.inner.retry_job(job, due_at, error).await
    }

    async fn finish_job(&self, job: &JobId) -> Result<(), StoreError> {
        self.inner.finish_job(job).await
    }
}

#[async_trait]
impl SearchStore for Flaky {
    async fn search(
        &self,
        tenant: &TenantId,
        query: &str,
        filter: SearchFilter,
        limit: u32,
    ) -> Result<Vec<SearchHit>, StoreError> {
        self.inner.search(tenant, query, filter, limit).await
    }
}

#[async_trait]
impl ToolStore for Flaky {
    async fn save_tools(&self, tenant: &TenantId, tools: &[ToolRow]) -> Result<(), StoreError> {
        self.works()?;
        self.inner.save_tools(tenant, tools).await
    }

    async fn forget_tool(&self, tenant: &TenantId, name: &str) -> Result<bool, StoreError> {
        self.inner.forget_tool(tenant, name).await
    }

    async fn tools(&self) -> Result<Vec<(TenantId, ToolRow)>, StoreError> {
        self.inner.tools().await
    }
}

#[async_trait]
impl Store for Flaky {
    async fn check(&self) -> Result<(), StoreError> {
        self.works()?;
        self.inner.check().await
    }
}

/// A model that answers once the test allows it.
struct Waiting {
    called: Arc<Notify>,
    may_speak: Arc<Notify>,
    says: Vec<Delta>,
}

impl Waiting {
    fn to_say(says: Vec<Delta>) -> Self {
        Self { called: Arc::default(), may_speak: Arc::default(), says }
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

struct One(Arc<Waiting>);

impl Models for One {
    fn resolve(&self, reference: &str) -> Result<(Arc<dyn Model>, String), UnknownModel> {
        Ok((self.0.clone(), reference.to_owned()))
    }
}

/// Tools with one host that has room for every call. Records the calls that it is offered.
#[derive(Default)]
struct Keeping {
    offers: Mutex<Vec<CallId>>,
}

impl Tools for Keeping {
    fn offered(&self, _tenant: &TenantId, _spec: &RunSpec) -> Offered {
        Offered { tools: Arc::from([]), digest: Digest::of(&[]) }
    }

    fn facts(&self, _tenant: &TenantId, _spec: &RunSpec, calls: &[&ToolCall]) -> Vec<CallFacts> {
        let ready = CallFacts::Ready {
            effect: EffectClass::Unsafe,
            requires_approval: false,
            timeout: Millis(60_000),
            requires_runtime: false,
            deadline_is_outcome: false,
            title: String::new(),
            terms: None,
        };
        vec![ready; calls.len()]
    }

    fn validate(&self, _tenant: &TenantId, _tool: &str, _arguments: &str) -> Result<(), String> {
        Ok(())
    }

    fn seek(&self, _owner: &CallOwner, _call: &CallId, _tool: &str) -> Seek {
        Seek::Granted { host: HostId::parse("h").expect("an id"), terms: None }
    }

    fn stop_seeking(&self, _tenant: &TenantId, _call: &CallId) {}
    fn offer(&self, _owner: &CallOwner, call: &CallId, _offer: Offer) {
        self.offers.lock().expect("nobody has panicked").push(call.clone());
    }
    fn reclaim(&self, _owner: &CallOwner, _call: &CallId, _offer: Offer) {}
    fn cancel(&self, _tenant: &TenantId, _call: &CallId, _attempt: u32, _cause: CancelCause, _reason: &str) {}
    fn release(&self, _tenant: &TenantId, _run: &RunId) {}
}

fn request(run: &str) -> StartRequest {
    let spec = RunSpec { agent: "a".into(), model: "any/one".into(), ..RunSpec::default() };
    StartRequest {
        tenant: TenantId::local(),
        run: Some(RunId::parse(run).expect("an id")),
        session: None,
        create_session: false,
        spec: Arc::new(spec),
        messages: vec![Arc::new(Message::text(Role::User, "speak"))],
        digest: Digest::of(&[b"speak"]),
        on_busy: OnBusy::Reject,
        traceparent: None,
    }
}

#[tokio::test]
async fn a_failed_write_stops_the_run_until_the_store_is_back() {
    let store = Flaky::new().await;
    let model = Waiting::to_say(vec![
        Delta::Text { text: "Said.".to_owned() },
        Delta::Finish { reason: FinishReason::Stop },
    ]);
    let (called, may_speak) = (model.called.clone(), model.may_speak.clone());
    let engine = EngineParts::default().start(
        store.clone(),
        Arc::new(One(Arc::new(model))),
        Arc::new(Keeping::default()),
    );
    let tenant = TenantId::local();

    let run = engine.start(request("r")).await.expect("a run").run;
    called.notified().await;
    store.broken.store(true, Ordering::SeqCst);
    may_speak.notify_one();
    store.refused.notified().await;

    // The model's answer is not in the journal, so it was not shown.
    let said = |records: &[Record]| {
        records.iter().any(|record| matches!(record.event, Event::AssistantMessage { .. }))
    };
    let records = store.records(&tenant, &run, Seq(0), 100).await.expect("reading works");
    assert!(!said(&records), "{records:?}");
    let refused = engine.abort(&tenant, &run, AbortCause::Caller, "").await;
    assert!(matches!(refused, Err(EngineError::Store(StoreError::Unavailable { .. }))), "{refused:?}");
    let refused = engine.start(request("other")).await;
    assert!(matches!(refused, Err(EngineError::Store(StoreError::Unavailable { .. }))), "{refused:?}");

    store.broken.store(false, Ordering::SeqCst);
    called.notified().await;
    may_speak.notify_one();
    let view = engine.wait(&tenant, &run).await.expect("an end");
    assert_eq!(view.state.status(), Some(RunStatus::Completed));
    let records = store.records(&tenant, &run, Seq(0), 100).await.expect("reading works");
    assert!(said(&records));
    assert!(records.iter().zip(1..).all(|(record, at)| record.seq.0 == at), "dense from 1");
    assert!(engine.start(request("other")).await.is_ok(), "what was refused left nothing behind");
}

/// The owner's process was frozen while another owner claimed its run.
#[tokio::test]
async fn an_owner_that_was_overtaken_writes_nothing_shows_nothing_and_offers_nothing() {
    let store = Flaky::new().await;
    let model = Waiting::to_say(vec![
        Delta::ToolCallStart { index: 0, provider_id: None, name: "pay".to_owned() },
        Delta::ToolCallArguments { index: 0, fragment: "{}".to_owned() },
        Delta::Finish { reason: FinishReason::ToolCalls },
    ]);
    let (called, may_speak) = (model.called.clone(), model.may_speak.clone());
    let tools = Arc::new(Keeping::default());
    let engine = EngineParts::default().start(store.clone(), Arc::new(One(Arc::new(model))), tools.clone());
    let tenant = TenantId::local();
    let run = engine.start(request("r")).await.expect("a run").run;
    called.notified().await;
    let before = store.records(&tenant, &run, Seq(0), 100).await.expect("reading works");
    let subscription = engine.subscribe(&tenant, &run, Seq(0)).await.expect("subscribed");

    store.overtaken.store(true, Ordering::SeqCst);
    may_speak.notify_one();
    store.refused.notified().await;
    while engine.live_runs() > 0 {
        tokio::task::yield_now().await;
    }

    assert_eq!(store.records(&tenant, &run, Seq(0), 100).await.expect("reading works"), before);
    assert!(tools.offers.lock().expect("nobody has panicked").is_empty(), "no host was offered the call");
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
    let store = Flaky::new().await;
    let options = EngineOptions { caller_grace: Millis(1), ..EngineOptions::default() };
    let model = Arc::new(Waiting::to_say(Vec::new()));
    let parts = EngineParts { options, ..EngineParts::default() };
    let engine = parts.start(store.clone(), Arc::new(One(model)), Arc::new(Keeping::default()));
    store.deaf.store(true, Ordering::SeqCst);
    let mut leaves = request("leaves");
    Arc::make_mut(&mut leaves.spec).cancel_on_disconnect = true;
    let refused = engine.start(leaves).await;
    assert!(matches!(refused, Err(EngineError::Store(StoreError::Unavailable { .. }))), "{refused:?}");
    store.deaf.store(false, Ordering::SeqCst);
    let run = RunId::parse("leaves").expect("an id");
    assert_eq!(end_of(&store, &run).await, Some(RunErrorCode::AbortedByDisconnect));
}

#[tokio::test]
async fn a_caller_that_leaves_while_the_store_is_away_takes_its_run_with_it() {
    let store = Flaky::new().await;
    let model = Waiting::to_say(Vec::new());
    let called = model.called.clone();
    let models = Arc::new(One(Arc::new(model)));
    let engine = EngineParts::default().start(store.clone(), models, Arc::new(Keeping::default()));
    let run = engine.start(request("r")).await.expect("a run").run;
    called.notified().await;
    store.broken.store(true, Ordering::SeqCst);
    engine.clone().abort_later(TenantId::local(), run.clone(), AbortCause::Disconnect);
    store.refused.notified().await;
    store.broken.store(false, Ordering::SeqCst);
    assert_eq!(end_of(&store, &run).await, Some(RunErrorCode::AbortedByDisconnect));
}
