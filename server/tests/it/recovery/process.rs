//! A server process that another one takes over from, whose tools the test decides about.

use std::sync::Arc;

use agentloop_core::agent::{LoopLimits, RunSpec, ToolPolicy};
use agentloop_core::host::frame::CallRef;
use agentloop_core::id::{CallId, HostId, RunId, SessionId, TenantId};
use agentloop_core::message::{FinishReason, ToolCall};
use agentloop_core::model::delta::Delta;
use agentloop_core::run::effect::{CancelCause, Offer};
use agentloop_core::run::input::CallFacts;
use agentloop_core::tool::{Digest, EffectClass};
use agentloop_server::engine::{Engine, EngineOptions, EngineParts, OnBusy, StartRequest};
use agentloop_server::lifecycle::Tasks;
use agentloop_server::model::{Model, ModelError, ModelRequest, Models};
use agentloop_server::store::Store;
use agentloop_server::tool::{CallOrigin, Offered, Seek, Tools};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::mpsc;

use crate::support::one_model::one_model;
use crate::support::patience::{PATIENCE, in_time};
use crate::support::ready_call::ready_call;
use crate::support::start_request::start_request;

/// Calls the tool `pay` twice in each answer.
struct Payer;

impl Model for Payer {
    fn stream(&self, _request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        let deltas = [
            Delta::ToolCallStart { index: 0, provider_id: None, name: "pay".to_owned() },
            Delta::ToolCallArguments { index: 0, fragment: "{}".to_owned() },
            Delta::ToolCallStart { index: 1, provider_id: None, name: "pay".to_owned() },
            Delta::ToolCallArguments { index: 1, fragment: "{}".to_owned() },
            Delta::Finish { reason: FinishReason::ToolCalls },
        ];
        stream::iter(deltas.map(Ok)).boxed()
    }
}

/// Tools with a fixed result when a host is sought: the first for the first call of a message, the second for others.
struct Answers {
    seek: [Seek; 2],
    /// Gets each call for which a host is sought.
    sought: mpsc::UnboundedSender<CallId>,
    /// Gets each call that is offered to a host.
    offered: mpsc::UnboundedSender<CallId>,
}

impl Tools for Answers {
    fn offered(&self, _tenant: &TenantId, _spec: &RunSpec) -> Offered {
        Offered { tools: Arc::from([]), digest: Digest::of(&[]) }
    }

    fn facts(&self, _tenant: &TenantId, _spec: &RunSpec, calls: &[&ToolCall]) -> Vec<CallFacts> {
        let ready = CallFacts::Ready(ready_call(EffectClass::Unsafe));
        vec![ready; calls.len()]
    }

    fn validate(&self, _tenant: &TenantId, _tool: &str, _arguments: &str) -> Result<(), String> {
        Ok(())
    }

    fn seek(&self, _origin: &CallOrigin, call: &CallId, _tool: &str, _on: Option<&HostId>) -> Seek {
        // Not every test reads this channel.
        let _unheard = self.sought.send(call.clone());
        self.seek[usize::from(call.slot.position > 0)].clone()
    }

    fn is_offer_open(&self, _tenant: &TenantId, _call: &CallId) -> bool {
        true
    }

    fn stop_seeking(&self, _tenant: &TenantId, _call: &CallId) {}

    fn offer(&self, _origin: &CallOrigin, call: &CallId, _offer: Offer) {
        let _unheard = self.offered.send(call.clone());
    }

    fn reclaim(&self, _origin: &CallOrigin, _call: &CallId, _offer: Offer) {}

    fn cancel(&self, _tenant: &TenantId, _call: &CallRef, _cause: CancelCause, _reason: &str) {}

    fn release(&self, _tenant: &TenantId, _run: &RunId) {}
}

/// One server process: an engine with tasks and tools of its own over a shared store.
pub(crate) struct Process {
    pub(crate) engine: Engine,
    pub(crate) tasks: Tasks,
    sought: mpsc::UnboundedReceiver<CallId>,
    pub(crate) offered: mpsc::UnboundedReceiver<CallId>,
}

impl Process {
    pub(crate) fn start(store: &Arc<dyn Store>, seek: [Seek; 2]) -> Self {
        Self::start_with(store, seek, EngineOptions::default())
    }

    pub(crate) fn start_with(store: &Arc<dyn Store>, seek: [Seek; 2], options: EngineOptions) -> Self {
        Self::start_around(store, seek, options, one_model(Payer))
    }

    pub(crate) fn start_around(
        store: &Arc<dyn Store>,
        seek: [Seek; 2],
        options: EngineOptions,
        models: Arc<dyn Models>,
    ) -> Self {
        let (seeking, sought) = mpsc::unbounded_channel();
        let (offering, offered) = mpsc::unbounded_channel();
        let tools = Arc::new(Answers { seek, sought: seeking, offered: offering });
        let tasks = Tasks::new();
        let parts = EngineParts { tasks: tasks.clone(), options, ..EngineParts::default() };
        let engine = parts.start(store.clone(), models, tools);
        Self { engine, tasks, sought, offered }
    }

    /// Starts a run whose two calls wait for hosts. Returns the run and its second call.
    pub(crate) async fn waiting_run(&mut self, name: &str) -> (RunId, CallId) {
        let run = self.engine.start(request(name)).await.expect("started").run;
        (run, self.second_sought().await)
    }

    pub(crate) async fn second_sought(&mut self) -> CallId {
        in_time(self.sought.recv()).await.expect("still sought");
        in_time(self.sought.recv()).await.expect("still sought")
    }

    pub(crate) async fn stop(self) {
        self.tasks.shut_down(PATIENCE).await;
    }
}

/// A run that fails when a call has failed.
pub(crate) fn request(run: &str) -> StartRequest {
    let limits = LoopLimits { max_consecutive_failures: Some(1), ..LoopLimits::default() };
    let tool_policy = ToolPolicy { max_parallel: 2, ..ToolPolicy::default() };
    let spec =
        RunSpec { agent: "a".into(), model: "any/one".into(), limits, tool_policy, ..RunSpec::default() };
    StartRequest {
        run: Some(RunId::parse(run).expect("an id")),
        session: Some(SessionId::parse("s").expect("an id")),
        create_session: true,
        on_busy: OnBusy::Enqueue,
        ..start_request(spec, "pay")
    }
}
