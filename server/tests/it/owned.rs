//! A server that owns a part of all sessions, and whose part changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use agentloop_core::agent::RunSpec;
use agentloop_core::cluster::shard::shard_of;
use agentloop_core::id::{Attempt, CallId, RunId, Seq, SessionId, TenantId};
use agentloop_core::model::delta::Delta;
use agentloop_core::outcome::Ran;
use agentloop_core::run::event::{Event, Record};
use agentloop_core::run::input::AbortCause;
use agentloop_core::time::Timestamp;
use agentloop_proto::v1::sessions_server::Sessions as _;
use agentloop_proto::v1::{ForkSessionRequest, GetOrCreateSessionRequest};
use agentloop_server::auth::Principal;
use agentloop_server::engine::error::EngineError;
use agentloop_server::engine::feed::FeedItem;
use agentloop_server::engine::{Engine, EngineParts, SessionItem, StartRequest};
use agentloop_server::grpc::sessions::SessionsService;
use agentloop_server::ids::RandomIds;
use agentloop_server::model::{Model, ModelError, ModelRequest};
use agentloop_server::store::{JournalStore as _, NewSession, SessionStore as _, StoreError};
use agentloop_server::tool::{CallUpdate, RemoteTools, RemoteToolsOptions};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use futures_util::{FutureExt as _, poll};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tonic::{Code, Request};

use crate::support::intercepted::{Intercept, Intercepted};
use crate::support::keeping::Keeping;
use crate::support::one_model::one_model;
use crate::support::patience::{PATIENCE, in_time};
use crate::support::start_request::start_request;
use crate::support::tool_call::tool_call;
use crate::support::until::until;

/// One of four sessions is this server's, and the session `s` as long as it has it.
#[derive(Default)]
struct Part {
    lacks_s: AtomicBool,
    /// The session `s` goes with the next write, a moment after it.
    loses_s: AtomicBool,
    /// Held by a test while writes are to wait.
    writes: Mutex<()>,
    /// Writes that have begun.
    begun: AtomicUsize,
    /// The session `s` goes before the next write, and comes back to this engine while it is asked for for the first time.
    regains_s: parking_lot::Mutex<Option<Engine>>,
}

impl Part {
    fn regain_s(&self) {
        if !self.lacks_s.load(Ordering::SeqCst) {
            return;
        }
        let regains = self.regains_s.lock().take();
        if let Some(engine) = regains {
            self.lacks_s.store(false, Ordering::SeqCst);
            let gained = in_time(engine.continue_gained_shards());
            tokio::task::block_in_place(|| Handle::current().block_on(gained));
        }
    }
}

impl Intercept for Part {
    fn owns(&self, session: &SessionId) -> bool {
        match session.as_str() {
            "s" => {
                let owns = !self.lacks_s.load(Ordering::SeqCst);
                self.regain_s();
                owns
            }
            other => other.ends_with(['0', '1', '2', '3']),
        }
    }

    /// Waits for no test.
    async fn delete<T: Send>(
        &self,
        delete: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        delete.await
    }

    async fn write<T: Send>(
        &self,
        write: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        drop(self.writes.lock().await);
        if self.regains_s.lock().is_some() {
            self.lacks_s.store(true, Ordering::SeqCst);
            return Err(StoreError::Elsewhere);
        }
        let written = write.await;
        if self.loses_s.swap(false, Ordering::SeqCst) {
            self.lacks_s.store(true, Ordering::SeqCst);
        }
        written
    }
}

type PartStore = Arc<Intercepted<Part>>;

/// A model that never answers, and counts who asks it.
#[derive(Clone, Default)]
struct Silent(Arc<AtomicUsize>);

impl Model for Silent {
    fn stream(&self, _: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        stream::pending().boxed()
    }
}

/// A model that calls a tool once.
struct Caller;

impl Model for Caller {
    fn stream(&self, _: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        stream::iter(tool_call("pay").map(Ok)).boxed()
    }
}

