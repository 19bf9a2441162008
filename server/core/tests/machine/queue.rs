//! Runs that wait for their session.

use agentloop_core::id::{Attempt, EntryNo};
use agentloop_core::message::ToolStatus;
use agentloop_core::policy::{Approvers, PolicyAction, PolicyRule, RuleOrigin};
use agentloop_core::run::effect::Effect;
use agentloop_core::run::event::Event;
use agentloop_core::run::human::RememberScope;
use agentloop_core::run::input::{AbortCause, Input};
use agentloop_core::run::machine::Transition;
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::status::RunStatus;
use agentloop_core::run::view::WaitKind;
use agentloop_core::time::Millis;

use crate::support::*;

fn queued(spec: agentloop_core::agent::RunSpec) -> Script {
    let mut script = unstarted();
    script.does(start_queued(spec));
    script
}

#[test]
fn a_queued_run_asks_for_nothing_and_waits_for_its_session() {
    let mut script = unstarted();
    let transition = script.does(start_queued(spec()));
    assert_eq!(kinds(&transition.records), "started input_held");
    assert_eq!(transition.effects, []);
    assert_eq!((script.status(), script.machine.deadline()), (RunStatus::Queued, None));
    let waiting = script.state().waiting_on().expect("it waits");
    assert_eq!((waiting.kind, waiting.since, waiting.what), (WaitKind::Session, T0, "session-1".to_owned()));
    assert_eq!(history(&script.journal), [], "nothing of it is in the session");
    assert_eq!(script.restarts(), Transition::default());
}

/// The entries that others added meanwhile are not known to this journal, so the watch is left out.
#[test]
fn it_enters_after_what_others_left_there() {
    let mut machine = queued(spec()).machine;
    let transition = machine.handle(enter_after(41, Vec::new()), T0).expect("taken");
    assert_eq!(kinds(&transition.records), "session_entered input_entered model_call_started");
    let Event::MessageEntered { entry, held } = transition.records[1].event else { panic!("the message") };
    assert_eq!((entry, held.0), (EntryNo(42), 2));
    let call =
        Effect::CallModel { model_call: 1, attempt: Attempt(1), last_entry: EntryNo(42), checked: true };
    assert_eq!(transition.effects, [call]);
    let again = machine.handle(enter_after(42, Vec::new()), T0);
    assert_eq!(again, Err(Refusal::WrongPhase(Some(RunStatus::ModelRunning))));
}

#[test]
fn once_it_has_entered_it_is_a_run_like_any_other() {
    let mut script = queued(spec());
    script.does(enter(&script));
    script.asks([tool("weather")]);
    script.runs(A, "sunny");
    script.restarts();
    script.says("it is sunny");
    assert_eq!(script.status(), RunStatus::Completed);
    assert_eq!(history(&script.journal).len(), 4);
}

/// Denies every call of this tool.
fn no(tool: &str) -> PolicyRule {
    PolicyRule {
        name: String::new(),
        action: PolicyAction::Deny,
        tool: tool.to_owned(),
        arguments: Vec::new(),
        terms: None,
        origin: RuleOrigin::Session,
        approvers: Approvers::default(),
        made_under: None,
    }
}

#[test]
fn what_is_remembered_when_it_enters_holds_for_it() {
    let mut spec = spec();
    spec.tool_policy.rules = vec![no("mail")];
    let mut script = queued(spec);
    let transition = script.does(enter_after(0, vec![no("weather")]));
    let rules = Vec::from([no("weather")]);
    assert_eq!(
        transition.records[0].event,
        Event::SessionEntered { last_entry: EntryNo(0), rules, withdrawn_tools: vec![] }
    );
    script.asks([tool("weather"), tool("pay").approval(), tool("mail")]);
    assert_eq!([script.result(A).0, script.result(C).0], [ToolStatus::Denied; 2]);
    script.does(remembering(script.decision(B, deny()), RememberScope::Run, None));
    script.restarts();
    let known: Vec<&str> = script.state().rules().map(|rule| rule.tool.as_str()).collect();
    assert_eq!(known, ["mail", "weather", "pay"], "the wider a rule is, the earlier it comes");
}

#[test]
fn a_journal_with_the_rules_in_its_first_event_is_still_read() {
    let mut spec = spec();
    spec.tool_policy.rules = vec![no("weather")];
    let mut script = queued(spec);
    let transition = script.does(enter(&script));
    let entered = serde_json::to_value(&transition.records[0].event).expect("plain data serialises");
    assert_eq!(entered, serde_json::json!({ "kind": "session_entered", "last_entry": 0 }));
    script.restarts();
    script.asks([tool("weather")]);
    assert_eq!(script.result(A).0, ToolStatus::Denied);
}

#[test]
fn what_it_is_not_offered_is_decided_when_it_enters() {
    let mut script = queued(spec());
    let rules = vec![no("weather")];
    let withdrawn_tools = vec!["weather".to_owned()];
    let entered = Input::Enter { last_entry: EntryNo(0), rules, withdrawn_tools: withdrawn_tools.clone() };
    let transition = script.does(entered);
    let Event::SessionEntered { withdrawn_tools: told, .. } = &transition.records[0].event else {
        panic!("it enters: {transition:?}")
    };
    assert_eq!(*told, withdrawn_tools);
    script.asks([tool("pay").approval()]);
    script.does(remembering(script.decision(A, deny()), RememberScope::Run, None));
    script.restarts();
    let spec = script.state().spec();
    assert!(spec.denies_always("weather") && !spec.denies_always("pay"), "what comes later changes nothing");
}

#[test]
fn its_time_counts_from_when_it_entered() {
    let mut script = queued(limited(|limits| limits.max_run_duration = Some(Millis::secs(10))));
    script.passes(Millis::secs(3_600));
    assert_eq!(script.status(), RunStatus::Queued);
    script.does(enter(&script));
    assert_eq!(script.machine.deadline(), Some(script.now.after(Millis::secs(10))));
    script.wakes();
    assert_eq!(script.status(), RunStatus::Failed);
}

#[test]
fn aborted_it_leaves_nothing_in_the_session() {
    for (cause, status) in [(AbortCause::Caller, RunStatus::Aborted), (AbortCause::Fault, RunStatus::Failed)]
    {
        let mut script = queued(spec());
        let transition = script.does(abort(cause));
        assert_eq!(kinds(&transition.records), "finished");
        assert_eq!(script.status(), status);
        assert_eq!(history(&script.journal), []);
        script.refuses(enter(&script));
    }
}

#[test]
#[should_panic(expected = "only a queued run enters later")]
fn a_journal_that_enters_twice_is_not_read() {
    let mut script = queued(spec());
    script.does(enter(&script));
    let mut again = script.journal[2].clone();
    again.seq = script.state().seq().next();
    script.journal.push(again);
    let _ = agentloop_core::run::machine::Machine::replay(run_id(), &script.journal);
}
