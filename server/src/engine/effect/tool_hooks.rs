//! Calls a run's hooks before and after tool calls.

use agentloop_core::limits::MODEL_MESSAGE_BYTES_MAX;
use agentloop_core::message::{ToolCall, ToolResult, ToolStatus};
use agentloop_core::run::input::{CallFacts, CallFinished, CallOutcome, HookedCall};
use agentloop_core::run::state::RoundCall;
use futures_util::future::join_all;

use crate::engine::effect::extensions::{HookResult, RunExtensions};
use crate::extension::Occasion;

/// Calls the `pre_tool` hooks for every call that could run. The returned facts are those of the call with the arguments
/// that the hooks leave.
pub(in crate::engine) async fn before_tools(
    extensions: &RunExtensions,
    calls: &[&ToolCall],
    facts: Vec<CallFacts>,
) -> (Vec<CallFacts>, Vec<HookedCall>) {
    let each = calls.iter().zip(facts).map(|(call, facts)| before_tool(extensions, call, facts));
    let mut judged = join_all(each).await;
    reject_beyond(MODEL_MESSAGE_BYTES_MAX, &mut judged);
    judged.into_iter().unzip()
}

/// Rejects the calls whose changed arguments do not fit with those before them. Unchanged arguments are bounded as part of
/// the model's message; changed ones stay within the same bound, so that a run's open questions can be shown together.
fn reject_beyond(bytes_max: usize, judged: &mut [(CallFacts, HookedCall)]) {
    let mut bytes = 0;
    for (facts, hooked) in judged {
        let Some(arguments) = &hooked.arguments else { continue };
        bytes += arguments.len();
        if bytes > bytes_max {
            bytes -= arguments.len();
            hooked.arguments = None;
            let message = format!(
                "the hooks changed the arguments of this message's calls to more than {bytes_max} bytes"
            );
            if let Some(last) = hooked.applied.last_mut() {
                last.error = Some(message.clone());
            }
            *facts = CallFacts::Rejected { message };
        }
    }
}

async fn before_tool(
    extensions: &RunExtensions,
    call: &ToolCall,
    facts: CallFacts,
) -> (CallFacts, HookedCall) {
    let mut hooked = HookedCall::default();
    if matches!(facts, CallFacts::Rejected { .. }) {
        return (facts, hooked);
    }
    let (mut call, mut facts) = (call.clone(), facts);
    for name in extensions.hook_names() {
        let occasion = Occasion::PreTool { call: call.clone() };
        let Some(result) = extensions.call_hook(&name, occasion).await else { continue };
        let HookResult { mut applied, verdict, mut objection, .. } = result;
        if let Some(arguments) = verdict.and_then(|verdict| verdict.arguments).filter(|_| objection.is_none())
        {
            let changed = ToolCall { arguments, ..call.clone() };
            match facts_of(extensions, &changed) {
                CallFacts::Rejected { message } => {
                    // The call is rejected: the hook did not want the original arguments to run.
                    objection =
                        Some(format!("the hook {name} changed the arguments to invalid ones: {message}"));
                    applied.error.clone_from(&objection);
                }
                ready @ (CallFacts::Ready(_) | CallFacts::AsksHuman | CallFacts::UpdatesTodos) => {
                    hooked.arguments = Some(changed.arguments.clone());
                    (call, facts) = (changed, ready);
                }
            }
        }
        hooked.applied.push(applied);
        if let Some(message) = objection {
            return (CallFacts::Rejected { message }, hooked);
        }
    }
    (facts, hooked)
}

fn facts_of(extensions: &RunExtensions, call: &ToolCall) -> CallFacts {
    let facts = extensions.tools.facts(&extensions.run.tenant, extensions.run.state.spec(), &[call]);
    let missing = || CallFacts::Rejected { message: "the tool is not known".to_owned() };
    facts.into_iter().next().unwrap_or_else(missing)
}

/// Calls the `post_tool` hooks for a result before it is recorded. They may change its text. A hook that fails changes
/// nothing.
pub(in crate::engine) async fn after_tool(
    extensions: RunExtensions,
    call: RoundCall,
    mut finished: CallFinished,
) -> CallFinished {
    finished.sent.get_or_insert_with(|| finished.outcome.digest());
    let ran = ToolCall { arguments: call.arguments.clone(), ..call.requested };
    for name in extensions.hook_names() {
        let occasion = Occasion::PostTool { call: ran.clone(), result: result_of(&ran, &finished.outcome) };
        let Some(hooked) = extensions.call_hook(&name, occasion).await else { continue };
        finished.applied.push(hooked.applied);
        if let Some(output) = hooked.verdict.and_then(|verdict| verdict.output) {
            *text_of(&mut finished.outcome) = output;
        }
    }
    finished
}

fn result_of(call: &ToolCall, outcome: &CallOutcome) -> ToolResult {
    let (status, output) = match outcome {
        CallOutcome::Succeeded { output, .. } => (ToolStatus::Succeeded, output),
        CallOutcome::Failed { message, .. } => (ToolStatus::Failed, message),
        CallOutcome::Rejected { message } => (ToolStatus::Rejected, message),
    };
    let (images, attachments) = match outcome {
        CallOutcome::Succeeded { images, attachments, .. } => (images.clone(), (**attachments).clone()),
        CallOutcome::Failed { .. } | CallOutcome::Rejected { .. } => Default::default(),
    };
    ToolResult {
        slot: call.slot,
        provider_id: call.provider_id.clone(),
        name: call.name.clone(),
        status,
        output: output.clone(),
        images,
        attachments,
    }
}

fn text_of(outcome: &mut CallOutcome) -> &mut String {
    match outcome {
        CallOutcome::Succeeded { output, .. } => output,
        CallOutcome::Failed { message, .. } | CallOutcome::Rejected { message } => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_arguments_are_bounded_together() {
        let changed = |bytes: usize| {
            let hooked =
                HookedCall { arguments: (bytes > 0).then(|| "x".repeat(bytes)), ..HookedCall::default() };
            (CallFacts::AsksHuman, hooked)
        };
        let mut judged = [6, 0, 5, 4, 1].map(changed);
        reject_beyond(10, &mut judged);
        let rejected = judged.each_ref().map(|(facts, _)| matches!(facts, CallFacts::Rejected { .. }));
        assert_eq!(rejected, [false, false, true, false, true]);
        let left = judged.map(|(_, hooked)| hooked.arguments.map_or(0, |arguments| arguments.len()));
        assert_eq!(left, [6, 0, 0, 4, 0]);
    }
}
