//! Reads that take their time: a start that races with a deletion, background jobs that wait for the store's connection, and a
//! wait for a run that needs none.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::agent::{BackgroundPolicy, RunSpec};
use agentloop_core::id::{EntryNo, RunId, SessionId, TenantId};
use agentloop_core::model::delta::Delta;
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;
use agentloop_server::auth::{Quota, QuotaLimits, QuotaScope, Quotas};
use agentloop_server::engine::error::EngineError;
use agentloop_server::engine::{Author, Engine, EngineOptions, EngineParts, StartRequest};
use agentloop_server::model::{Model, ModelError, ModelRequest};
use agentloop_server::store::{NewSession, PageRequest, SessionFilter, SessionStore as _, Store};
use agentloop_server::tool::{RemoteTools, RemoteToolsOptions};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::support::answer::answer;
use crate::support::held::HeldReads;
use crate::support::intercepted::Intercepted;
use crate::support::one_model::one_model;
use crate::support::patience::in_time;
use crate::support::start_request::start_request;

async fn held_store() -> Arc<Intercepted<HeldReads>> {
    Arc::new(Intercepted::new(HeldReads::default()).await)
}

/// A model that answers at once, and keeps what it read.
#[derive(Clone, Default)]
struct Reader(Arc<Mutex<Vec<ModelRequest>>>);

impl Model for Reader {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        self.0.lock().push(request);
        stream::iter(answer("Said.").map(Ok)).boxed()
    }
}

fn engine(store: Arc<dyn Store>, model: &Reader) -> Engine {
    let tools = RemoteTools::new(RemoteToolsOptions::default(), Timestamp(0), Vec::new());
    EngineParts::default().start(store, one_model(model.clone()), tools)
}

fn session(id: &str) -> SessionId {
    SessionId::parse(id).expect("an id")
}

fn request(session_id: &str, run: &str, prompt: &str) -> StartRequest {
    let spec = RunSpec { agent: "a".into(), model: "any/reader".into(), ..RunSpec::default() };
    StartRequest {
        run: Some(RunId::parse(run).expect("an id")),
        session: Some(session(session_id)),
        create_session: true,
        ..start_request(spec, prompt)
    }
}

async fn finished(engine: &Engine, request: StartRequest) {
    let tenant = TenantId::local();
    let run = in_time(engine.start(request)).await.expect("a run").run;
    let view = in_time(engine.wait(&tenant, &run)).await.expect("an end");
    assert_eq!(view.state.status(), Some(RunStatus::Completed));
}

/// The store puts it off, because another replica has locked what it needs.
#[tokio::test]
async fn a_deletion_that_takes_long_holds_up_no_other_session() {
    let (store, model) = (held_store().await, Reader::default());
    let engine = engine(store.clone(), &model);
    finished(&engine, request("s", "r", "to be deleted")).await;
    let hold = store.intercept.hold_next("delete_session");
    let (tenant, deleted) = (TenantId::local(), session("s"));
    let deletion = engine.delete_session(&tenant, &deleted);
    let others = async {
        hold.reached().await;
        for other in 0..100 {
            finished(&engine, request(&format!("s{other}"), &format!("r{other}"), "go on")).await;
        }
        hold.release();
    };
    let (deleted, ()) = Box::pin(in_time(async { tokio::join!(deletion, others) })).await;
    assert!(deleted.expect("it is free"));
}

/// The start has read the session before the deletion, and goes on after it.
#[tokio::test]
async fn a_start_that_races_with_a_deletion_sees_nothing_of_the_deleted_session() {
    for create_session in [false, true] {
        let (store, model) = (held_store().await, Reader::default());
        let engine = engine(store.clone(), &model);
        finished(&engine, request("s", "r-1", "the old secret")).await;
        let hold = store.intercept.hold_next("session");
        let start = engine.start(StartRequest { create_session, ..request("s", "r-2", "a new prompt") });
        let deletion = async {
            hold.reached().await;
            let deleted = engine.delete_session(&TenantId::local(), &session("s")).await;
            assert!(deleted.expect("it is free"));
            hold.release();
        };
        let (started, ()) = Box::pin(in_time(async { tokio::join!(start, deletion) })).await;
        if !create_session {
            assert!(matches!(started, Err(EngineError::SessionNotFound)), "{started:?}");
            continue;
        }
        let run = started.expect("a run").run;
        in_time(engine.wait(&TenantId::local(), &run)).await.expect("an end");
        let entries = store.entries(&TenantId::local(), &session("s"), EntryNo(0), 9).await.expect("read");
        assert_eq!(entries.len(), 2, "{entries:?}");
        let requests = model.0.lock();
        let read = requests.iter().filter(|request| format!("{request:?}").contains("a new prompt"));
        for request in read {
            assert!(!format!("{request:?}").contains("the old secret"), "{request:?}");
        }
    }
}

