//! Results of tool calls as they arrive: hooks see them, their typed output is checked, and their blobs are kept.

use agentloop_core::run::event::Ran;
use agentloop_core::run::input::{CallFinished, CallOutcome, Input};
use agentloop_core::run::state::RoundCall;
use agentloop_core::time::Millis;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

use crate::engine::blobs::claim;
use crate::engine::effect::tool_hooks::after_tool;
use crate::engine::run::table::InputReplySender;
use crate::engine::run::task::{RunTask, TaskEnd};
use crate::store::StoreError;
use crate::tool::BadOutput;

/// A tool call's result after the hooks, and the reply that its host waits for.
pub(in crate::engine) struct HookedResult {
    pub(in crate::engine) input: Input,
    pub(in crate::engine) reply: InputReplySender,
}

/// The results of a run's tool calls that hooks are looking at.
pub(in crate::engine) type RunningHooks = FuturesUnordered<BoxFuture<'static, HookedResult>>;

impl RunTask {
    /// Handles an input, after hooks have seen it if it is a result that they are to see.
    pub(super) async fn handle_or_hook(
        &mut self,
        input: Input,
        reply: InputReplySender,
    ) -> Result<Option<TaskEnd>, StoreError> {
        let call = match &input {
            Input::CallFinished(finished) => self.call_for_hooks(finished),
            _ => None,
        };
        match (input, call) {
            (Input::CallFinished(finished), Some(call)) => {
                let extensions = self.extensions();
                let hooked = async move {
                    let finished = after_tool(extensions, call, *finished).await;
                    HookedResult { input: Input::CallFinished(Box::new(finished)), reply }
                };
                self.running.hooks.push(Box::pin(hooked));
                Ok(None)
            }
            (input, _) => self.handle_input(input, Some(reply)).await,
        }
    }

    /// The call whose result `post_tool` hooks are to see before it is recorded. `None` if the run has no hooks, or if
    /// the machine will refuse the result: a wrong lease, another attempt, a settled call.
    fn call_for_hooks(&self, finished: &CallFinished) -> Option<RoundCall> {
        let state = self.machine.state();
        let CallFinished { slot, attempt, lease, .. } = finished;
        if state.spec().hooks.is_empty() || state.lease(*slot, *attempt) != *lease {
            return None;
        }
        state.call(*slot).filter(|call| !call.is_settled() && call.attempt == *attempt).cloned()
    }

    /// The input as it is to be handled: a result with its typed output checked and its blobs kept.
    pub(super) async fn with_checked_result(&mut self, input: Input) -> Result<Input, StoreError> {
        let Input::CallFinished(finished) = input else { return Ok(input) };
        let finished = self.with_checked_output(*finished);
        Ok(Input::CallFinished(Box::new(self.with_blobs(finished).await?)))
    }

    /// A result whose typed output does not follow the schema that its host declared is a failure: nobody may rely on it. If
    /// nobody knows any more what the host declared, the call keeps its output as a text.
    fn with_checked_output(&self, finished: CallFinished) -> CallFinished {
        let checked = match (&finished.outcome, self.machine.state().call(finished.slot)) {
            (CallOutcome::Succeeded { attachments, .. }, Some(call)) => {
                let declared = call.last.output_schema.as_ref().filter(|_| call.attempt == finished.attempt);
                let check = |structured: &String| {
                    self.deps.tools.check_output(self.tenant(), &call.requested.name, declared, structured)
                };
                attachments.structured.as_ref().map_or(Ok(()), check)
            }
            (CallOutcome::Succeeded { .. }, None)
            | (CallOutcome::Failed { .. } | CallOutcome::Rejected { .. }, _) => Ok(()),
        };
        let Err(bad) = checked else { return finished };
        let sent = finished.sent.or_else(|| Some(finished.outcome.digest()));
        let outcome = match bad {
            BadOutput::BreaksSchema(fault) => CallOutcome::Failed {
                message: format!("the tool ran, but its structured output is wrong: {fault}"),
                retryable: false,
                delay: Millis(0),
                ran: Ran::Yes,
            },
            BadOutput::FitsNone(fault) => untyped(finished.outcome, &fault),
        };
        CallFinished { outcome, sent, ..finished }
    }

    /// A result that names blobs keeps them from here on. One that names a blob which is not there is a failure.
    async fn with_blobs(&mut self, finished: CallFinished) -> Result<CallFinished, StoreError> {
        let (outcome, sent) = match finished.outcome {
            CallOutcome::Succeeded { output, images, attachments }
                if attachments.blobs().next().is_some() =>
            {
                let mut found = attachments.clone();
                let store = &*self.deps.store;
                let claimed = claim(store, self.tenant(), None, &mut found, self.deps.clock.now()).await?;
                let original =
                    CallOutcome::Succeeded { output: output.clone(), images: images.clone(), attachments };
                let outcome = match claimed {
                    Ok(()) => CallOutcome::Succeeded { output, images, attachments: found },
                    Err(bad) => CallOutcome::Failed {
                        message: format!("the tool ran, but {bad}"),
                        retryable: false,
                        delay: Millis(0),
                        ran: Ran::Yes,
                    },
                };
                (outcome, finished.sent.or_else(|| Some(original.digest())))
            }
            outcome => (outcome, finished.sent),
        };
        Ok(CallFinished { outcome, sent, ..finished })
    }
}

/// A result without its typed output, which has this fault. The model reads both; a program is not given the value.
fn untyped(outcome: CallOutcome, fault: &str) -> CallOutcome {
    let CallOutcome::Succeeded { output, images, mut attachments } = outcome else { return outcome };
    let structured = attachments.structured.take().unwrap_or_default();
    let text = if output.is_empty() { structured } else { output };
    let output = format!(
        "{text}\n\n(The result has no structured output: the tool was declared anew while the call ran, and {fault}.)"
    );
    CallOutcome::Succeeded { output, images, attachments }
}
