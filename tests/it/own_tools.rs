//! An embedder's tools, which run in the server's process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agentloop_client::v1 as wire;
use agentloop_core::id::Attempt;
use agentloop_core::run::input::CallOutcome;
use agentloop_core::tool::{EffectClass, ToolDeclaration};
use agentloop_server::engine::{ToolExecution, ToolExecutor};
use agentloop_tests::events::{names, results};
use agentloop_tests::input::{named, prompt};
use agentloop_tests::model::Model;
use agentloop_tests::own_tool::own_tool;
use agentloop_tests::raw_host::{RawHost, declared, hello};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;
use wire::connect_request::Frame;
use wire::connect_response::Frame as ServerFrame;
use wire::decision::Decision;
use wire::run_event::Event;
use wire::{HumanRequestKind, RunStatus, ToolStatus};

/// Adds numbers up; on a first try, as long as it is told to hang, it never answers.
#[derive(Clone, Default)]
struct Sums {
    calls: Arc<Mutex<Vec<ToolExecution>>>,
    began: Arc<Notify>,
    dropped: Arc<Notify>,
    hangs: bool,
}

#[async_trait::async_trait]
impl ToolExecutor for Sums {
    async fn run(&self, call: ToolExecution) -> CallOutcome {
        self.calls.lock().push(call.clone());
        self.began.notify_one();
        if self.hangs && call.attempt == Attempt(1) {
            let _guard = Guard(self.dropped.clone());
            std::future::pending::<()>().await;
        }
        let arguments: serde_json::Value = serde_json::from_str(&call.arguments).expect("it was checked");
        let sum: i64 =
            arguments["of"].as_array().expect("it was checked").iter().filter_map(|n| n.as_i64()).sum();
        CallOutcome::Succeeded {
            output: sum.to_string(),
            images: Vec::new(),
            attachments: Default::default(),
        }
    }
}

