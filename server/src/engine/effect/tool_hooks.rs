//! Hooks around tool calls and after runs.

use agentloop_core::message::{Image, ToolCall, ToolResult, ToolStatus};
use agentloop_core::run::input::{CallFacts, CallOutcome, Hooked, Input};
use agentloop_core::run::state::Call;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::FuturesUnordered;

use crate::engine::effect::extensions::{Asking, HookSaid};
use crate::engine::run::table::Reply;
use crate::extension::Occasion;

/// An answer as hooks leave it, and who waits to hear that it is recorded.
pub(in crate::engine) type Judged = (Input, Reply);
/// Answers that hooks have their say about.
pub(in crate::engine) type Judging = FuturesUnordered<BoxFuture<'static, Judged>>;

/// Hooks have their say about each call that could run. What is known of a call is what is known of it with the
/// arguments that they leave it.
pub(in crate::engine) async fn before_tools(
    asking: &Asking,
    calls: &[&ToolCall],
    facts: Vec<CallFacts>,
) -> (Vec<CallFacts>, Vec<Hooked>) {
    let each = calls.iter().zip(facts).map(|(call, facts)| before_tool(asking, call, facts));
    join_all(each).await.into_iter().unzip()
}

async fn before_tool(asking: &Asking, call: &ToolCall, facts: CallFacts) -> (CallFacts, Hooked) {
    let mut hooked = Hooked::default();
    if matches!(facts, CallFacts::Rejected { .. }) {
        return (facts, hooked);
    }
    let (mut call, mut facts) = (call.clone(), facts);
    for name in asking.hooks() {
        let Some(said) = asking.hook(&name, Occasion::PreTool { call: call.clone() }).await else { continue };
        let HookSaid { mut applied, verdict, mut against, .. } = said;
        if let Some(arguments) = verdict.and_then(|verdict| verdict.arguments).filter(|_| against.is_none()) {
            let changed = ToolCall { arguments, ..call.clone() };
            match known_of(asking, &changed) {
                CallFacts::Rejected { message } => {
                    // What it wants run cannot run, and running what it did not want is worse.
                    against = Some(format!("the hook {name} changed the arguments to wrong ones: {message}"));
                    applied.error.clone_from(&against);
                }
                ready @ (CallFacts::Ready { .. } | CallFacts::AsksHuman) => {
                    hooked.arguments = Some(changed.arguments.clone());
                    (call, facts) = (changed, ready);
                }
            }
        }
        hooked.applied.push(applied);
        if let Some(message) = against {
            return (CallFacts::Rejected { message }, hooked);
        }
    }
    (facts, hooked)
}

fn known_of(asking: &Asking, call: &ToolCall) -> CallFacts {
    let facts = asking.tools.facts(&asking.run.tenant, &asking.run.state.spec, &[call]);
    let missing = || CallFacts::Rejected { message: "nothing is known of it".to_owned() };
    facts.into_iter().next().unwrap_or_else(missing)
}

/// Hooks have their say about a host's answer before it is recorded. A hook that fails changes nothing.
pub(in crate::engine) async fn after_tool(asking: Asking, call: Call, input: Input) -> Input {
    let Input::CallFinished { slot, attempt, lease, host, mut outcome, mut applied } = input else {
        return input;
    };
    let ran = ToolCall { arguments: call.arguments.clone(), ..call.wanted };
    for name in asking.hooks() {
        let occasion = Occasion::PostTool { call: ran.clone(), result: result_of(&ran, &outcome) };
        let Some(said) = asking.hook(&name, occasion).await else { continue };
        applied.push(said.applied);
        if let Some(output) = said.verdict.and_then(|verdict| verdict.output) {
            *text_of(&mut outcome) = output;
        }
    }
    Input::CallFinished { slot, attempt, lease, host, outcome, applied }
}

fn result_of(call: &ToolCall, outcome: &CallOutcome) -> ToolResult {
    let (status, output, images): (_, _, &[Image]) = match outcome {
        CallOutcome::Succeeded { output, images } => (ToolStatus::Succeeded, output, images),
        CallOutcome::Failed { message, .. } => (ToolStatus::Failed, message, &[]),
        CallOutcome::Rejected { message } => (ToolStatus::Rejected, message, &[]),
    };
    ToolResult {
        slot: call.slot,
        provider_id: call.provider_id.clone(),
        name: call.name.clone(),
        status,
        output: output.clone(),
        images: images.to_vec(),
    }
}

fn text_of(outcome: &mut CallOutcome) -> &mut String {
    match outcome {
        CallOutcome::Succeeded { output, .. } => output,
        CallOutcome::Failed { message, .. } | CallOutcome::Rejected { message } => message,
    }
}
