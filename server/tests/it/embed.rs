//! An embedded engine or server with ports of the embedder.

#![expect(clippy::disallowed_methods, reason = "tests start tasks of their own")]

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agentloop_core::agent::{ContextPolicy, RunSpec};
use agentloop_core::context::compact::{CompactionGoal, truncate};
use agentloop_core::entry::{Compaction, Entry};
use agentloop_core::host::frame::CallRef;
use agentloop_core::id::{CallId, HostId, RunId, Seq, SessionId, TenantId};
use agentloop_core::message::{Role, ToolCall};
use agentloop_core::model::delta::Delta;
use agentloop_core::run::effect::{CancelCause, Offer};
use agentloop_core::run::event::Record;
use agentloop_core::run::input::{CallFacts, CallOutcome};
use agentloop_core::run::state::RunState;
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;
use agentloop_core::tool::{EffectClass, ToolDeclaration};
use agentloop_server::app::Server;
use agentloop_server::clock::TestClock;
use agentloop_server::config::Config;
use agentloop_server::engine::{
    Compactor, EngineParts, JobError, JobExecutor, Observer, RunObserver, StartRequest,
};
use agentloop_server::ids::CountingIds;
use agentloop_server::lifecycle::Tasks;
use agentloop_server::model::{Model, ModelError, ModelRequest};
use agentloop_server::store::sqlite::SqliteStore;
use agentloop_server::store::{Job, JobKind, JournalStore as _};
use agentloop_server::tool::{CallOrigin, CallSink, Offered, ReportedResult, Seek, Tools, Verdict};
use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use parking_lot::Mutex;

use crate::support::answer::answer;
use crate::support::one_model::one_model;
use crate::support::ready_call::ready_call;
use crate::support::start_request::start_request;
use crate::support::tool_call::tool_call;

/// Calls the tool `echo` once, then answers with a fixed text.
struct Parrot;

impl Model for Parrot {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        let last = request.messages.last().expect("there is a prompt");
        match last.role {
            Role::Tool => stream::iter(answer("It said something.").map(Ok)).boxed(),
            Role::System | Role::User | Role::Assistant => stream::iter(tool_call("echo").map(Ok)).boxed(),
        }
    }
}

/// Tools with one tool that runs in this process.
#[derive(Default)]
struct LocalTools {
    engine: OnceLock<Arc<dyn CallSink>>,
    verdicts: Arc<Mutex<Vec<Verdict>>>,
}

impl Tools for LocalTools {
    fn offered(&self, _tenant: &TenantId, _spec: &RunSpec) -> Offered {
        let echo = ToolDeclaration {
            name: "echo".to_owned(),
            description: "Says it again.".to_owned(),
            input_schema: r#"{"type":"object"}"#.to_owned(),
            effect: EffectClass::ReadOnly,
            requires_approval: false,
            requires_runtime: false,
            deadline_is_outcome: false,
            output_schema: String::new(),
            timeout: None,
            max_concurrency: None,
            streams_output: false,
            title: String::new(),
        };
        Offered { digest: echo.digest(), tools: Arc::from([Arc::new(echo)]) }
    }

    fn facts(&self, _tenant: &TenantId, _spec: &RunSpec, calls: &[&ToolCall]) -> Vec<CallFacts> {
        let ready = CallFacts::Ready(ready_call(EffectClass::ReadOnly));
        vec![ready; calls.len()]
    }

    fn validate(&self, _tenant: &TenantId, _tool: &str, _arguments: &str) -> Result<(), String> {
        Ok(())
    }

    fn seek(&self, _origin: &CallOrigin, _call: &CallId, _tool: &str, _on: Option<&HostId>) -> Seek {
        Seek::Granted { host: HostId::parse("here").expect("an id"), instance: None, terms: None }
    }

    fn stop_seeking(&self, _tenant: &TenantId, _call: &CallId) {}

