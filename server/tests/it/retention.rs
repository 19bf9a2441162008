//! Sessions that are deleted because of their age or their number.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::agent::RunSpec;
use agentloop_core::id::{EntryNo, RunId, SessionId, TenantId};
use agentloop_core::model::delta::Delta;
use agentloop_core::time::{Millis, Timestamp};
use agentloop_server::clock::TestClock;
use agentloop_server::engine::{
    Engine, EngineOptions, EngineParts, KEPT_LEAST, OnBusy, Retention, StartRequest,
};
use agentloop_server::model::{Model, ModelError, ModelRequest};
use agentloop_server::store::{NewFork, NewSession, SessionStore as _};
use agentloop_server::tool::{RemoteTools, RemoteToolsOptions};
use futures_util::stream::{self, BoxStream, StreamExt as _};

use crate::support::answer::answer;
use crate::support::held::HeldReads;
use crate::support::intercepted::{Intercept, Intercepted};
use crate::support::one_model::one_model;
use crate::support::patience::in_time;
use crate::support::start_request::start_request;

const DAY: u64 = KEPT_LEAST.0;
/// The prompt that the model never answers.
const ENDLESS: &str = "for ever";

/// A model that answers at once, or never.
struct Answers;

impl Model for Answers {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        if request.messages.iter().any(|message| message.plain_text() == ENDLESS) {
            return stream::pending().boxed();
        }
        stream::iter(answer("Said.").map(Ok)).boxed()
    }
}

/// Reads that can be held. Sessions whose ids begin with `other` are of another replica.
#[derive(Default)]
struct Shared(HeldReads);

impl Intercept for Shared {
    async fn read<T: Send>(&self, method: &'static str, read: impl Future<Output = T> + Send) -> T {
        self.0.read(method, read).await
    }

    fn owns(&self, session: &SessionId) -> bool {
        !session.as_str().starts_with("other")
    }
}

struct Place {
    engine: Engine,
    store: Arc<Intercepted<Shared>>,
    clock: TestClock,
}

async fn place(retention: Retention) -> Place {
    let store = Arc::new(Intercepted::new(Shared::default()).await);
    let clock = TestClock::at(Timestamp(1_000 * DAY));
    let options = EngineOptions { retention, ..EngineOptions::default() };
    let parts = EngineParts { clock: Arc::new(clock.clone()), options, ..EngineParts::default() };
    let tools = RemoteTools::new(RemoteToolsOptions::default(), Timestamp(0), Vec::new());
    let engine = parts.start(store.clone(), one_model(Answers), tools);
    Place { engine, store, clock }
}

fn session(id: &str) -> SessionId {
    SessionId::parse(id).expect("an id")
}

impl Place {
    /// Starts a run in a session. Its prompt is `prompt`.
    async fn start(&self, id: &str, run: &str, prompt: &str) {
        let spec = RunSpec { agent: "a".into(), model: "any/answers".into(), ..RunSpec::default() };
        let request = StartRequest {
            run: Some(RunId::parse(run).expect("an id")),
            session: Some(session(id)),
            create_session: true,
            on_busy: OnBusy::Enqueue,
            ..start_request(spec, prompt)
        };
        in_time(self.engine.start(request)).await.expect("a run");
    }

    /// The same, until the run has ended.
    async fn run(&self, id: &str, run: &str) {
        self.start(id, run, "hello").await;
        let run = RunId::parse(run).expect("an id");
        in_time(self.engine.wait(&TenantId::local(), &run)).await.expect("an end");
    }

    async fn create(&self, id: &str) {
        let new = NewSession {
            tenant: TenantId::local(),
            session: session(id),
            title: String::new(),
            labels: BTreeMap::new(),
            created_at: self.engine.now(),
            created_by: None,
        };
        self.store.create_session(new).await.expect("created");
    }

    fn pass(&self, time: u64) {
        self.clock.advance(Millis(time));
    }

    async fn exists(&self, id: &str) -> bool {
        self.store.session(&TenantId::local(), &session(id)).await.expect("read").is_some()
    }
}

