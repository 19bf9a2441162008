//! Executors that replace the built-in ones. The agent's come before the engine's, and those before the built-in ones.

use std::sync::Arc;

use agentloop_core::agent::RunSpec;
use agentloop_core::host::frame::CallRef;
use agentloop_core::id::{CallId, HostId, RunId, Seq, TenantId};
use agentloop_core::message::ToolCall;
use agentloop_core::model::delta::Delta;
use agentloop_core::run::effect::{CancelCause, Offer};
use agentloop_core::run::human::{Decision, Question};
use agentloop_core::run::input::{CallFacts, CallOutcome, ReadyCall};
use agentloop_core::run::status::RunStatus;
use agentloop_core::tool::{Digest, EffectClass};
use agentloop_server::engine::feed::FeedItem;
use agentloop_server::engine::{
    Engine, EngineParts, Executors, FinishExecutor, HumanExecutor, StartRequest, ToolExecution, ToolExecutor,
};
use agentloop_server::extension::RunContext;
use agentloop_server::lifecycle::Tasks;
use agentloop_server::model::{Model, ModelError, ModelRequest};
use agentloop_server::store::sqlite::SqliteStore;
use agentloop_server::tool::{CallOrigin, Offered, Seek, Tools};
use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use parking_lot::Mutex;

use crate::support::answer::answer;
use crate::support::one_model::one_model;
use crate::support::ready_call::ready_call;
use crate::support::start_request::start_request;
use crate::support::tool_call::tool_call;

/// Calls the tool `pay` once, then answers with its own name and the tool's output.
struct Speaker(&'static str);

impl Model for Speaker {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        let last = request.messages.last().expect("there is a prompt");
        let result = last.tool_result().map(|result| result.output.clone());
        match result {
            Some(read) => stream::iter(answer(format!("{}: {read}", self.0)).map(Ok)).boxed(),
            None => stream::iter(tool_call("pay").map(Ok)).boxed(),
        }
    }
}

/// Knows the tool `pay`, which needs approval if the run is labelled `careful`. No host serves it.
struct NoHosts(EffectClass);

impl Tools for NoHosts {
    fn offered(&self, _tenant: &TenantId, _spec: &RunSpec) -> Offered {
        Offered { digest: Digest::of(&[]), tools: Arc::from([]) }
    }

    fn facts(&self, _tenant: &TenantId, spec: &RunSpec, calls: &[&ToolCall]) -> Vec<CallFacts> {
        let requires_approval = spec.labels.contains_key("careful");
        let ready = ReadyCall { requires_approval, ..ready_call(self.0) };
        vec![CallFacts::Ready(ready); calls.len()]
    }

    fn validate(&self, _tenant: &TenantId, _tool: &str, arguments: &str) -> Result<(), String> {
        if arguments == "{}" { Ok(()) } else { Err("expected no arguments".to_owned()) }
    }

    fn seek(&self, _origin: &CallOrigin, _call: &CallId, _tool: &str, _on: Option<&HostId>) -> Seek {
        Seek::Denied("built-in: no host".to_owned())
    }

    fn stop_seeking(&self, _tenant: &TenantId, _call: &CallId) {}

    fn offer(&self, _origin: &CallOrigin, _call: &CallId, _offer: Offer) {}

    fn reclaim(&self, _origin: &CallOrigin, _call: &CallId, _offer: Offer) {}

    fn cancel(&self, _tenant: &TenantId, _call: &CallRef, _cause: CancelCause, _reason: &str) {}

    fn release(&self, _tenant: &TenantId, _run: &RunId) {}
}

/// The behaviour of the tool executor.
#[derive(Clone)]
enum Does {
    Says(&'static str),
    Panics,
    Hangs,
}

struct Here(Does);

#[async_trait]
impl ToolExecutor for Here {
    fn takes(&self, tool: &str) -> bool {
        tool == "pay"
    }

