//! What the run's rules say about its tool calls.

use crate::id::CallSlot;
use crate::message::ToolStatus;
use crate::policy::{PolicyAction, PolicyRule};
use crate::run::machine::Turn;
use crate::run::state::{Call, CallState, State};
use crate::run::transition::tool;

/// What becomes of a call before it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ruling {
    /// It runs.
    Run,
    /// A human is asked.
    Ask,
    /// It does not run, by this rule.
    Deny(PolicyRule),
}

/// What becomes of a call: by the rules, else by its tool's declaration and the policy's default.
pub(crate) fn ruling(state: &State, name: &str, arguments: &str, requires_approval: bool) -> Ruling {
    match state.rule_for(name, arguments) {
        Some(rule) => match rule.action {
            PolicyAction::Allow => Ruling::Run,
            PolicyAction::Ask => Ruling::Ask,
            PolicyAction::Deny => Ruling::Deny(rule.clone()),
        },
        None if requires_approval || state.spec.tool_policy.require_approval_by_default => Ruling::Ask,
        None => Ruling::Run,
    }
}

/// The rule that denies a call, if one does.
pub(crate) fn denial<'s>(state: &'s State, name: &str, arguments: &str) -> Option<&'s PolicyRule> {
    state.rule_for(name, arguments).filter(|rule| rule.action == PolicyAction::Deny)
}

/// A deny was remembered: calls that were taken up before it and that no host was given do not run, if it is about them.
pub(crate) fn refuse_waiting(turn: &mut Turn<'_>) {
    let denied: Vec<(CallSlot, PolicyRule)> = turn
        .state
        .round()
        .iter()
        .filter(|call| waits(turn.state, call))
        .filter_map(|call| Some((call.slot, denial(turn.state, &call.wanted.name, &call.arguments)?.clone())))
        .collect();
    for (slot, rule) in denied {
        refuse(turn, slot, &rule);
    }
}

/// Whether no host was given it, and no human let it run by itself: leave that came with a remembered rule is that
/// rule's, and a deny is stronger.
fn waits(state: &State, call: &Call) -> bool {
    let unoffered =
        call.attempt == 0 && matches!(call.state, CallState::Ready { .. } | CallState::Held { .. });
    let asked = state.questions.get(&state.call_id(call.slot).request(0));
    let answer = asked.and_then(|asked| asked.answer.as_ref());
    unoffered && answer.is_none_or(|answer| answer.followed.is_some())
}

/// The call does not run. What a human said once counts as said again; any other rule is a limit of the policy.
pub(crate) fn refuse(turn: &mut Turn<'_>, slot: CallSlot, rule: &PolicyRule) {
    let title = rule.title();
    let (status, output) = if rule.origin.is_remembered() {
        (ToolStatus::Denied, format!("denied by a human, for calls like this one: {title}"))
    } else {
        (ToolStatus::Rejected, format!("not run: {title} denies it, and will deny it again"))
    };
    tool::settle(turn, slot, None, status, output, Vec::new());
}