/// Starts the run `r`, until its call is at a host.
async fn start_call(store: &PartStore, tools: &Arc<Keeping>) -> (Engine, CallId) {
    let engine = EngineParts::default().start(store.clone(), one_model(Caller), tools.clone());
    in_time(engine.start(request())).await.expect("a run");
    let offered = || tools.offers.lock().first().cloned();
    until(|| offered().is_some()).await;
    (engine, offered().expect("it is offered"))
}

/// The host's report that it will not carry out the first attempt of a call.
fn rejected() -> CallUpdate {
    CallUpdate::Lost { attempt: Attempt(1), message: "no".to_owned(), ran: Ran::No, busy: false }
}

fn engine(store: &PartStore, model: &Silent) -> Engine {
    let tools = RemoteTools::new(RemoteToolsOptions::default(), Timestamp(0), Vec::new());
    EngineParts::default().start(store.clone(), one_model(model.clone()), tools)
}

async fn store() -> PartStore {
    Arc::new(Intercepted::new(Part::default()).await)
}

fn s() -> SessionId {
    SessionId::parse("s").expect("an id")
}

fn r() -> RunId {
    RunId::parse("r").expect("an id")
}

/// The start of the run `r` in the session `s`.
fn request() -> StartRequest {
    let spec = RunSpec { agent: "a".into(), model: "any/silent".into(), ..RunSpec::default() };
    StartRequest { run: Some(r()), session: Some(s()), create_session: true, ..start_request(spec, "hello") }
}

/// Starts the run `r`, until it waits for the model.
async fn start_r(engine: &Engine, model: &Silent) {
    in_time(engine.start(request())).await.expect("a run");
    until(|| model.0.load(Ordering::SeqCst) == 1).await;
}

/// Gives the session `s` away. Nothing of it is at work afterwards.
async fn give_away(engine: &Engine, store: &PartStore) {
    store.intercept.lacks_s.store(true, Ordering::SeqCst);
    in_time(engine.give_away_shards([shard_of(&TenantId::local(), &s())].into(), PATIENCE)).await;
    until(|| engine.live_runs() == 0).await;
}

fn is_elsewhere(error: &EngineError) -> bool {
    matches!(error, EngineError::Store(StoreError::Elsewhere))
}

#[tokio::test]
async fn the_session_of_a_user_is_one_of_its_own() {
    let store = store().await;
    let sessions = SessionsService::new(engine(&store, &Silent::default()), Arc::new(RandomIds));
    for number in 0..32 {
        let asked = GetOrCreateSessionRequest { user: format!("user-{number}"), ..Default::default() };
        let made = sessions.get_or_create_session(Request::new(asked)).await.expect("made").into_inner();
        let id = SessionId::parse(made.session.expect("a session").session_id).expect("an id");
        assert!(made.created && store.intercept.owns(&id), "{id}");
    }
}

#[tokio::test]
async fn whoever_follows_a_session_that_is_given_away_is_sent_to_its_next_owner() {
    let store = store().await;
    let engine = engine(&store, &Silent::default());
    let tenant = TenantId::local();
    let new = NewSession {
        tenant: tenant.clone(),
        session: s(),
        title: String::new(),
        labels: BTreeMap::new(),
        created_at: Timestamp(1),
        created_by: None,
    };
    store.create_session(new).await.expect("created");
    let following = engine.follow_session(&tenant, &s(), "").await.expect("it is followed");
    let mut following = std::pin::pin!(following);
    while !matches!(in_time(following.next()).await, Some(Ok(update)) if matches!(update.item, SessionItem::Synced { .. }))
    {
    }
    give_away(&engine, &store).await;
    let end = in_time(following.next()).await.expect("it is told").expect_err("it ends");
    assert!(is_elsewhere(&end), "{end}");
    let refused = engine.follow_session(&tenant, &s(), "").await.err().expect("it is refused");
    assert!(is_elsewhere(&refused), "{refused}");
}