    async fn run(&self, call: ToolExecution) -> CallOutcome {
        match self.0 {
            Does::Says(name) => {
                let output = format!("{name} paid {} on try {}", call.call.slot, call.attempt);
                CallOutcome::Succeeded { output, images: Vec::new(), attachments: Default::default() }
            }
            Does::Panics => panic!("an executor's fault"),
            Does::Hangs => std::future::pending().await,
        }
    }
}

struct Says(Option<Decision>);

#[async_trait]
impl HumanExecutor for Says {
    async fn answer(&self, _run: RunContext, question: &Question) -> Option<Decision> {
        assert_eq!(question.tool, "pay");
        self.0.clone()
    }
}

#[derive(Default)]
struct Ends(Mutex<Vec<Option<RunStatus>>>, tokio::sync::Notify);

#[async_trait]
impl FinishExecutor for Ends {
    async fn finished(&self, run: RunContext) {
        self.0.lock().push(run.state.status());
        self.1.notify_one();
    }
}

fn tools(does: Does) -> Executors {
    Executors { tools: Some(Arc::new(Here(does))), ..Executors::default() }
}

async fn started(parts: EngineParts) -> Engine {
    let store = Arc::new(SqliteStore::in_memory().await.expect("a store"));
    started_over(store, EffectClass::ReadOnly, parts)
}

fn started_over(store: Arc<SqliteStore>, class: EffectClass, parts: EngineParts) -> Engine {
    parts.start(store, one_model(Speaker("built-in")), Arc::new(NoHosts(class)))
}

fn with(executors: Executors) -> EngineParts {
    EngineParts { executors, ..EngineParts::default() }
}

fn request(agent: &str, careful: bool) -> StartRequest {
    let mut spec = RunSpec { agent: agent.into(), model: "any/model".into(), ..RunSpec::default() };
    if careful {
        spec.labels.insert("careful".to_owned(), "yes".to_owned());
    }
    start_request(spec, "pay")
}

/// Runs a prompt to its end and returns the answer.
async fn run(engine: &Engine, agent: &str) -> String {
    let started = engine.start(request(agent, false)).await.expect("a run");
    let view = engine.wait(&TenantId::local(), &started.run).await.expect("an end");
    assert_eq!(view.state.status(), Some(RunStatus::Completed));
    view.state.last_message().expect("an answer").plain_text()
}

#[tokio::test]
async fn the_agents_come_before_the_engines_before_the_built_in() {
    let plain = started(EngineParts::default()).await;
    assert_eq!(run(&plain, "any").await, "built-in: built-in: no host");
    let model = |name| Some(Arc::new(Speaker(name)) as Arc<dyn Model>);
    let own = Executors { model: model("agent"), ..tools(Does::Says("agent")) };
    let agent_executors = [("own".to_owned(), own), ("half".to_owned(), tools(Does::Says("agent")))].into();
    let executors = Executors { model: model("engine"), ..tools(Does::Says("engine")) };
    let engine = started(EngineParts { agent_executors, ..with(executors) }).await;
    assert_eq!(run(&engine, "any").await, "engine: engine paid 1.0 on try 1");
    assert_eq!(run(&engine, "own").await, "agent: agent paid 1.0 on try 1");
    assert_eq!(run(&engine, "half").await, "engine: agent paid 1.0 on try 1", "each kind by itself");
}

#[tokio::test]
async fn a_fault_in_an_executor_is_one_calls() {
    let engine = started(with(tools(Does::Panics))).await;
    assert_eq!(run(&engine, "any").await, "built-in: the tool failed with an internal error");
}

#[tokio::test]
async fn a_call_that_is_given_up_is_dropped() {
    let engine = started(with(tools(Does::Hangs))).await;
    let started = engine.start(request("any", false)).await.expect("a run");
    let tenant = TenantId::local();
    engine
        .abort(&tenant, &started.run, agentloop_core::run::input::AbortCause::Caller, "enough")
        .await
        .expect("aborted");
    let view = engine.wait(&tenant, &started.run).await.expect("an end");
    assert_eq!(view.state.status(), Some(RunStatus::Aborted));
}

/// The status and last message of a run whose question gets this decision.
async fn asked(decision: Option<Decision>) -> (Option<RunStatus>, Option<String>) {
    let human: Arc<dyn HumanExecutor> = Arc::new(Says(decision));
    let executors = Executors { human: Some(human), ..tools(Does::Says("engine")) };
    let engine = started(with(executors)).await;
    let started = engine.start(request("any", true)).await.expect("a run");
    let tenant = TenantId::local();
    loop {
        let view = engine.wait(&tenant, &started.run).await.expect("a stop");
        let row = engine.store().run(&tenant, &started.run).await.expect("a store").expect("a row");
        // The executor may not have answered yet.
        if view.state.status() == Some(RunStatus::AwaitingHuman) && engine.live_runs() > 0 {
            tokio::task::yield_now().await;
            continue;
        }
        assert_eq!(Some(row.summary.status), view.state.status());
        let last = view.state.last_message().as_ref().map(|message| message.plain_text());
        return (view.state.status(), last);
    }
}

#[tokio::test]
async fn questions_are_answered_in_a_humans_place() {
    let (status, said) = asked(Some(Decision::Approve)).await;
    assert_eq!(status, Some(RunStatus::Completed));
    assert_eq!(said.as_deref(), Some("built-in: engine paid 1.0 on try 1"));
    let (status, said) = asked(Some(Decision::Deny { message: "too dear".to_owned() })).await;
    assert_eq!(status, Some(RunStatus::Completed));
    assert!(said.is_some_and(|said| said.contains("too dear")));
}

#[tokio::test]
async fn what_it_leaves_or_says_wrongly_waits_for_a_human() {
    assert_eq!(asked(None).await.0, Some(RunStatus::AwaitingHuman));
    let nonsense = Decision::ApproveWithEdits { arguments: r#"{"to":"eve"}"#.to_owned() };
    assert_eq!(asked(Some(nonsense)).await.0, Some(RunStatus::AwaitingHuman));
}

/// The status and last message of a run whose call was cut by a shutdown, once another server has continued it.
async fn cut(class: EffectClass) -> (Option<RunStatus>, Option<String>) {
    let store = Arc::new(SqliteStore::in_memory().await.expect("a store"));
    let tasks = Tasks::new();
    let first =
        started_over(store.clone(), class, EngineParts { tasks: tasks.clone(), ..with(tools(Does::Hangs)) });
    let tenant = TenantId::local();
    let started = first.start(request("any", false)).await.expect("a run");
    let events = first.subscribe(&tenant, &started.run, Seq(0)).await.expect("a subscription").events;
    let offered = |shown: &FeedItem| match shown {
        FeedItem::Durable(record) => record.event.kind() == "call_offered",
        FeedItem::Transient(_) => false,
    };
    let mut events = std::pin::pin!(events);
    while !offered(&events.next().await.expect("it goes on").expect("an event")) {}
    tasks.soft().cancel();
    tasks.shut_down(std::time::Duration::from_secs(5)).await;
    drop(first);
    let second = started_over(store, class, with(tools(Does::Says("second"))));
    let view = second.wait(&tenant, &started.run).await.expect("a stop");
    (view.state.status(), view.state.last_message().map(|message| message.plain_text()))
}

#[tokio::test]
async fn a_call_that_a_restart_cut_is_made_again_where_that_is_safe() {
    let (status, said) = cut(EffectClass::ReadOnly).await;
    assert_eq!(status, Some(RunStatus::Completed));
    assert_eq!(said.as_deref(), Some("built-in: second paid 1.0 on try 2"));
    assert_eq!(cut(EffectClass::Unsafe).await.0, Some(RunStatus::AwaitingHuman), "it is in doubt");
}

#[tokio::test]
async fn the_end_is_told_once_it_is_durable() {
    let ends = Arc::new(Ends::default());
    let executors = Executors { finish: Some(ends.clone()), ..tools(Does::Says("engine")) };
    let engine = started(with(executors)).await;
    run(&engine, "any").await;
    ends.1.notified().await;
    assert_eq!(*ends.0.lock(), [Some(RunStatus::Completed)]);
}