    fn offer(&self, origin: &CallOrigin, call: &CallId, offer: Offer) {
        let engine = self.engine.get().expect("the engine runs").clone();
        let (tenant, call, verdicts) = (origin.tenant.clone(), call.clone(), self.verdicts.clone());
        tokio::spawn(async move {
            for _ in 0..2 {
                let result = ReportedResult {
                    attempt: offer.attempt,
                    lease: offer.lease.to_string(),
                    host: offer.host.clone(),
                    outcome: CallOutcome::Succeeded {
                        output: "echo".to_owned(),
                        images: vec![],
                        attachments: Default::default(),
                    },
                };
                let verdict = engine.finished(&tenant, &call, result).await.expect("the store answers");
                verdicts.lock().push(verdict);
            }
        });
    }

    fn reclaim(&self, origin: &CallOrigin, call: &CallId, offer: Offer) {
        self.offer(origin, call, offer);
    }

    fn cancel(&self, _tenant: &TenantId, _call: &CallRef, _cause: CancelCause, _reason: &str) {}

    fn release(&self, _tenant: &TenantId, _run: &RunId) {}
}

#[derive(Default)]
struct Seen(Mutex<Vec<(Seq, &'static str)>>);

impl Observer for Seen {
    fn event(&self, _tenant: &TenantId, _run: &RunId, _session: &SessionId, record: &Record) {
        self.0.lock().push((record.seq, record.event.kind()));
    }
}

fn request(prompt: &str) -> StartRequest {
    start_request(
        RunSpec { agent: "parrot".into(), model: "any/parrot".into(), ..RunSpec::default() },
        prompt,
    )
}

/// Panics whenever a run of this agent ends.
struct FaultyJobs;

#[async_trait]
impl JobExecutor for FaultyJobs {
    fn wanted(&self, _tenant: &TenantId, ended: &RunState) -> Vec<JobKind> {
        assert_ne!(ended.spec().agent, "faulty", "a fault of the embedder");
        Vec::new()
    }

    fn takes(&self, _kind: &JobKind) -> bool {
        false
    }

    async fn execute(&self, _job: &Job, _spec: &RunSpec) -> Result<(), JobError> {
        Ok(())
    }
}

#[tokio::test]
async fn a_run_that_panics_at_its_end_fails_alone() {
    let store = Arc::new(SqliteStore::in_memory().await.expect("a store"));
    let (tools, tasks) = (Arc::new(LocalTools::default()), Tasks::new());
    let parts = EngineParts {
        job_executors: vec![Arc::new(FaultyJobs)],
        tasks: tasks.clone(),
        ..EngineParts::default()
    };
    let engine = parts.start(store, one_model(Parrot), tools.clone());
    assert!(tools.engine.set(engine.sink()).is_ok());
    let mut faulty = request("say it");
    faulty.spec = Arc::new(RunSpec { agent: "faulty".into(), ..RunSpec::clone(&faulty.spec) });
    for (request, status) in [(faulty, RunStatus::Failed), (request("say it again"), RunStatus::Completed)] {
        let started = engine.start(request).await.expect("a run");
        let view = engine.wait(&TenantId::local(), &started.run).await.expect("an end");
        assert_eq!(view.state.status(), Some(status));
    }
    assert!(!tasks.soft().is_cancelled(), "the process goes on");
}

/// Panics whenever a run comes up that has events.
struct FaultyObserver;

impl Observer for FaultyObserver {
    fn follow(
        &self,
        _tenant: &TenantId,
        _run: &RunId,
        _session: &SessionId,
        past: &[Record],
    ) -> Option<Box<dyn RunObserver>> {
        assert_eq!(past.len(), 0, "a fault of the embedder");
        None
    }
}

/// Never says anything.
struct Silent;

impl Model for Silent {
    fn stream(&self, _request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        stream::pending().boxed()
    }
}

#[tokio::test]
async fn a_run_that_panics_as_it_comes_up_fails_alone() {
    let store = Arc::new(SqliteStore::in_memory().await.expect("a store"));
    let ids = Arc::new(CountingIds::default());
    let killed = Tasks::new();
    let before = EngineParts { ids: ids.clone(), tasks: killed.clone(), ..EngineParts::default() };
    let engine = before.start(store.clone(), one_model(Silent), Arc::new(LocalTools::default()));
    let left = engine.start(request("say it")).await.expect("a run");
    killed.hard().cancel();
    killed.shut_down(Duration::ZERO).await;

    let (tools, tasks) = (Arc::new(LocalTools::default()), Tasks::new());
    let parts = EngineParts {
        ids,
        observers: vec![Arc::new(FaultyObserver)],
        tasks: tasks.clone(),
        ..EngineParts::default()
    };
    let engine = parts.start(store, one_model(Parrot), tools.clone());
    assert!(tools.engine.set(engine.sink()).is_ok());
    let view = engine.wait(&TenantId::local(), &left.run).await.expect("an end");
    assert_eq!(view.state.status(), Some(RunStatus::Failed));
    assert!(!tasks.soft().is_cancelled(), "the process goes on");
}

#[tokio::test]
async fn every_port_can_be_ones_own() {
    let store = Arc::new(SqliteStore::in_memory().await.expect("a store"));
    let (tools, seen) = (Arc::new(LocalTools::default()), Arc::new(Seen::default()));
    let parts = EngineParts {
        clock: Arc::new(TestClock::at(Timestamp(1_000))),
        ids: Arc::new(CountingIds::default()),
        observers: vec![seen.clone()],
        ..EngineParts::default()
    };
    let engine = parts.start(store.clone(), one_model(Parrot), tools.clone());
    assert!(tools.engine.set(engine.sink()).is_ok());

    let started = engine.start(request("say it")).await.expect("a run");
    assert_eq!((started.run.as_str(), started.session.as_str()), ("run-1", "session-1"));
    let view = engine.wait(&TenantId::local(), &started.run).await.expect("an end");

    assert_eq!(view.state.status(), Some(RunStatus::Completed));
    let answer = view.state.last_message().expect("an answer").plain_text();
    assert_eq!(answer, "It said something.");
    assert_eq!(view.state.started_at(), Timestamp(1_000), "the embedder's clock");
    let seen = seen.0.lock().clone();
    let kinds: Vec<_> = seen.iter().map(|(_, kind)| *kind).collect();
    let expected = [
        "started",
        "input_added",
        "model_call_started",
        "assistant_message",
        "call_proposed",
        "call_offered",
        "call_settled",
        "model_call_started",
        "assistant_message",
        "finished",
    ];
    assert_eq!(kinds, expected);
    assert!(seen.iter().zip(1..).all(|((seq, _), at)| seq.0 == at), "dense from 1");
    assert_eq!(store.stats().appends, 4, "two commits for the tool round, and two");
}

#[tokio::test]
async fn a_result_that_comes_twice_is_recorded_once() {
    let store = Arc::new(SqliteStore::in_memory().await.expect("a store"));
    let tools = Arc::new(LocalTools::default());
    let engine = EngineParts::default().start(store, one_model(Parrot), tools.clone());
    assert!(tools.engine.set(engine.sink()).is_ok());
    let started = engine.start(request("say it")).await.expect("a run");
    engine.wait(&TenantId::local(), &started.run).await.expect("an end");
    while tools.verdicts.lock().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(*tools.verdicts.lock(), [Verdict::Recorded, Verdict::Duplicate]);
}

/// A compaction strategy that keeps the last message only, and counts its calls.
#[derive(Default)]
struct Forget(Mutex<u32>);

#[async_trait::async_trait]
impl Compactor for Forget {
    async fn compact(&self, entries: &[Entry], _goal: CompactionGoal) -> Result<Compaction, String> {
        *self.0.lock() += 1;
        Ok(Compaction { strategy: "forget".to_owned(), ..truncate(entries, 1) })
    }
}

#[tokio::test]
async fn a_file_of_the_audit_log_that_cannot_be_written_refuses_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("missing/audit.jsonl");
    let text = format!("[server]\nlisten = \"127.0.0.1:0\"\n[audit]\nenabled = true\npath = {path:?}\n");
    let config = Config::parse(&text, "embed.toml").expect("a configuration");
    let store = Arc::new(SqliteStore::in_memory().await.expect("a store"));
    let started = Box::pin(Server::builder(config).store(store).models(one_model(Parrot)).start()).await;
    let refused = started.err().expect("it does not start").to_string();
    assert!(refused.starts_with("audit.path: cannot write") && refused.contains("missing"), "{refused}");
}

#[tokio::test]
async fn a_compaction_strategy_that_nobody_has_refuses_the_start() {
    let text = "[server]\nlisten = \"127.0.0.1:0\"\n[agents.default.context]\nstrategy = \"forget\"\n";
    let builder = async || {
        let config = Config::parse(text, "embed.toml").expect("a configuration");
        let store = Arc::new(SqliteStore::in_memory().await.expect("a store"));
        Server::builder(config).store(store).models(one_model(Parrot))
    };
    let refused = Box::pin(builder().await.start()).await.err().expect("it does not start").to_string();
    assert!(
        refused.starts_with("agents.default.context.strategy: ") && refused.contains("forget"),
        "{refused}"
    );
    assert!(refused.contains("truncate, summarize"), "{refused}");
    let own = builder().await.compactor("forget", Arc::new(Forget::default()));
    Box::pin(own.start()).await.expect("the embedder has it").shutdown().await;
}

/// Asks for no jobs, and notes the runs that have ended.
#[derive(Default)]
struct EndedRuns(Mutex<Vec<RunId>>);

#[async_trait]
impl JobExecutor for EndedRuns {
    fn wanted(&self, _tenant: &TenantId, ended: &RunState) -> Vec<JobKind> {
        self.0.lock().push(ended.run().clone());
        Vec::new()
    }

    fn takes(&self, _kind: &JobKind) -> bool {
        false
    }

    async fn execute(&self, _job: &Job, _spec: &RunSpec) -> Result<(), JobError> {
        Ok(())
    }
}

#[tokio::test]
async fn a_server_is_made_of_ones_own_parts() {
    let store = Arc::new(SqliteStore::in_memory().await.expect("a store"));
    let (tools, seen) = (Arc::new(LocalTools::default()), Arc::new(Seen::default()));
    let (own, forget, ended) = (tools.clone(), Arc::new(Forget::default()), Arc::new(EndedRuns::default()));
    let config = Config::parse("[server]\nlisten = \"127.0.0.1:0\"", "embed.toml").expect("a configuration");
    let builder = Server::builder(config)
        .store(store.clone())
        .models(one_model(Parrot))
        .tools(move |_hosts| own)
        .clock(Arc::new(TestClock::at(Timestamp(1_000))))
        .ids(Arc::new(CountingIds::default()))
        .compactor("forget", forget.clone())
        .job_executor(ended.clone())
        .observer(seen.clone());
    let server = Box::pin(builder.start()).await.expect("a server");
    assert!(tools.engine.set(server.engine().sink()).is_ok());

    let context = ContextPolicy { max_messages: Some(2), strategy: "forget".into(), ..Default::default() };
    let plain = request("say it");
    let spec = Arc::new(RunSpec { context, ..RunSpec::clone(&plain.spec) });
    let started = server.engine().start(StartRequest { spec, ..plain }).await.expect("a run");
    let view = server.engine().wait(&TenantId::local(), &started.run).await.expect("an end");

    assert_eq!((started.run.as_str(), view.state.started_at()), ("run-1", Timestamp(1_000)));
    assert_eq!(view.state.status(), Some(RunStatus::Completed));
    assert_eq!(*forget.0.lock(), 1, "three messages are one more than the bound");
    assert_eq!(*ended.0.lock(), std::slice::from_ref(&started.run));
    let kinds: Vec<_> = seen.0.lock().iter().map(|(_, kind)| *kind).collect();
    assert!(kinds.contains(&"compacted") && kinds.ends_with(&["finished"]), "{kinds:?}");

    server.shutdown().await;
    assert_eq!(Arc::strong_count(&forget), 1, "a server that has stopped lets go of its parts");
    let kept = store.run(&TenantId::local(), &started.run).await.expect("the embedder's store stays open");
    assert!(kept.is_some());
}