/// The run's task learns of the loss only after the session is back. Until it has ended, the take-over starts no other task.
#[tokio::test]
async fn a_run_goes_on_if_its_session_comes_back_before_its_task_has_stopped() {
    let (store, model) = (store().await, Silent::default());
    let engine = engine(&store, &model);
    start_r(&engine, &model).await;
    store.intercept.lacks_s.store(true, Ordering::SeqCst);
    let shard = shard_of(&TenantId::local(), &s());
    let leaving = Box::pin(engine.give_away_shards([shard].into(), PATIENCE)).now_or_never();
    assert!(leaving.is_none(), "its task has not run in between");
    store.intercept.lacks_s.store(false, Ordering::SeqCst);
    until(|| model.0.load(Ordering::SeqCst) == 2).await;
}

/// The host's replica has heard that the run knows, and does not tell it again.
#[tokio::test]
async fn a_report_that_arrives_while_a_run_stops_is_recorded() {
    let (store, tools, tenant) = (store().await, Arc::new(Keeping::default()), TenantId::local());
    let (engine, call) = start_call(&store, &tools).await;
    let held = store.intercept.writes.lock().await;
    let before = store.intercept.begun.load(Ordering::SeqCst);
    let state = CallUpdate::Resumable { attempt: Attempt(1), resume_no: 1, state: vec![1] };
    let sink = engine.sink();
    let mut reporting = std::pin::pin!(sink.report_update(&tenant, &call, state));
    assert!(poll!(reporting.as_mut()).is_pending());
    until(|| store.intercept.begun.load(Ordering::SeqCst) > before).await;
    let mut stopping = std::pin::pin!(engine.stop_shards([shard_of(&tenant, &s())].into(), PATIENCE));
    assert!(poll!(stopping.as_mut()).is_pending(), "the run is in its write");
    assert!(in_time(sink.report_update(&tenant, &call, rejected())).await, "it is live");
    drop(held);
    assert!(in_time(stopping).await);
    let records = store.records(&tenant, &r(), Seq(0), 100).await.expect("reading works");
    let is_recorded = |record: &Record| matches!(record.event, Event::CallAttemptFailed { ran: Ran::No, .. });
    assert!(records.iter().any(is_recorded), "{records:?}");
}

/// Neither the end of its task nor what was gained saw that the run had to be started again.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_on_if_its_session_comes_back_while_its_task_ends() {
    let (store, tools) = (store().await, Arc::new(Keeping::default()));
    let (engine, call) = start_call(&store, &tools).await;
    *store.intercept.regains_s.lock() = Some(engine.clone());
    in_time(engine.sink().report_update(&TenantId::local(), &call, rejected())).await;
    until(|| store.intercept.regains_s.lock().is_none()).await;
    until(|| tools.reclaimed.load(Ordering::SeqCst) == 1).await;
}

/// A subscriber who does not read keeps what was in memory.
#[tokio::test]
async fn what_another_replica_wrote_is_shown_when_the_session_has_come_back() {
    let (store, model, tenant) = (store().await, Silent::default(), TenantId::local());
    let here = engine(&store, &model);
    start_r(&here, &model).await;
    let _unread = here.subscribe(&tenant, &r(), Seq(0)).await.expect("a subscription");
    give_away(&here, &store).await;
    let refused = here.subscribe(&tenant, &r(), Seq(0)).await.err().expect("it is refused");
    assert!(is_elsewhere(&refused), "{refused}");

    store.intercept.lacks_s.store(false, Ordering::SeqCst);
    let other = engine(&store, &model);
    until(|| other.live_runs() == 1).await;
    Box::pin(in_time(other.abort(&tenant, &r(), AbortCause::Caller, ""))).await.expect("it is aborted");

    let subscription = here.subscribe(&tenant, &r(), Seq(0)).await.expect("a subscription");
    let items: Vec<_> = in_time(subscription.events.collect()).await;
    let last = items.last().expect("there are events").as_ref().expect("an event");
    assert!(matches!(last, FeedItem::Durable(record) if matches!(record.event, Event::Finished { .. })));
}

#[tokio::test]
async fn a_run_that_comes_up_while_its_session_is_given_away_does_nothing() {
    let (store, model) = (store().await, Silent::default());
    let before = engine(&store, &model);
    start_r(&before, &model).await;
    give_away(&before, &store).await;

    store.intercept.lacks_s.store(false, Ordering::SeqCst);
    store.intercept.loses_s.store(true, Ordering::SeqCst);
    let engine = engine(&store, &model);
    until(|| store.intercept.lacks_s.load(Ordering::SeqCst) && engine.live_runs() == 0).await;
    assert_eq!(model.0.load(Ordering::SeqCst), 1, "the model was not asked again");
}

