//! Effects performed: each becomes a call of a port, and the model's answer becomes an input.

use std::sync::Arc;

use agentloop_core::agent::RunSpec;
use agentloop_core::context::assemble::AssembleError;
use agentloop_core::context::build;
use agentloop_core::delta::Delta;
use agentloop_core::error::ModelErrorKind;
use agentloop_core::id::{EntryNo, TenantId};
use agentloop_core::message::ToolCall;
use agentloop_core::run::input::{Input, ModelFailure, ModelFinished};
use agentloop_core::time::Timestamp;
use futures_util::{FutureExt as _, StreamExt as _};

use crate::engine::asking::Asking;
use crate::engine::deps::Deps;
use crate::engine::feed::Feed;
use crate::engine::history::History;
use crate::engine::hooks::before_tools;
use crate::model::{ModelError, ModelRequest};

/// One model call, ready to be made.
pub(super) struct ModelCall {
    pub(super) deps: Arc<Deps>,
    pub(super) feed: Feed,
    pub(super) tenant: TenantId,
    pub(super) spec: Arc<RunSpec>,
    pub(super) model_call: u32,
    pub(super) attempt: u32,
    pub(super) system_prompt: String,
    /// Where hooks are to be asked about tool calls.
    pub(super) asking: Option<Asking>,
}

impl ModelCall {
    /// What it sends: fixed before the call is first polled.
    pub(super) fn prepare(
        self,
        history: &History,
        last_entry: EntryNo,
    ) -> impl Future<Output = Input> + Send + 'static {
        let history: Vec<_> =
            history.upto(last_entry).iter().filter_map(|entry| entry.message().cloned()).collect();
        let messages = build::messages(&history);
        async move {
            let (model_call, attempt) = (self.model_call, self.attempt);
            match self.call(messages).await {
                Ok(finished) => Input::ModelFinished(Box::new(finished)),
                Err(error) => Input::ModelFailed { model_call, attempt, failure: failure_of(error) },
            }
        }
    }

    async fn call(
        &self,
        messages: Vec<agentloop_core::message::SharedMessage>,
    ) -> Result<ModelFinished, ModelError> {
        let (model, name) = self.deps.models.resolve(&self.spec.model).map_err(|error| ModelError {
            kind: ModelErrorKind::BadRequest,
            message: error.to_string(),
            status: None,
            retry_after: None,
        })?;
        let offered = self.deps.tools.offered(&self.tenant, &self.spec);
        let mut deltas = model.stream(ModelRequest {
            model: name,
            system_prompt: self.system_prompt.clone(),
            messages,
            tools: offered.tools,
            options: self.spec.options.clone(),
            timeouts: self.spec.timeouts.clone(),
        });
        let began = self.now();
        let mut first = None;
        self.feed.begin((self.model_call, self.attempt));
        let mut held: Option<Delta> = None;
        loop {
            // What has arrived by now is shown together; nobody waits for more to come.
            let next = match held.take() {
                None => deltas.next().await,
                Some(delta) => match deltas.next().now_or_never() {
                    None => {
                        self.say(delta)?;
                        continue;
                    }
                    Some(None) => {
                        self.say(delta)?;
                        break;
                    }
                    Some(Some(next)) => match join(delta, next) {
                        (Some(before), next) => {
                            self.say(before)?;
                            Some(next)
                        }
                        (None, next) => Some(next),
                    },
                },
            };
            let Some(next) = next else { break };
            first.get_or_insert_with(|| self.now());
            held = Some(next?);
        }
        let ended = self.now();
        let assembler = self.feed.end().expect("nobody else ends what this call began");
        let done = assembler.finish().map_err(error_of)?;
        let calls: Vec<&ToolCall> = done.message.tool_calls().collect();
        let facts = self.deps.tools.facts(&self.tenant, &self.spec, &calls);
        let (facts, hooked) = match &self.asking {
            Some(asking) => before_tools(asking, &calls, facts).await,
            None => (facts, Vec::new()),
        };
        Ok(ModelFinished {
            model_call: self.model_call,
            attempt: self.attempt,
            message: Arc::new(done.message),
            finish: done.finish_reason,
            usage: done.usage,
            first_token: first.unwrap_or(ended).since(began),
            duration: ended.since(began),
            tools: offered.digest,
            facts,
            hooked,
        })
    }

    fn say(&self, delta: Delta) -> Result<(), ModelError> {
        self.feed.say(self.now(), delta).map_err(error_of)
    }

    fn now(&self) -> Timestamp {
        self.deps.clock.now()
    }
}

/// Joins two pieces of the same kind, where they are.
fn join(before: Delta, next: Result<Delta, ModelError>) -> (Option<Delta>, Result<Delta, ModelError>) {
    match (before, next) {
        (Delta::Text { text }, Ok(Delta::Text { text: more })) => {
            (None, Ok(Delta::Text { text: text + &more }))
        }
        (Delta::Reasoning { text }, Ok(Delta::Reasoning { text: more })) => {
            (None, Ok(Delta::Reasoning { text: text + &more }))
        }
        (
            Delta::ToolCallArguments { index, fragment },
            Ok(Delta::ToolCallArguments { index: same, fragment: more }),
        ) if index == same => (None, Ok(Delta::ToolCallArguments { index, fragment: fragment + &more })),
        (before, next) => (Some(before), next),
    }
}

fn error_of(error: AssembleError) -> ModelError {
    ModelError { kind: error.kind(), message: error.to_string(), status: None, retry_after: None }
}

fn failure_of(error: ModelError) -> ModelFailure {
    ModelFailure {
        kind: error.kind,
        message: error.message,
        status: error.status,
        retry_after: error.retry_after,
    }
}
