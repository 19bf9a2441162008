//! Takes sensitive arguments out of what is shown. [`Masks`] says which they are.

use agentloop_core::agent::ToolPolicy;
use agentloop_core::policy::RuleOrigin;
use agentloop_core::tool::Digest;
use agentloop_proto::v1 as wire;
use tonic::Status;
use wire::part::Content;
use wire::run_event::Event;

use crate::grpc::status::Violations;
use crate::mask::{MASK, Masks};

/// A request to a human.
pub fn request(masks: &Masks, request: &mut wire::HumanRequest) {
    if let Some(shown) = masks.mask(&request.tool, &request.arguments_json) {
        request.arguments_json = shown;
        request.digest = shown_digest(request).to_string();
        // It would name the values.
        request.suggested_rule = None;
    }
    let Some(answer) = &mut request.answer else { return };
    rules(masks, answer);
    // Edits may have values that the call did not have.
    if let Some(edits) = edits_of(answer)
        && let Some(shown) = masks.mask(&request.tool, &edits.arguments_json)
    {
        edits.arguments_json = shown;
    }
}

/// The digest of a question with masked arguments. With a digest of the true ones, people could try all values, such as the numbers
/// of a card. The time and the id make it differ from that of another question.
fn shown_digest(request: &wire::HumanRequest) -> Digest {
    let at = request.created_at.unwrap_or_default();
    Digest::of(&[
        request.request_id.as_bytes(),
        request.tool.as_bytes(),
        request.arguments_json.as_bytes(),
        &at.seconds.to_le_bytes(),
        &at.nanos.to_le_bytes(),
    ])
}

/// The rules of an answer.
fn rules(masks: &Masks, answer: &mut wire::HumanAnswer) {
    for rule in [&mut answer.remembered_rule, &mut answer.applied_rule] {
        rule.iter_mut().for_each(|one| self::rule(masks, one));
    }
}

/// A message of a conversation.
pub fn message(masks: &Masks, message: &mut wire::Message) {
    for part in &mut message.parts {
        match &mut part.content {
            Some(Content::ToolCall(call)) => {
                if let Some(shown) = masks.mask(&call.name, &call.arguments_json) {
                    call.arguments_json = shown;
                }
            }
            Some(Content::ToolResult(result)) => tool_result(masks, result),
            Some(_) | None => {}
        }
    }
}

fn tool_result(masks: &Masks, result: &mut wire::ToolResult) {
    if let Some(shown) = masks.mask_result(&result.name, &result.output) {
        result.output = shown;
    }
}

/// An event of a run.
pub fn event(masks: &Masks, event: &mut wire::RunEvent) {
    if masks.is_empty() {
        return;
    }
    let shown = match &mut event.event {
        Some(Event::HumanRequested(asked)) => {
            return asked.request.iter_mut().for_each(|one| request(masks, one));
        }
        Some(Event::HumanResolved(resolved)) => {
            // The event does not name the tool, so the edits are masked as a whole.
            let Some(answer) = &mut resolved.answer else { return };
            rules(masks, answer);
            if let Some(edits) = edits_of(answer) {
                edits.arguments_json = format!("\"{MASK}\"");
            }
            return;
        }
        Some(Event::ModelDelta(delta)) => {
            // A piece does not say what it is a piece of.
            if let Some(wire::model_delta::Delta::ToolCall(call)) = &mut delta.delta {
                call.arguments_fragment.clear();
            }
            return;
        }
        Some(Event::ToolCallResult(done)) => {
            return done.result.iter_mut().for_each(|result| tool_result(masks, result));
        }
        Some(Event::AssistantMessage(said)) => &mut said.message,
        Some(Event::InputMessage(input)) => &mut input.message,
        Some(Event::PartialMessage(so_far)) => &mut so_far.message,
        Some(Event::ContextAdded(added)) => &mut added.message,
        _ => return,
    };
    shown.iter_mut().for_each(|shown| message(masks, shown));
}

fn edits_of(answer: &mut wire::HumanAnswer) -> Option<&mut wire::ApproveWithEdits> {
    match answer.decision.as_mut()?.decision.as_mut()? {
        wire::decision::Decision::ApproveWithEdits(edits) => Some(edits),
        _ => None,
    }
}

/// A run with what it waits for.
pub fn run(masks: &Masks, run: &mut wire::Run) {
    run.pending.iter_mut().for_each(|one| request(masks, one));
    run.final_assistant_message.iter_mut().for_each(|last| message(masks, last));
}

/// The result of a run.
pub fn result(masks: &Masks, result: &mut wire::RunResult) {
    result.pending.iter_mut().for_each(|one| request(masks, one));
    result.final_assistant_message.iter_mut().for_each(|last| message(masks, last));
}

/// An entry of a session.
pub fn entry(masks: &Masks, entry: &mut wire::Entry) {
    entry.message.iter_mut().for_each(|one| message(masks, one));
}

/// A remembered rule, whose patterns may be values.
pub fn rule(masks: &Masks, rule: &mut wire::PolicyRule) {
    let tool = std::mem::take(&mut rule.tool);
    for pattern in rule.arguments.iter_mut().filter(|pattern| masks.covers_any(&tool, &pattern.pointer)) {
        MASK.clone_into(&mut pattern.pattern);
    }
    rule.tool = tool;
}

/// Checks that no rule of a request looks at a sensitive argument: the calls that it denies would reveal the value. `field` is the
/// path of the rules in the request.
///
/// # Errors
/// INVALID_ARGUMENT with every violation.
pub fn check_rules(field: &str, masks: &Masks, policy: &ToolPolicy) -> Result<(), Status> {
    let mut bad = Violations::default();
    let given = policy.rules.iter().filter(|rule| rule.origin == RuleOrigin::Request);
    for (index, rule) in given.enumerate() {
        if let Some((at, tool)) = masks.seen_by(rule) {
            bad.add(
                format!("{field}[{index}].arguments[{at}].pointer"),
                format!(
                    "is about a sensitive argument of {tool}, which only the configuration's rules look at"
                ),
            );
        }
    }
    bad.check()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_masked_if_only_they_have_the_value() {
        let masks = Masks::new([("pay".to_owned(), vec!["/password".to_owned()])].into());
        let edits = wire::ApproveWithEdits { arguments_json: r#"{"password":"hidden"}"#.to_owned() };
        let pattern = wire::ArgumentPattern { pointer: "/password".to_owned(), pattern: "hidden".to_owned() };
        let rule =
            wire::PolicyRule { tool: "pay".to_owned(), arguments: vec![pattern], ..Default::default() };
        let decision = wire::decision::Decision::ApproveWithEdits(edits);
        let answer = wire::HumanAnswer {
            decision: Some(wire::Decision { decision: Some(decision) }),
            applied_rule: Some(rule),
            ..Default::default()
        };
        let mut shown = wire::HumanRequest {
            tool: "pay".to_owned(),
            arguments_json: "{}".to_owned(),
            answer: Some(answer),
            ..Default::default()
        };
        request(&masks, &mut shown);
        let shown = format!("{shown:?}");
        assert!(!shown.contains("hidden"), "{shown}");
        assert_eq!(shown.matches(MASK).count(), 2, "{shown}");
    }
}