#[tokio::test]
async fn old_sessions_are_deleted_and_no_others() {
    let place = place(Retention { max_age: Some(Millis(30 * DAY)), max_sessions: None }).await;
    place.run("old", "r-1").await;
    place.start("live", "r-2", ENDLESS).await;
    place.start("live", "r-3", "waits behind it").await;
    place.pass(10 * DAY);
    place.run("younger", "r-4").await;
    assert_eq!(in_time(place.engine.retain()).await.expect("a pass"), 0);
    place.pass(20 * DAY + 1);
    let new = NewFork {
        tenant: TenantId::local(),
        source: session("old"),
        at: EntryNo(0),
        session: session("fork"),
        created_at: place.engine.now(),
        created_by: None,
        source_of: None,
    };
    place.store.fork(new).await.expect("forked");
    assert_eq!(in_time(place.engine.retain()).await.expect("a pass"), 1);
    assert_eq!(place.engine.retired_sessions(), 1);
    assert!(!place.exists("old").await);
    for kept in ["live", "younger", "fork"] {
        assert!(place.exists(kept).await, "{kept}");
    }
    let entries =
        place.store.entries(&TenantId::local(), &session("fork"), EntryNo(0), 9).await.expect("read");
    assert_eq!(entries.len(), 2, "what a fork shares stays");
    // The deleted ids are free.
    place.run("old", "r-1").await;
    assert!(place.exists("old").await);
}

#[tokio::test]
async fn the_longest_unused_go_first() {
    let place = place(Retention { max_age: None, max_sessions: Some(2) }).await;
    for id in ["a", "b", "c", "d"] {
        place.create(id).await;
        place.pass(1);
    }
    place.start("live", "r-1", ENDLESS).await;
    assert_eq!(in_time(place.engine.retain()).await.expect("a pass"), 0, "all were used within a day");
    place.pass(2 * DAY);
    place.create("new").await;
    assert_eq!(in_time(place.engine.retain()).await.expect("a pass"), 4);
    for (id, kept) in [("a", false), ("b", false), ("c", false), ("d", false), ("live", true), ("new", true)]
    {
        assert_eq!(place.exists(id).await, kept, "{id}");
    }
    assert_eq!(in_time(place.engine.retain()).await.expect("a pass"), 0);
}

#[tokio::test]
async fn a_session_that_is_used_meanwhile_stays() {
    let place = place(Retention { max_age: Some(Millis(DAY)), max_sessions: None }).await;
    place.run("s", "r-1").await;
    place.pass(2 * DAY);
    let hold = place.store.intercept.0.hold_next("idle_sessions");
    let pass = place.engine.retain();
    let use_it = async {
        hold.reached().await;
        place.run("s", "r-2").await;
        hold.release();
    };
    let (deleted, ()) = Box::pin(in_time(async { tokio::join!(pass, use_it) })).await;
    assert_eq!(deleted.expect("a pass"), 0);
    assert!(place.exists("s").await);
}

#[tokio::test]
async fn sessions_of_other_replicas_are_left_to_these_and_count() {
    let place = place(Retention { max_age: Some(Millis(30 * DAY)), max_sessions: Some(3) }).await;
    for id in ["a", "other-1", "b", "other-2", "c", "d", "other-3"] {
        place.create(id).await;
        place.pass(1);
    }
    place.pass(2 * DAY);
    // The four oldest are too many. Two of them are this server's.
    assert_eq!(in_time(place.engine.retain()).await.expect("a pass"), 2);
    for (id, kept) in [("a", false), ("other-1", true), ("b", false), ("other-2", true), ("c", true)] {
        assert_eq!(place.exists(id).await, kept, "{id}");
    }
    assert_eq!(in_time(place.engine.retain()).await.expect("a pass"), 0, "the others' are too many still");
    place.pass(30 * DAY);
    assert_eq!(in_time(place.engine.retain()).await.expect("a pass"), 2, "those that are too old");
    assert!(place.exists("other-1").await && place.exists("other-3").await);
}

#[tokio::test]
async fn no_session_goes_for_one_that_another_replica_deletes_meanwhile() {
    let place = place(Retention { max_age: None, max_sessions: Some(3) }).await;
    for id in ["other-1", "other-2", "a", "b", "c"] {
        place.create(id).await;
        place.pass(1);
    }
    place.pass(2 * DAY);
    let hold = place.store.intercept.0.hold_next("session_count");
    let pass = place.engine.retain();
    let delete = async {
        hold.reached().await;
        for id in ["other-1", "other-2"] {
            assert!(place.store.delete_session(&TenantId::local(), &session(id)).await.expect("deleted"));
        }
        hold.release();
    };
    let (deleted, ()) = Box::pin(in_time(async { tokio::join!(pass, delete) })).await;
    assert_eq!(deleted.expect("a pass"), 0);
    assert!(place.exists("a").await);
}

#[tokio::test]
async fn without_bounds_every_session_is_kept() {
    let place = place(Retention::default()).await;
    place.run("s", "r-1").await;
    place.pass(10_000 * DAY);
    assert_eq!(in_time(place.engine.retain()).await.expect("a pass"), 0);
    assert!(place.exists("s").await);
}
