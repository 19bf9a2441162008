//! `[[agents.NAME.tool_policy.rules]]`: rules that allow, ask about or deny tool calls.

use agentloop_core::limits::POLICY_RULES_MAX;
use agentloop_core::policy::{ArgumentPattern, PolicyAction, PolicyRule, RuleOrigin};

use super::section::Section;

/// Reads an agent's rules in the order of the file.
pub(super) fn rules(section: &mut Section<'_, '_>) -> Vec<PolicyRule> {
    section.each_in_list("rules", POLICY_RULES_MAX, rule)
}

fn rule(section: &mut Section<'_, '_>) -> Option<PolicyRule> {
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
    let rule = PolicyRule { name, action: action?, tool, arguments, origin: RuleOrigin::Agent, terms: None };
    match rule.check() {
        Ok(()) => Some(rule),
        Err(problem) => {
            section.problem(&["arguments", "tool", "name"], problem.to_string());
            None
        }
    }
}
