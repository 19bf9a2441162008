//! Hooks and context sources before the first model call, and hooks around tool calls.

use std::sync::Arc;

use agentloop_core::extension::ExtensionCall;
use agentloop_core::id::{Attempt, EntryNo};
use agentloop_core::message::{Message, Role, ToolStatus};
use agentloop_core::run::effect::Effect;
use agentloop_core::run::event::Event;
use agentloop_core::run::human::Decision;
use agentloop_core::run::input::{AbortCause, HookedCall, Input, Prepared};
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::state::Phase;
use agentloop_core::run::status::{RunErrorCode, RunStatus};
use agentloop_core::run::view::WaitKind;
use agentloop_core::tool::EffectClass;

use crate::support::*;

#[test]
fn messages_wait_until_everybody_was_asked() {
    let mut script = unstarted();
    let transition = script.does(start(hooked()));
    assert_eq!(kinds(&transition.records), "started input_held");
    assert_eq!(transition.effects, [Effect::Prepare]);
    assert_eq!(script.status(), RunStatus::Preparing);
    assert_eq!(script.state().last_entry(), EntryNo(0));
    let waiting = script.state().waiting_on().expect("it waits");
    assert_eq!((waiting.kind, waiting.what.as_str()), (WaitKind::Extension, "audit, memory"));

    let transition = script.does(prepared(Prepared {
        applied: vec![
            applied("noted"),
            ExtensionCall { system_prompt: "Be kind.".to_owned(), ..applied("") },
        ],
        context: vec![from_memory("they like it short")],
        ..Prepared::default()
    }));
    let expected = "extension_applied extension_applied context_added input_entered model_call_started";
    assert_eq!(kinds(&transition.records), expected);
    let call =
        Effect::CallModel { model_call: 1, attempt: Attempt(1), last_entry: EntryNo(2), checked: true };
    assert_eq!(transition.effects.last(), Some(&call));
    assert_eq!(script.state().system_prompt(), "Be kind.");
    assert_eq!(
        script.refuses(prepared(Prepared::default())),
        Refusal::WrongPhase(Some(RunStatus::ModelRunning))
    );
}

#[test]
fn without_hooks_and_sources_nothing_is_held() {
    let mut script = unstarted();
    let transition = script.does(start(spec()));
    assert_eq!(kinds(&transition.records), "started input_added model_call_started");
    assert_eq!(script.state().system_prompt(), script.state().spec().system_prompt);
}

#[test]
fn what_a_hook_puts_in_their_place_enters_and_the_callers_messages_do_not() {
    let mut script = given(hooked());
    let other = Arc::new(Message::text(Role::User, "the weather, please"));
    let transition =
        script.does(prepared(Prepared { messages: Some(vec![other.clone()]), ..Prepared::default() }));
    assert_eq!(kinds(&transition.records), "input_added model_call_started");
    assert!(!script.state().has_waiting_messages());
    let Event::MessageAdded { message, .. } = &transition.records[0].event else {
        panic!("the other message")
    };
    assert_eq!(*message, other);
}

#[test]
fn no_messages_in_their_place_leave_them_as_they_are() {
    let mut script = given(hooked());
    let transition = script.does(prepared(Prepared { messages: Some(Vec::new()), ..Prepared::default() }));
    assert_eq!(kinds(&transition.records), "input_entered model_call_started");
}

#[test]
fn a_veto_fails_the_run_and_lets_nothing_into_the_session() {
    let mut script = unstarted();
    script.does(start_after(3, hooked()));
    let failure = Some("vetoed by the hook audit: not today".to_owned());
    let transition =
        script.does(prepared(Prepared { applied: vec![applied("veto")], failure, ..Prepared::default() }));
    assert_eq!(kinds(&transition.records), "extension_applied finished");
    let error = script.end().expect("an error");
    assert_eq!(error.code, RunErrorCode::ExtensionFailed);
    assert!(error.message.contains("not today"));
    assert_eq!(script.state().last_entry(), EntryNo(3));
}

#[test]
fn a_run_that_ends_while_it_is_prepared_asks_nobody_any_more() {
    let mut script = given(hooked());
    let transition = script.does(abort(AbortCause::Caller));
    assert_eq!(
        (kinds(&transition.records).as_str(), transition.effects),
        ("finished", vec![Effect::StopPreparing])
    );
    assert_eq!(script.state().last_entry(), EntryNo(0));
    assert!(script.step(prepared(Prepared::default())).is_err());
}