/// It has its feed before its first write, and is no live run that could be stopped.
#[tokio::test]
async fn a_run_that_was_starting_while_its_session_was_kept_is_followed_to_its_end() {
    let (store, model, tenant) = (store().await, Silent::default(), TenantId::local());
    let engine = engine(&store, &model);
    let held = store.intercept.writes.lock().await;
    let mut starting = std::pin::pin!(engine.start(request()));
    assert!(poll!(starting.as_mut()).is_pending());
    until(|| store.intercept.begun.load(Ordering::SeqCst) > 0).await;
    let shard = shard_of(&tenant, &s());
    assert!(in_time(engine.stop_shards([shard].into(), PATIENCE)).await, "none is live");
    store.intercept.lacks_s.store(true, Ordering::SeqCst);
    // The store cannot forget the shard while the write lasts, so the replica gains it again.
    store.intercept.lacks_s.store(false, Ordering::SeqCst);
    in_time(engine.continue_gained_shards()).await;
    drop(held);
    in_time(starting).await.expect("a run");
    until(|| model.0.load(Ordering::SeqCst) == 1).await;
    let subscription = in_time(engine.subscribe(&tenant, &r(), Seq(0))).await.expect("a subscription");
    let mut events = std::pin::pin!(subscription.events);
    // It has read the journal as far as that goes, and follows the feed from here on.
    in_time(events.next()).await.expect("there is one").expect("an event");
    Box::pin(in_time(engine.abort(&tenant, &r(), AbortCause::Caller, ""))).await.expect("it is aborted");
    let items: Vec<_> = in_time(events.collect()).await;
    let last = items.last().expect("there are events").as_ref().expect("an event");
    assert!(matches!(last, FeedItem::Durable(record) if matches!(record.event, Event::Finished { .. })));
}

/// It is checked that the caller may read the source, or has made the fork. Both may be untrue when the fork is written.
#[tokio::test]
async fn a_fork_that_is_deleted_while_it_is_asked_for_again_is_not_made_of_anothers_session() {
    let store = store().await;
    let create = async |name: &str| {
        let new = NewSession {
            tenant: TenantId::local(),
            session: s(),
            title: String::new(),
            labels: BTreeMap::new(),
            created_at: Timestamp(1),
            created_by: Some(name.to_owned()),
        };
        store.create_session(new).await.expect("created");
    };
    let sessions = SessionsService::new(engine(&store, &Silent::default()), Arc::new(RandomIds));
    let fork = || {
        let asked =
            ForkSessionRequest { session_id: "s".into(), new_session_id: Some("f1".into()), at_entry_no: 0 };
        let mut request = Request::new(asked);
        let ada = Principal::new("ada", None, ["caller"], []).expect("a principal");
        request.extensions_mut().insert(Arc::new(ada));
        sessions.fork_session(request)
    };
    let delete = async |session: &SessionId| {
        assert!(store.delete_session(&TenantId::local(), session).await.expect("deleted"));
    };
    let f = SessionId::parse("f1").expect("an id");
    create("ada").await;
    in_time(fork()).await.expect("forked");
    delete(&s()).await;
    create("ben").await;
    in_time(fork()).await.expect("confirmed");

    let held = store.intercept.writes.lock().await;
    let before = store.intercept.begun.load(Ordering::SeqCst);
    let mut again = std::pin::pin!(fork());
    tokio::select! { biased;
        early = again.as_mut() => panic!("its write waits: {early:?}"),
        () = until(|| store.intercept.begun.load(Ordering::SeqCst) > before) => {}
    }
    delete(&f).await;
    drop(held);
    let refused = in_time(again).await.expect_err("the session is another's");
    assert_eq!(refused.code(), Code::NotFound, "{refused}");
    assert!(store.session(&TenantId::local(), &f).await.expect("read").is_none());
}
