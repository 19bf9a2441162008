//! Calls a run's planner for the next instruction.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use agentloop_core::id::TenantId;
use agentloop_core::message::{SharedMessage, ToolCall};
use agentloop_core::run::human::Answer;
use agentloop_core::run::input::{Input, PlanFailure};
use agentloop_core::run::plan::{Instruction, Situation};
use agentloop_core::run::state::{CallState, RunState};
use futures_util::FutureExt as _;

use crate::engine::deps::Deps;
use crate::engine::run::task::RunTask;
use crate::extension::{ExtensionError, PlanView, Planner, RunContext};

/// The most messages that a planner is shown: the last ones of the conversation.
const MESSAGES_MAX: usize = 200;
/// The most bytes of messages that a planner is shown.
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// Attempts for one decision. The second one is made only if it may help.
const ATTEMPTS: u32 = 2;

/// A request to the planner. Its contents do not change from attempt to attempt.
struct PlannerCall {
    deps: Arc<Deps>,
    tenant: TenantId,
    state: Arc<RunState>,
    decision: u32,
    situation: Situation,
    messages: Vec<SharedMessage>,
}

impl RunTask {
    /// Calls the run's planner. The returned future holds a copy of the state: later changes of the run are not in it.
    pub(in crate::engine) fn call_planner(
        &self,
        decision: u32,
        situation: Situation,
    ) -> impl Future<Output = Input> + Send + 'static {
        let state = self.machine.state();
        let call = PlannerCall {
            deps: self.deps.clone(),
            tenant: self.permit.key().tenant.clone(),
            state: Arc::new(state.clone()),
            decision,
            situation,
            messages: last_that_fit(self.history.view()),
        };
        async move {
            let result = call.decide().await;
            let result = result.map_err(|error| PlanFailure { message: error.to_string() });
            Input::Planned { decision, result }
        }
    }
}

impl PlannerCall {
    async fn decide(&self) -> Result<Instruction, ExtensionError> {
        let name = self.state.spec().planner.as_deref().unwrap_or_default();
        let mut tried = 0;
        loop {
            tried += 1;
            let planner = self.deps.extensions.planner(&self.tenant, name).await?;
            match self.plan(&*planner).await {
                Err(error) if error.is_retryable_by_run() && tried < ATTEMPTS => {
                    tracing::info!(planner = name, decision = self.decision, %error, "a planner failed; calling it again");
                }
                result => return result,
            }
        }
    }

    async fn plan(&self, planner: &dyn Planner) -> Result<Instruction, ExtensionError> {
        let timeout = planner.timeout();
        let response = AssertUnwindSafe(planner.plan(self.view(timeout))).catch_unwind();
        match tokio::time::timeout(timeout.duration(), response).await {
            Err(_) => Err(ExtensionError::Timeout),
            Ok(Err(_)) => Err(ExtensionError::Failed {
                message: "it panicked; the server's log has the details".to_owned(),
                retryable: false,
            }),
            Ok(Ok(result)) => result,
        }
    }

    fn view(&self, timeout: agentloop_core::time::Millis) -> PlanView {
        PlanView {
            run: RunContext { tenant: self.tenant.clone(), state: self.state.clone() },
            deadline: self.deps.clock.now().after(timeout),
            decision: self.decision,
            situation: self.situation.clone(),
            messages: self.messages.clone(),
            calls: calls_awaiting_instruction(&self.state),
            answer: last_answer(&self.state),
        }
    }
}

/// The human's answer to the planner's last question. Questions about tool calls have a slot, those of planners none.
fn last_answer(state: &RunState) -> Option<Answer> {
    let planned = state.questions().values().filter(|asked| asked.question.slot.is_none());
    planned.max_by_key(|asked| asked.question.asked_at).and_then(|asked| asked.answer.clone())
}

fn calls_awaiting_instruction(state: &RunState) -> Vec<ToolCall> {
    let waiting =
        state.round().iter().filter(|call| matches!(call.state, CallState::AwaitingInstruction { .. }));
    waiting.map(|call| call.requested.clone()).collect()
}

/// The last messages that fit into the bounds.
fn last_that_fit(messages: &[SharedMessage]) -> Vec<SharedMessage> {
    let mut bytes = 0;
    let fits = |message: &&SharedMessage| {
        bytes += message.size();
        bytes <= MESSAGE_BYTES_MAX
    };
    let last = messages.iter().rev().take(MESSAGES_MAX).take_while(fits).count();
    messages[messages.len() - last..].to_vec()
}

#[cfg(test)]
mod tests {
    use agentloop_core::message::{Message, Role};

    use super::*;

    fn user(text: &str) -> SharedMessage {
        Arc::new(Message::text(Role::User, text))
    }

    #[test]
    fn of_a_long_conversation_the_end_is_shown() {
        let messages: Vec<_> = (0..300).map(|at| user(&at.to_string())).collect();
        let shown = last_that_fit(&messages);
        assert_eq!(shown, messages[100..]);
        let long = user(&"x".repeat(MESSAGE_BYTES_MAX));
        assert_eq!(last_that_fit(&[user("first"), long, user("last")]), [user("last")]);
        assert_eq!(last_that_fit(&[]), []);
    }
}
