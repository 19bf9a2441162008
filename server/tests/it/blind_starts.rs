//! Starts whose run and session nobody looks for.

use std::sync::Arc;

use agentloop_core::id::{SessionId, TenantId};
use agentloop_core::model::delta::Delta;
use agentloop_core::time::Timestamp;
use agentloop_server::audit::{self, Act, AuditEntry};
use agentloop_server::clock::{Clock, SystemClock};
use agentloop_server::engine::error::EngineError;
use agentloop_server::engine::{Engine, EngineOptions, EngineParts, StartRequest, StartedRun};
use agentloop_server::model::{Model, ModelError, ModelRequest};
use agentloop_server::store::sqlite::SqliteStore;
use agentloop_server::store::{Append, JournalStore as _, StoreError};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use parking_lot::Mutex;

use crate::support::answer::answer;
use crate::support::intercepted::{Intercept, Intercepted};
use crate::support::keeping::Keeping;
use crate::support::one_model::one_model;
use crate::support::start_request::named_request;

/// The runs that were to be written, and if nobody had looked for them.
#[derive(Default)]
struct Starts(Mutex<Vec<(String, bool)>>);

impl Intercept for Starts {
    async fn append(&self, store: &SqliteStore, append: Append) -> Result<(), StoreError> {
        if let Some(create) = &append.create {
            self.0.lock().push((append.run.to_string(), create.is_blind));
        }
        store.append(append).await
    }
}

/// A model that answers at once.
struct Quick;

impl Model for Quick {
    fn stream(&self, _request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        stream::iter(answer("Said.").into_iter().map(Ok)).boxed()
    }
}

async fn runs(engine: &Engine, session: &str, run: &str) -> StartedRun {
    let session = Some(SessionId::parse(session).expect("an id"));
    let request = StartRequest { session, create_session: true, ..named_request(run) };
    let started = engine.start(request).await.expect("a run");
    engine.wait(&TenantId::local(), &started.run).await.expect("an end");
    started
}

#[tokio::test]
async fn a_session_is_taken_for_new_if_the_one_before_was() {
    let store = Arc::new(Intercepted::new(Starts::default()).await);
    let engine = EngineParts::default().start(store.clone(), one_model(Quick), Arc::new(Keeping::default()));
    for (session, run) in [("a", "a1"), ("b", "b1"), ("b", "b2"), ("a", "a2"), ("c", "c1"), ("d", "d1")] {
        assert!(!runs(&engine, session, run).await.joined);
    }
    let starts = store.intercept.0.lock().clone();
    let starts: Vec<_> = starts.iter().map(|(run, is_blind)| (run.as_str(), *is_blind)).collect();
    let guessed_wrong = [("b2", true), ("b2", false)];
    let looked_for = [("a2", false), ("c1", false)];
    assert_eq!(starts[..2], [("a1", false), ("b1", true)]);
    assert_eq!((&starts[2..4], &starts[4..6]), (&guessed_wrong[..], &looked_for[..]));
    assert_eq!(starts[6..], [("d1", true)]);
    assert!(runs(&engine, "e", "d1").await.joined, "its run is in another session");
}

struct Ahead;

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        Timestamp(SystemClock.now().0 + 3_600_000)
    }
}

#[tokio::test]
async fn a_run_of_a_server_whose_clock_is_ahead_is_joined_where_none_can_be_started() {
    let store = Arc::new(Intercepted::new(Starts::default()).await);
    let start =
        |parts: EngineParts| parts.start(store.clone(), one_model(Quick), Arc::new(Keeping::default()));
    let ahead = start(EngineParts { clock: Arc::new(Ahead), ..EngineParts::default() });
    let made = runs(&ahead, "s", "r").await;
    let options = EngineOptions { max_live_runs: 0, ..EngineOptions::default() };
    let full = start(EngineParts { options, ..EngineParts::default() });
    let other = full.start(named_request("other")).await;
    assert!(matches!(other, Err(EngineError::TooManyRuns)), "{other:?}");
    let joined = full.start(named_request("r")).await.expect("it is there");
    assert_eq!((joined.joined, joined.session), (true, made.session));
    assert_eq!(store.intercept.0.lock().len(), 1);
}

/// A write that is refused, and has a row for the audit log, would be a commit.
#[tokio::test]
async fn a_start_that_is_recorded_in_the_audit_log_looks() {
    let store = Arc::new(Intercepted::new(Starts::default()).await);
    let engine = EngineParts::default().start(store.clone(), one_model(Quick), Arc::new(Keeping::default()));
    let act = Act::new(AuditEntry::default(), true, None);
    audit::within(Some(act.clone()), engine.start(named_request("recorded"))).await.expect("a run");
    engine.start(named_request("not-recorded")).await.expect("a run");
    assert!(act.is_recorded());
    let expected = [("recorded".to_owned(), false), ("not-recorded".to_owned(), true)];
    assert_eq!(*store.intercept.0.lock(), expected);
}
