//! The decision of the run's rules about a tool call.

use crate::id::{Attempt, CallSlot};
use crate::message::ToolStatus;
use crate::policy::{PolicyAction, PolicyCall, PolicyRule};
use crate::run::state::{CallState, RoundCall, RunState};
use crate::run::transition::builder::TransitionBuilder;
use crate::run::transition::routine::calls;

/// Decision of the rules about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::run::transition) enum Ruling {
    /// The call runs without a question.
    Run,
    /// A person is asked first.
    Ask,
    /// The call does not run, by this rule.
    Deny(PolicyRule),
}

/// Decides about a call: by the rules, else by its tool's declaration and the policy's default.
pub(in crate::run::transition) fn ruling(
    state: &RunState,
    call: &PolicyCall,
    requires_approval: bool,
) -> Ruling {
    match state.rule_for(call) {
        Some(rule) => match rule.action {
            PolicyAction::Allow => Ruling::Run,
            PolicyAction::Ask => Ruling::Ask,
            PolicyAction::Deny => Ruling::Deny(rule.clone()),
        },
        None if requires_approval || state.spec().tool_policy.require_approval_by_default => Ruling::Ask,
        None => Ruling::Run,
    }
}

/// The rule that denies a call, if one does.
pub(in crate::run::transition) fn denial<'s>(
    state: &'s RunState,
    name: &str,
    arguments: &str,
) -> Option<&'s PolicyRule> {
    state.rule_for(&PolicyCall::new(name, arguments)).filter(|rule| rule.action == PolicyAction::Deny)
}

/// After a deny was remembered: settles the calls that it matches and that no host was offered yet.
pub(in crate::run::transition) fn refuse_waiting(builder: &mut TransitionBuilder<'_>) {
    let state = builder.state();
    let waiting = state.round().iter().filter(|call| may_be_refused(state, call));
    let denied: Vec<(CallSlot, PolicyRule)> = waiting
        .filter_map(|call| Some((call.slot, denial(state, &call.requested.name, &call.arguments)?.clone())))
        .collect();
    for (slot, rule) in denied {
        refuse(builder, slot, &rule);
    }
}

/// True if no host was offered the call, and no person approved this very call. A call that was offered may be half done,
/// and goes on. An approval that followed a remembered rule is that rule's, and a deny is stronger than the rule.
fn may_be_refused(state: &RunState, call: &RoundCall) -> bool {
    let waits = matches!(call.state, CallState::Ready { .. } | CallState::AwaitingInstruction { .. });
    let by_human = || {
        state.questions().values().any(|asked| {
            asked.question.slot == Some(call.slot)
                && asked.answer.as_ref().is_some_and(|answer| answer.followed.is_none())
        })
    };
    call.attempt == Attempt::NONE && waits && !by_human()
}

/// Settles a call that a rule denies. The model reads whether a person or the policy is behind the rule.
pub(in crate::run::transition) fn refuse(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    rule: &PolicyRule,
) {
    let title = rule.title();
    let (status, output) = if rule.origin.is_remembered() {
        (ToolStatus::Denied, format!("denied by a human, for calls like this one: {title}"))
    } else {
        (ToolStatus::Rejected, format!("not run: {title} denies it, and will deny it again"))
    };
    calls::settle(builder, slot, status, output);
}
