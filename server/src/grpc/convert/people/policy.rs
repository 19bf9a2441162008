//! Conversion of policy rules, with their actions and origins.

use agentloop_core::agent::RunSpec;
use agentloop_core::limits::POLICY_RULES_MAX;
use agentloop_core::policy::{Approvers, ArgumentPattern, PolicyAction, PolicyRule, RuleOrigin};
use agentloop_proto::v1 as wire;
use tonic::Status;

use crate::auth::approver_problem;
use crate::grpc::status::Violations;

/// A rule of the core as one of the contract.
#[must_use]
pub(crate) fn rule(rule: &PolicyRule) -> wire::PolicyRule {
    let pattern = |argument: &ArgumentPattern| wire::ArgumentPattern {
        pointer: argument.pointer.clone(),
        pattern: argument.pattern.clone(),
    };
    wire::PolicyRule {
        name: rule.name.clone(),
        action: action(rule.action).into(),
        tool: rule.tool.clone(),
        arguments: rule.arguments.iter().map(pattern).collect(),
        approvers: rule.approvers.any_of.clone(),
        forbid_requester: rule.approvers.forbid_requester,
        quorum: rule.approvers.quorum,
    }
}

/// Refuses rules of an unauthenticated caller's request that name approvers: without authentication nobody could approve.
///
/// # Errors
/// INVALID_ARGUMENT, which names the first such rule.
pub(crate) fn check_approvers(field: &str, caller: Option<&str>, spec: &RunSpec) -> Result<(), Status> {
    let of_request = spec.tool_policy.rules.iter().filter(|rule| rule.origin == RuleOrigin::Request);
    let at = of_request.map(|rule| rule.approvers.is_anyone()).position(|is_anyone| !is_anyone);
    match at {
        Some(at) if caller.is_none() => {
            let problem = "approvers, forbid_requester and quorum need [auth]: without authentication nobody could approve";
            Err(Violations::single(format!("{field}[{at}].approvers"), problem))
        }
        Some(_) | None => Ok(()),
    }
}

/// Converts the action of a rule.
#[must_use]
pub(crate) fn action(action: PolicyAction) -> wire::PolicyAction {
    match action {
        PolicyAction::Allow => wire::PolicyAction::Allow,
        PolicyAction::Ask => wire::PolicyAction::Ask,
        PolicyAction::Deny => wire::PolicyAction::Deny,
    }
}

/// Converts the origin of a rule.
#[must_use]
pub(crate) fn origin(origin: RuleOrigin) -> wire::RuleOrigin {
    match origin {
        RuleOrigin::Agent => wire::RuleOrigin::Agent,
        RuleOrigin::Request => wire::RuleOrigin::Request,
        RuleOrigin::Run => wire::RuleOrigin::Run,
        RuleOrigin::Session => wire::RuleOrigin::Session,
        RuleOrigin::Remembered => wire::RuleOrigin::Rule,
        RuleOrigin::Candidate => wire::RuleOrigin::Candidate,
    }
}

/// Parses the rules of a request.
pub(crate) fn rules(field: &str, rules: wire::PolicyRules, bad: &mut Violations) -> Vec<PolicyRule> {
    if rules.rules.len() > POLICY_RULES_MAX {
        bad.add(field, format!("must be at most {POLICY_RULES_MAX}"));
        return Vec::new();
    }
    let rules = rules.rules.into_iter().enumerate();
    rules
        .filter_map(|(at, rule)| rule_from(&format!("{field}[{at}]"), rule, RuleOrigin::Request, bad))
        .collect()
}

/// Parses and checks one rule.
pub(crate) fn rule_from(
    field: &str,
    rule: wire::PolicyRule,
    origin: RuleOrigin,
    bad: &mut Violations,
) -> Option<PolicyRule> {
    let Some(action) = action_from(rule.action()) else {
        bad.add(format!("{field}.action"), "must be ALLOW, ASK or DENY");
        return None;
    };
    let rule = with_action(rule, action, origin);
    let named = rule.approvers.any_of.iter().enumerate();
    let unclear = named.filter_map(|(at, entry)| Some((at, approver_problem(entry)?))).next();
    match rule.check() {
        Ok(()) => match unclear {
            None => Some(rule),
            Some((at, problem)) => {
                bad.add(format!("{field}.approvers[{at}]"), problem);
                None
            }
        },
        Err(problem) => {
            let problem = problem.to_string();
            let (part, problem) = problem.split_once(": ").unwrap_or(("", &problem));
            bad.add(format!("{field}.{part}"), problem);
            None
        }
    }
}

/// Converts a rule whose action the caller supplies. The rule is not checked.
#[must_use]
pub(crate) fn with_action(rule: wire::PolicyRule, action: PolicyAction, origin: RuleOrigin) -> PolicyRule {
    let pattern = |argument: wire::ArgumentPattern| ArgumentPattern {
        pointer: argument.pointer,
        pattern: argument.pattern,
    };
    let arguments = rule.arguments.into_iter().map(pattern).collect();
    let approvers =
        Approvers { any_of: rule.approvers, forbid_requester: rule.forbid_requester, quorum: rule.quorum };
    let (name, tool) = (rule.name, rule.tool);
    PolicyRule { name, action, tool, arguments, origin, terms: None, approvers, made_under: None }
}

fn action_from(action: wire::PolicyAction) -> Option<PolicyAction> {
    match action {
        wire::PolicyAction::Allow => Some(PolicyAction::Allow),
        wire::PolicyAction::Ask => Some(PolicyAction::Ask),
        wire::PolicyAction::Deny => Some(PolicyAction::Deny),
        wire::PolicyAction::Unspecified => None,
    }
}
