//! The model keeps a to-do list by a tool that no host runs.

use agentloop_core::agent::RunSpec;
use agentloop_core::id::EntryNo;
use agentloop_core::message::ToolStatus;
use agentloop_core::policy::{Approvers, PolicyAction, PolicyRule, RuleOrigin};
use agentloop_core::run::effect::Effect;
use agentloop_core::run::event::Event;
use agentloop_core::run::status::RunStatus;

use crate::support::*;

#[test]
fn a_list_is_written_at_once_and_the_model_goes_on() {
    let mut script = given(spec());
    let transition = script.asks([todos(&["book", "pack"])]);
    assert_eq!(
        kinds(&transition.records),
        "assistant_message call_proposed todos_updated call_settled model_call_started"
    );
    assert!(
        !transition.effects.iter().any(|effect| matches!(effect, Effect::SeekHost { .. })),
        "no host is sought"
    );
    let Event::TodosUpdated { slot, result, items } = &transition.records[2].event else {
        panic!("{transition:?}")
    };
    let contents: Vec<&str> = items.iter().map(|item| item.content.as_str()).collect();
    assert_eq!((*slot, contents), (A, vec!["book", "pack"]));
    let Event::CallSettled { entry, .. } = &transition.records[3].event else { panic!("{transition:?}") };
    assert_eq!((entry, *result), (result, EntryNo(3)));
    let told = (ToolStatus::Succeeded, "The list has 2 items, 2 of them open.".to_owned());
    assert_eq!(script.result(A), told);
    assert_eq!(script.status(), RunStatus::ModelRunning);
}

#[test]
fn it_is_written_beside_calls_that_a_host_runs() {
    let mut script = given(spec());
    let transition = script.asks([tool("weather"), todos(&["pack"])]);
    assert!(kinds(&transition.records).contains("todos_updated"));
    assert_eq!(script.status(), RunStatus::ToolRunning, "the other call is still to be made");
    assert_eq!(script.result(B).0, ToolStatus::Succeeded);
}

#[test]
fn a_rule_may_deny_it() {
    let rule = PolicyRule {
        name: String::new(),
        action: PolicyAction::Deny,
        tool: "update_*".to_owned(),
        arguments: Vec::new(),
        origin: RuleOrigin::Agent,
        terms: None,
        approvers: Approvers::default(),
        made_under: None,
    };
    let mut denied: RunSpec = spec();
    denied.tool_policy.rules.push(rule);
    let mut script = given(denied);
    let transition = script.asks([todos(&["pack"])]);
    assert!(!kinds(&transition.records).contains("todos_updated"), "{}", kinds(&transition.records));
    assert_eq!(script.result(A).0, ToolStatus::Rejected);
}

#[test]
fn an_approval_is_not_asked() {
    let mut asks = spec();
    asks.tool_policy.require_approval_by_default = true;
    let transition = given(asks).asks([todos(&[])]);
    assert!(
        kinds(&transition.records).contains("todos_updated call_settled"),
        "{}",
        kinds(&transition.records)
    );
}