/// The start has seen its caller's session, and waits to know how much that one has stored. Then the session is another one's.
#[tokio::test]
async fn a_start_that_waits_for_a_quota_enters_no_session_that_has_become_anothers() {
    let (store, model) = (held_store().await, Reader::default());
    let mut limits = QuotaLimits::default();
    limits.set(Quota::StoredBytes, QuotaScope::Principal, Some(1 << 30));
    let options = EngineOptions { quotas: Quotas::new(limits), ..EngineOptions::default() };
    let tools = RemoteTools::new(RemoteToolsOptions::default(), Timestamp(0), Vec::new());
    let parts = EngineParts { options, ..EngineParts::default() };
    let engine = parts.start(store.clone(), one_model(model.clone()), tools);
    let of = |name: &str| NewSession {
        tenant: TenantId::local(),
        session: session("s"),
        title: String::new(),
        labels: BTreeMap::new(),
        created_at: Timestamp(1),
        created_by: Some(name.to_owned()),
    };
    store.create_session(of("ada")).await.expect("made");
    let author = Author { name: Some("ada".to_owned()), only_own: true, ..Author::default() };
    let hold = store.intercept.hold_next("stored_bytes");
    let start = engine.start(StartRequest { author, create_session: false, ..request("s", "r", "a secret") });
    let others = async {
        hold.reached().await;
        assert!(store.delete_session(&TenantId::local(), &session("s")).await.expect("it is free"));
        store.create_session(of("bob")).await.expect("made");
        hold.release();
    };
    let (started, ()) = Box::pin(in_time(async { tokio::join!(start, others) })).await;
    assert!(matches!(started, Err(EngineError::SessionNotFound)), "{started:?}");
    let entries = store.entries(&TenantId::local(), &session("s"), EntryNo(0), 9).await.expect("read");
    assert_eq!(entries.len(), 0, "{entries:?}");
}

/// A model that answers once it may.
#[derive(Clone, Default)]
struct Waiting(Arc<Notify>);

impl Model for Waiting {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        let may = self.0.clone();
        stream::once(async move { may.notified().await })
            .flat_map(move |()| Reader::default().stream(request.clone()))
            .boxed()
    }
}

/// A caller that waits for a run from its start to its end gets its state from memory.
#[tokio::test]
async fn a_run_that_is_waited_for_is_not_read_from_the_store() {
    let (store, model) = (held_store().await, Waiting::default());
    let tools = RemoteTools::new(RemoteToolsOptions::default(), Timestamp(0), Vec::new());
    let engine = EngineParts::default().start(store.clone(), one_model(model.clone()), tools);
    let run = in_time(engine.start(request("s", "r", "Hello."))).await.expect("a run").run;
    for read in ["run", "records"] {
        store.intercept.hold_next(read);
    }
    let tenant = TenantId::local();
    // Polled first: it waits before the model may answer.
    let (stopped, ()) =
        in_time(async { tokio::join!(biased; engine.wait(&tenant, &run), async { model.0.notify_one() }) })
            .await;
    let stopped = stopped.expect("an end");
    assert_eq!((stopped.session, stopped.state.status()), (session("s"), Some(RunStatus::Completed)));
    assert_eq!(stopped.state.last_message().expect("an answer").plain_text(), "Said.");
}

/// A job that waits for the connection, or has it, must be polled whatever the runner itself waits for.
#[tokio::test]
async fn jobs_that_wait_for_the_one_connection_stop_nobody() {
    const SESSIONS: usize = 24;
    let (store, model) = (held_store().await, Reader::default());
    let engine = engine(store.clone(), &model);
    let hold = store.intercept.hold_next("entries");
    for at in 0..SESSIONS {
        let mut request = request(&format!("s-{at}"), &format!("r-{at}"), "Hello.");
        let background = BackgroundPolicy { title: true, summary: true, model: None };
        Arc::make_mut(&mut request.spec).background = background;
        finished(&engine, request).await;
        if at == 0 {
            // A job of the first run has begun. The answer to its read comes last.
            in_time(hold.reached()).await;
        }
    }
    hold.release();
    in_time(async {
        loop {
            let page = PageRequest { size: 1_000, after: None };
            let sessions =
                store.sessions(&TenantId::local(), SessionFilter::default(), page).await.expect("read").rows;
            let done =
                |row: &&agentloop_server::store::SessionRow| !row.title.is_empty() && !row.summary.is_empty();
            if sessions.iter().filter(done).count() == SESSIONS {
                return;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}
