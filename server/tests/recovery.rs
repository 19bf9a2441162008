//! Runs that end at the very moment at which they are taken over.

use std::sync::Arc;
use std::time::Duration;

use agentloop_core::agent::{LoopLimits, RunSpec};
use agentloop_core::delta::Delta;
use agentloop_core::id::{CallId, RunId, Seq, SessionId, TenantId};
use agentloop_core::message::{FinishReason, Message, Role, ToolCall};
use agentloop_core::run::effect::Offer;
use agentloop_core::run::event::Event;
use agentloop_core::run::input::CallFacts;
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Millis;
use agentloop_core::tool::{Digest, EffectClass};
use agentloop_server::engine::feed::Shown;
use agentloop_server::engine::{Engine, EngineBuilder, OnBusy, StartRequest};
use agentloop_server::lifecycle::Tasks;
use agentloop_server::model::{Model, ModelError, ModelRequest, Models, UnknownModel};
use agentloop_server::store::Store;
use agentloop_server::store::sqlite::SqliteStore;
use agentloop_server::tool::{CallOwner, Offered, Seek, Tools};
use futures_util::stream::{self, BoxStream, StreamExt as _};

/// Generous: the machine may have much else to do.
const PATIENCE: Duration = Duration::from_secs(30);

/// Always asks for the tool `pay`.
struct Payer;

impl Model for Payer {
    fn stream(&self, _request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        let deltas = [
            Delta::ToolCallStart { index: 0, provider_id: None, name: "pay".to_owned() },
            Delta::ToolCallArguments { index: 0, fragment: "{}".to_owned() },
            Delta::Finish { reason: FinishReason::ToolCalls },
        ];
        stream::iter(deltas.map(Ok)).boxed()
    }
}

struct One;

impl Models for One {
    fn resolve(&self, reference: &str) -> Result<(Arc<dyn Model>, String), UnknownModel> {
        Ok((Arc::new(Payer), reference.to_owned()))
    }
}

/// Whoever seeks a host is told this.
struct Answers(Seek);

impl Tools for Answers {
    fn offered(&self, _tenant: &TenantId, _spec: &RunSpec) -> Offered {
        Offered { tools: Arc::from([]), digest: Digest::of(&[]) }
    }

    fn facts(&self, _tenant: &TenantId, _spec: &RunSpec, calls: &[&ToolCall]) -> Vec<CallFacts> {
        let ready = CallFacts::Ready {
            effect: EffectClass::Unsafe,
            requires_approval: false,
            timeout: Millis::secs(60),
            requires_runtime: false,
            title: String::new(),
        };
        vec![ready; calls.len()]
    }

    fn validate(&self, _tenant: &TenantId, _tool: &str, _arguments: &str) -> Result<(), String> {
        Ok(())
    }

    fn seek(&self, _owner: &CallOwner, _call: &CallId, _tool: &str) -> Seek {
        self.0.clone()
    }

    fn stop_seeking(&self, _tenant: &TenantId, _call: &CallId) {}

    fn offer(&self, _owner: &CallOwner, _call: &CallId, _offer: Offer) {}

    fn reclaim(&self, _owner: &CallOwner, _call: &CallId, _offer: Offer) {}

    fn cancel(&self, _tenant: &TenantId, _call: &CallId, _attempt: u32, _reason: &str) {}

    fn release(&self, _tenant: &TenantId, _run: &RunId) {}
}

fn engine(store: &Arc<dyn Store>, answer: Seek) -> (Engine, Tasks) {
    let tasks = Tasks::new();
    let builder = EngineBuilder::new(store.clone(), Arc::new(One), Arc::new(Answers(answer)));
    (builder.tasks(tasks.clone()).start(), tasks)
}

/// A run that gives up when a call has failed.
fn request(run: &str) -> StartRequest {
    let limits = LoopLimits { max_consecutive_failures: Some(1), ..LoopLimits::default() };
    let spec = RunSpec { agent: "a".into(), model: "any/one".into(), limits, ..RunSpec::default() };
    StartRequest {
        tenant: TenantId::local(),
        run: Some(RunId::parse(run).expect("an id")),
        session: Some(SessionId::parse("s").expect("an id")),
        create_session: true,
        spec: Arc::new(spec),
        messages: vec![Arc::new(Message::text(Role::User, "pay"))],
        digest: Digest::of(&[run.as_bytes()]),
        on_busy: OnBusy::Enqueue,
        traceparent: None,
    }
}

#[tokio::test]
async fn a_run_whose_end_is_found_when_it_is_taken_over_makes_room_for_the_next() {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().await.unwrap());
    let tenant = TenantId::local();
    let (before, tasks) = engine(&store, Seek::Queued);
    let first = before.start(request("first")).await.unwrap().run;
    let events = before.subscribe(&tenant, &first, Seq(0)).await.unwrap().events;
    let mut proposed = std::pin::pin!(events.filter(|shown| {
        let is =
            matches!(shown, Ok(Shown::Durable(record)) if matches!(record.event, Event::CallProposed { .. }));
        std::future::ready(is)
    }));
    proposed.next().await.expect("the call waits for a host").unwrap();
    let second = before.start(request("second")).await.unwrap().run;
    tasks.shut_down(PATIENCE).await;

    // Nobody has room any more, and that is the end of the first run, which its new owner finds at once.
    let (after, tasks) = engine(&store, Seek::Denied("nobody is there".to_owned()));
    for run in [first, second] {
        let view = tokio::time::timeout(PATIENCE, after.wait(&tenant, &run)).await.expect("an end").unwrap();
        assert_eq!(view.state.status(), Some(RunStatus::Failed), "{run}");
    }
    tokio::time::timeout(PATIENCE, async {
        while after.live_runs() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("no task is left behind");
    tasks.shut_down(PATIENCE).await;
}
