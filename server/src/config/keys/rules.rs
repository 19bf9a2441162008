//! `[[policy.rules]]` and `[[agents.NAME.tool_policy.rules]]`: rules that allow, ask about or deny tool calls.

use agentloop_core::limits::{POLICY_RULES_MAX, QUORUM_MAX};
use agentloop_core::policy::{Approvers, ArgumentPattern, BadRule, PolicyAction, PolicyRule, RuleOrigin};

use crate::auth::{Authentication, approver_problem};
use crate::config::section::Section;

/// Reads rules in the order of the file. Without authentication, rules that name approvers are a problem.
pub(in crate::config) fn rules(
    section: &mut Section<'_, '_>,
    authentication: Authentication,
) -> Vec<PolicyRule> {
    section.each_in_list("rules", POLICY_RULES_MAX, |section| rule(section, authentication))
}

fn rule(section: &mut Section<'_, '_>, authentication: Authentication) -> Option<PolicyRule> {
    let actions = [("allow", PolicyAction::Allow), ("ask", PolicyAction::Ask), ("deny", PolicyAction::Deny)];
    let action = section.get_choice("action", None, &actions);
    if !section.is_set("action") {
        section.problem(&["action"], "expected action = \"allow\", \"ask\" or \"deny\"".to_owned());
    }
    let name = section.get("name").unwrap_or_default();
    let tool = section.get("tool").unwrap_or_default();
    let arguments = section.get_texts("arguments");
    let arguments =
        arguments.into_iter().map(|(pointer, pattern)| ArgumentPattern { pointer, pattern }).collect();
    let approvers = approvers(section, authentication);
    let (origin, action) = (RuleOrigin::Agent, action?);
    let rule = PolicyRule { name, action, tool, arguments, origin, terms: None, approvers, made_under: None };
    match rule.check() {
        Ok(()) => Some(rule),
        Err(problem) => {
            let keys: &[&'static str] = match problem {
                BadRule::Approvers(_) => &["approvers", "quorum", "forbid_requester"],
                _ => &["arguments", "tool", "name"],
            };
            section.problem(keys, problem.to_string());
            None
        }
    }
}

/// The people who may answer the question that a rule asks. Without authentication nobody could approve, and no such call
/// would run.
fn approvers(section: &mut Section<'_, '_>, authentication: Authentication) -> Approvers {
    let approvers = Approvers {
        any_of: section
            .get_list("approvers", |entry| approver_problem(entry).map_or(Ok(()), Err))
            .unwrap_or_default(),
        forbid_requester: section.get_or("forbid_requester", false),
        quorum: section.get_within("quorum", 1, 1..=QUORUM_MAX),
    };
    if !approvers.is_anyone() && !authentication.is_required() {
        let message = "expected [auth]: without authentication nobody could approve";
        section.problem(&["approvers", "forbid_requester", "quorum"], message.to_owned());
    }
    approvers
}