#[test]
fn after_a_restart_everybody_is_asked_again() {
    let mut script = given(hooked());
    let transition = script.restarts();
    assert_eq!((transition.records.len(), transition.effects), (0, vec![Effect::Prepare]));
    script.does(prepared(Prepared::default()));
    script.says("sunny");
    assert!(matches!(script.state().phase(), Phase::Finished { .. }));
}

#[test]
fn a_planner_is_asked_after_them() {
    let mut script = given(agentloop_core::agent::RunSpec { planner: Some("p".to_owned()), ..hooked() });
    let transition = script.does(prepared(Prepared::default()));
    assert_eq!(kinds(&transition.records), "input_entered");
    assert!(
        matches!(transition.effects.last(), Some(Effect::Plan { decision: 1, .. })),
        "{:?}",
        transition.effects
    );
}

/// The model asks for one call, of which a hook made this.
fn with_hook(hooked: HookedCall, tool: Tool) -> (Script, agentloop_core::run::machine::Transition) {
    let mut script = given(spec());
    let Input::ModelFinished(mut done) =
        model_asks(1, 1, &[tool], agentloop_core::message::FinishReason::ToolCalls)
    else {
        unreachable!("it is what was built")
    };
    done.hooked = vec![hooked];
    let transition = script.does(Input::ModelFinished(done));
    (script, transition)
}

#[test]
fn a_hook_changes_what_a_call_runs_with_and_the_model_is_told() {
    let changed = HookedCall { applied: vec![applied("changed")], arguments: Some("{\"n\":2}".to_owned()) };
    let (mut script, transition) = with_hook(changed, tool("look").class(EffectClass::ReadOnly));
    assert_eq!(kinds(&transition.records), "assistant_message extension_applied call_proposed");
    let given = offer(&script.grants(A));
    assert_eq!(given.arguments, "{\"n\":2}");
    script.finishes(A, "two");
    let (status, output) = script.result(A);
    assert_eq!(status, ToolStatus::Succeeded);
    assert_eq!(output, "[a hook changed the arguments to {\"n\":2}]\ntwo");
}

#[test]
fn a_human_is_asked_about_what_the_hook_left_and_may_change_it_again() {
    let changed = HookedCall { applied: Vec::new(), arguments: Some("{\"n\":2}".to_owned()) };
    let (mut script, _) = with_hook(changed, tool("pay").approval());
    let question = script.question(A).expect("a human is asked");
    assert_eq!(question.arguments, "{\"n\":2}");
    script.decides(A, Decision::ApproveWithEdits { arguments: "{\"n\":3}".to_owned() });
    script.runs(A, "three");
    assert_eq!(script.result(A).1, "[a human changed the arguments to {\"n\":3}]\nthree");
}

#[test]
fn what_a_hook_said_of_a_result_is_told_before_it() {
    let mut script = given_to_host(EffectClass::ReadOnly);
    let Input::CallFinished(mut finished) = script.finished(A, 1, ok("red")) else {
        unreachable!("it is what was built")
    };
    finished.sent = Some(finished.outcome.digest());
    finished.outcome = ok("[colour]");
    finished.applied = vec![applied("redacted")];
    let transition = script.does(Input::CallFinished(finished));
    assert_eq!(kinds(&transition.records), "extension_applied call_settled model_call_started");
    let (sent, shown) = (script.finished(A, 1, ok("red")), script.finished(A, 1, ok("[colour]")));
    assert_eq!(script.refuses(sent), Refusal::DuplicateResult, "no hook is asked about it again");
    assert_eq!(script.refuses(shown), Refusal::StaleAttempt, "the host never sent this");
}

#[test]
fn a_queued_run_is_prepared_when_its_turn_comes() {
    let mut script = unstarted();
    script.does(start_queued(hooked()));
    assert_eq!(script.status(), RunStatus::Queued);
    let transition = script.does(enter(&script));
    assert_eq!(
        (kinds(&transition.records).as_str(), &transition.effects[..]),
        ("session_entered", &[Effect::Prepare][..])
    );
    let transition = script.does(prepared(Prepared::default()));
    assert_eq!(kinds(&transition.records), "input_entered model_call_started");
}

#[test]
fn what_is_said_meanwhile_follows_what_a_hook_put_in_place() {
    let mut script = given(hooked());
    script.does(steer("more", "and in Ulm?"));
    let brought: Vec<_> = script.state().initial_messages().map(|message| message.plain_text()).collect();
    assert_eq!(brought, ["what is the weather?"], "hooks judge what the run was started with");
    let other = Arc::new(Message::text(Role::User, "the weather, please"));
    let transition = script.does(prepared(Prepared { messages: Some(vec![other]), ..Prepared::default() }));
    assert_eq!(kinds(&transition.records), "input_added input_entered model_call_started");
}