/// Tells when it is dropped.
struct Guard(Arc<Notify>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Sums {
    fn count(&self) -> usize {
        self.calls.lock().len()
    }

    /// A server with the tool `sum`, and no host.
    async fn serve(&self, model: &Model, effect: EffectClass, more: &str) -> TestServer {
        let sums = self.clone();
        TestServer::built(model, more, move |builder| {
            builder.tool(ToolDeclaration { effect, ..declaration() }, Arc::new(sums.clone()))
        })
        .await
    }
}

fn declaration() -> ToolDeclaration {
    let schema = json!({
        "type": "object",
        "properties": {"of": {"type": "array", "items": {"type": "integer"}}},
        "required": ["of"]
    });
    own_tool("sum", EffectClass::ReadOnly, &schema)
}

#[tokio::test]
async fn are_listed_offered_checked_and_run_without_a_host() {
    let model = Model::start().await;
    let sums = Sums::default();
    let server = sums.serve(&model, EffectClass::ReadOnly, "").await;
    let tools = soon(server.tools().list_tools(wire::ListToolsRequest::default())).await.expect("listed");
    let [tool] = &tools.into_inner().tools[..] else { panic!("one tool") };
    assert_eq!(tool.declaration.as_ref().map(|tool| tool.name.as_str()), Some("sum"));
    assert_eq!(tool.host_ids, ["in-process"]);

    model
        .asks_all(&[("sum", json!({ "of": "all" })), ("sum", json!({ "of": [1, 2] }))])
        .asks("sums", json!({ "of": [] }))
        .says("three");
    let events = server.stream(named("r1", "add")).await.rest().await;
    assert_eq!(events.last().map(wire::RunEvent::status), Some(RunStatus::Completed));
    let results = results(&events);
    assert_eq!((results[0].status(), results[1].status()), (ToolStatus::Rejected, ToolStatus::Succeeded));
    assert!(results[0].output.contains("/of"), "{}", results[0].output);
    assert_eq!(results[1].output, "3");
    assert!(results[2].output.contains("Did you mean `sum`?"), "{}", results[2].output);
    let offered = events.iter().filter_map(|event| match &event.event {
        Some(Event::ToolCallOffered(offered)) => Some((offered.host_id.clone(), offered.attempt)),
        _ => None,
    });
    assert_eq!(offered.collect::<Vec<_>>(), [("in-process".to_owned(), 1)], "journalled like every call");
    assert_eq!(model.last_request()["tools"][0]["function"]["name"], "sum");
    assert_eq!(sums.count(), 1);
}

#[tokio::test]
async fn lists_and_policies_hold_for_them() {
    let rules = "[[agents.default.tool_policy.rules]]\naction = \"ask\"\ntool = \"sum\"\n";
    let model = Model::start().await;
    let sums = Sums::default();
    let server = sums.serve(&model, EffectClass::ReadOnly, rules).await;
    model.asks("sum", json!({ "of": [1] })).says("one");
    let waits = server.run(named("r1", "add")).await;
    assert_eq!((waits.status(), sums.count()), (RunStatus::AwaitingHuman, 0));
    server.decide(&waits.pending[0].request_id, Decision::Approve(wire::Approve {})).await.expect("decided");
    assert_eq!(server.run(named("r1", "add")).await.status(), RunStatus::Completed);
    assert_eq!(sums.count(), 1);

    model.asks("sum", json!({ "of": [1] })).says("I cannot");
    let none = Some(wire::ToolNames { names: vec!["other".to_owned()] });
    let events = server.stream(wire::RunInput { allowed_tools: none, ..prompt("add") }).await.rest().await;
    assert_eq!(results(&events)[0].status(), ToolStatus::Rejected);
    assert_eq!(model.last_request()["tools"].as_array().map_or(0, Vec::len), 0);
    assert_eq!(sums.count(), 1);
}

#[tokio::test]
async fn no_host_can_bring_one_of_the_same_name() {
    let model = Model::start().await;
    let server = Sums::default().serve(&model, EffectClass::ReadOnly, "").await;
    let mut host = RawHost::open(&server).await;
    let tools = ["sum", "other"].map(|name| declared(name, wire::EffectClass::ReadOnly)).to_vec();
    host.send(Frame::Hello(hello("h", tools)));
    let ServerFrame::Welcome(welcome) = host.wait_for(|_| true).await else { panic!("welcome comes first") };
    let verdicts: Vec<_> = welcome.capabilities.iter().map(|verdict| verdict.accepted).collect();
    assert_eq!(verdicts, [false, true]);
    assert!(welcome.capabilities[0].reason.contains("of its own"), "{:?}", welcome.capabilities);
}

/// The run whose call a restart cut, once it comes to a stop, and how often the tool was called.
async fn cut(effect: EffectClass) -> (wire::RunResult, usize) {
    let model = Model::start().await;
    let sums = Sums { hangs: true, ..Sums::default() };
    let mut server = sums.serve(&model, effect, "").await;
    model.asks("sum", json!({ "of": [20, 3] })).says("done");
    let events = server.stream(named("r1", "add")).await;
    soon(sums.began.notified()).await;
    server.restart().await;
    drop(events);
    let stopped = server.run(named("r1", "add")).await;
    let keys: Vec<_> = sums.calls.lock().iter().map(|call| call.idempotency_key.clone()).collect();
    assert!(keys.windows(2).all(|pair| pair[0] == pair[1]), "{keys:?}");
    (stopped, sums.count())
}

#[tokio::test]
async fn a_call_cut_by_a_restart_follows_its_effect_class() {
    let (again, calls) = cut(EffectClass::Keyed).await;
    assert_eq!((again.status(), calls), (RunStatus::Completed, 2));
    let (doubt, calls) = cut(EffectClass::Unsafe).await;
    assert_eq!((doubt.status(), calls), (RunStatus::AwaitingHuman, 1));
    assert_eq!(doubt.pending[0].kind(), HumanRequestKind::InDoubt);
}

#[tokio::test]
async fn arguments_of_an_earlier_process_are_checked_by_the_schema_of_this_one() {
    let model = Model::start().await;
    let (sums, starts) = (Sums::default(), AtomicUsize::new(0));
    let tool = sums.clone();
    let mut server = TestServer::built(&model, "", move |builder| {
        let mut declaration = ToolDeclaration { requires_approval: true, ..declaration() };
        if starts.fetch_add(1, Ordering::Relaxed) > 0 {
            declaration.input_schema = declaration.input_schema.replace("integer", "string");
        }
        builder.tool(declaration, Arc::new(tool.clone()))
    })
    .await;
    model.asks("sum", json!({ "of": [20, 3] })).says("done");
    let waits = server.run(named("r1", "add")).await;
    server.restart().await;
    server.decide(&waits.pending[0].request_id, Decision::Approve(wire::Approve {})).await.expect("decided");
    let events = server.stream(named("r1", "add")).await.rest().await;
    let [result] = &results(&events)[..] else { panic!("one result") };
    assert_eq!(result.status(), ToolStatus::Rejected);
    assert!(result.output.contains("/of"), "{}", result.output);
    assert_eq!(sums.count(), 0);
}

#[tokio::test]
async fn a_call_that_is_given_up_is_dropped() {
    let model = Model::start().await;
    let sums = Sums { hangs: true, ..Sums::default() };
    let server = sums.serve(&model, EffectClass::ReadOnly, "").await;
    model.asks("sum", json!({ "of": [1] }));
    let events = server.stream(named("r1", "add")).await;
    soon(sums.began.notified()).await;
    assert_eq!(server.abort("r1").await.status(), RunStatus::Aborted);
    assert_eq!(names(&events.rest().await).last(), Some(&"run_finished"));
    soon(sums.dropped.notified()).await;
    assert_eq!(sums.count(), 1);
}
