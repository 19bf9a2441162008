//! The server is killed, and another process takes the run over.

use agentloop_core::agent::RunSpec;
use agentloop_core::id::{Attempt, EntryNo};
use agentloop_core::message::ToolStatus;
use agentloop_core::model::error::ModelErrorKind;
use agentloop_core::run::effect::{CancelCause, Effect};
use agentloop_core::run::event::{Event, Ran};
use agentloop_core::run::input::{Input, Start};
use agentloop_core::run::machine::{Machine, Transition};
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::replay::replay;
use agentloop_core::run::state::CallState;
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::tool::EffectClass;

use crate::support::*;

fn pausing() -> RunSpec {
    let mut spec = spec();
    spec.retry.max_retries = 1;
    spec.retry.pause_when_exhausted = true;
    spec
}

#[test]
fn a_run_that_never_began_cannot_be_taken_over() {
    assert_eq!(unstarted().refuses(Input::Recovered), Refusal::WrongPhase(None));
}

#[test]
fn a_model_call_that_was_cut_is_issued_again() {
    let mut script = given(spec());
    let transition = script.restarts();
    assert_eq!(kinds(&transition.records), "model_call_failed model_call_started");
    assert_eq!(
        transition.effects,
        [Effect::CallModel { model_call: 1, attempt: Attempt(2), last_entry: EntryNo(1), checked: true }]
    );
    let statuses: Vec<RunStatus> = transition.records.iter().map(|record| record.status).collect();
    assert_eq!(statuses, [RunStatus::BackingOff, RunStatus::ModelRunning]);
    let Event::ModelCallFailed { retry_at, .. } = transition.records[0].event else { panic!("the cut try") };
    assert_eq!(retry_at, Some(T0), "its deltas are void, and the next try is at once");
    assert_eq!(script.refuses(model_says(1, 1, "late")), Refusal::StaleModelCall);
}

#[test]
fn restarts_do_not_use_retries_up() {
    let mut script = given(pausing());
    for _ in 0..20 {
        script.restarts();
    }
    script.model_fails(ModelErrorKind::Timeout);
    assert_eq!(script.status(), RunStatus::BackingOff);
}

#[test]
fn a_backoff_goes_on() {
    let mut script = given(pausing());
    script.model_fails(ModelErrorKind::Timeout);
    let due = script.machine.deadline();
    assert_eq!(script.restarts(), Transition::default());
    assert_eq!(script.machine.deadline(), due);
    script.later(Millis::secs(3_600));
    script.restarts();
    assert_eq!(
        kinds(&script.wakes().records),
        "model_call_started",
        "one that ended meanwhile is over at once"
    );
}

#[test]
fn a_paused_run_stays_paused() {
    let mut script = given(pausing());
    script.model_fails(ModelErrorKind::Timeout);
    script.wakes();
    script.model_fails(ModelErrorKind::Timeout);
    assert_eq!(script.restarts(), Transition::default());
    assert_eq!(script.status(), RunStatus::Paused);
}

#[test]
fn a_run_that_is_over_stays_over() {
    let mut script = given(spec());
    script.says("sunny");
    assert_eq!(script.restarts(), Transition::default());
}

#[test]
fn calls_with_a_host_are_reclaimed_and_others_sought_again() {
    let mut script =
        given_round(parallel(4), [tool("a"), tool("b"), tool("c"), tool("d").approval(), tool("e")]);
    let e = agentloop_core::id::CallSlot::from((1, 4));
    script.grants(A);
    script.grants(B);
    script.accepts(B);
    script.saves(B, b"half");
    script.grants(e);
    script.loses(e, Ran::No);
    let transition = script.restarts();
    assert_eq!(transition.records, []);
    let [Effect::ReclaimCall(a), Effect::ReclaimCall(b), Effect::SeekHost { slot: C, .. }] =
        transition.effects.as_slice()
    else {
        panic!("{:?}", transition.effects)
    };
    assert_eq!((a.slot, a.attempt, a.lease.clone()), (A, Attempt(1), script.state().lease(A, Attempt(1))));
    assert_eq!((b.slot, b.checkpoint.as_deref()), (B, Some(&b"half"[..])));
    let sought = script.wakes().effects;
    assert_eq!(
        sought,
        [Effect::SeekHost { slot: e, tool: "e".to_owned(), on: None }],
        "when its wait is over"
    );
}

#[test]
fn what_is_outstanding_is_what_taking_over_asks_for() {
    let mut script = given_round(spec(), [tool("a"), tool("b"), tool("c")]);
    script.grants(B);
    let replayed = Machine::replay(run_id(), &script.journal);
    let outstanding = replayed.outstanding(script.now);
    assert_eq!(replayed, Machine::replay(run_id(), &script.journal), "to ask changes nothing");
    assert_eq!(outstanding, script.restarts().effects);
    assert_eq!(script.machine.outstanding(script.now), outstanding);
}

#[test]
fn a_reclaimed_call_is_answered_like_any_other() {
    let mut script = given_round(spec(), [tool("pay")]);
    script.grants(A);
    script.restarts();
    script.accepts(A);
    script.finishes(A, "paid");
    assert_eq!(script.result(A), (ToolStatus::Succeeded, "paid".to_owned()));
}

#[test]
fn a_reclaimed_call_whose_host_stays_away_is_lost() {
    for (class, status) in
        [(EffectClass::Unsafe, RunStatus::AwaitingHuman), (EffectClass::Keyed, RunStatus::ToolRunning)]
    {
        let mut script = given_round(spec(), [tool("pay").class(class)]);
        script.grants(A);
        script.restarts();
        script.loses(A, Ran::Maybe);
        assert_eq!(script.status(), status, "{class:?}");
    }
}

/// The host may hold the result of a call whose time ran out while nobody was there to take it.
#[test]
fn hosts_have_a_while_to_come_back_with_calls_that_are_overdue() {
    let overdue = || {
        let mut script = given_round(spec(), [tool("pay")]);
        script.grants(A);
        script.later(Millis::secs(3_600));
        script.restarts();
        script
    };
    let mut script = overdue();
    assert_eq!(script.machine.deadline(), Some(script.now.after(Millis::secs(30))));
    assert_eq!(kinds(&script.passes(Millis(29_999)).records), "");
    script.finishes(A, "paid");
    assert_eq!(script.result(A).0, ToolStatus::Succeeded);
    let mut script = overdue();
    assert_eq!(kinds(&script.wakes().records), "", "its host is told to stop");
    script.wakes();
    assert!(matches!(script.call_state(A), CallState::InDoubt { .. }));
}

#[test]
fn the_while_is_for_calls_from_before_and_shortens_none() {
    let mut script = given_round(spec(), [tool("a"), tool("b").within(Millis::secs(5))]);
    script.grants(A);
    script.later(Millis::secs(10));
    script.restarts();
    assert_eq!(script.machine.deadline(), Some(T0.after(Millis::secs(60))), "a minute is still a minute");
    script.later(Millis::secs(1));
    script.grants(B);
    assert_eq!(script.machine.deadline(), Some(script.now.after(Millis::secs(5))));
}

/// A host that is connected all the time, as when another replica takes the run over, or that has come back.
#[test]
fn a_call_that_its_host_confirms_has_its_own_deadline_again() {
    for class in [EffectClass::Keyed, EffectClass::Unsafe] {
        let mut script = given_round(spec(), [tool("a").within(Millis::secs(10)).class(class)]);
        script.grants(A);
        script.accepts(A);
        script.restarts();
        assert_eq!(script.machine.deadline(), Some(T0.after(Millis::secs(30))), "{class:?}");
        script.later(Millis::secs(1));
        script.accepts(A);
        assert_eq!(script.machine.deadline(), Some(T0.after(Millis::secs(10))), "{class:?}");
        let due = script.wakes();
        let cancelled = due
            .effects
            .iter()
            .any(|effect| matches!(effect, Effect::CancelCall { slot: A, cause: CancelCause::Deadline, .. }));
        assert!(cancelled, "{class:?}: {due:?}");
        // A host is asked whether it began a call that must not run twice; others are over.
        let waits = script.status() == RunStatus::ToolRunning;
        assert_eq!(waits, class == EffectClass::Unsafe, "{class:?}");
    }
}

#[test]
fn the_result_of_an_overdue_call_follows_its_host() {
    let overdue = || {
        let mut script = given_round(spec(), [tool("a").within(Millis::secs(5))]);
        script.grants(A);
        script.accepts(A);
        script.later(Millis::secs(3_600));
        script.restarts();
        script
    };
    let mut script = overdue();
    script.later(Millis::secs(2));
    script.accepts(A);
    let ends = script.now.after(Millis::secs(5));
    assert_eq!(script.machine.deadline(), Some(ends));
    script.later(Millis::secs(1));
    script.accepts(A);
    assert_eq!(script.machine.deadline(), Some(ends), "a second confirmation puts nothing off");
    script.finishes(A, "done");
    assert_eq!(script.result(A).0, ToolStatus::Succeeded);

    let mut script = overdue();
    let ends = script.now.after(Millis::secs(30));
    script.later(Millis::secs(29));
    script.accepts(A);
    assert_eq!(script.machine.deadline(), Some(ends), "nor is one that comes late a longer time");
}

#[test]
fn a_confirmed_attempt_says_nothing_of_the_next_one_nor_to_the_next_owner() {
    let mut script = given_round(spec(), [tool("a").within(Millis::secs(5))]);
    script.grants(A);
    script.restarts();
    script.accepts(A);
    assert_eq!(script.machine.deadline(), Some(T0.after(Millis::secs(5))));
    script.restarts();
    assert_eq!(script.machine.deadline(), Some(T0.after(Millis::secs(30))));
    script.loses(A, Ran::No);
    script.later(Millis::secs(2));
    script.grants(A);
    assert_eq!(script.machine.deadline(), Some(script.now.after(Millis::secs(5))));
}

#[test]
fn the_while_is_not_for_calls_of_the_same_millisecond() {
    let mut script = given_round(spec(), [tool("a").within(Millis::secs(5))]);
    script.restarts();
    script.grants(A);
    assert_eq!(script.machine.deadline(), Some(script.now.after(Millis::secs(5))));
    script.restarts();
    assert_eq!(
        script.machine.deadline(),
        Some(script.now.after(Millis::secs(30))),
        "it is from before this one"
    );
}

#[test]
fn two_restarts_are_as_good_as_one() {
    let mut script = given_round(spec(), [tool("a"), tool("b")]);
    script.grants(A);
    let first = script.restarts();
    assert_eq!(script.restarts(), first);
}

#[test]
fn after_a_restart_an_abort_still_reaches_the_host() {
    let mut script = given_round(parallel(1), [tool("a")]);
    script.grants(A);
    script.restarts();
    let transition = script.aborts();
    assert!(matches!(
        transition.effects.as_slice(),
        [Effect::CancelCall { slot: A, attempt: Attempt(1), .. }]
    ));
}

#[test]
fn a_clock_that_is_set_back_stops_nothing() {
    let mut script = given_round(spec(), [tool("look").class(EffectClass::ReadOnly)]);
    script.grants(A);
    script.answers(A, passing(Ran::Yes, Millis::secs(5)));
    script.wakes();
    script.now = Timestamp(T0.0 - 1_000_000);
    assert_eq!(kinds(&script.grants(A).records), "call_offered", "its wait was over");
    assert_eq!(script.journal.last().map(|record| record.at), Some(T0.after(Millis::secs(5))));
    script.finishes(A, "found");
}

/// Set back by an hour, while the server is down and while it is up.
#[test]
fn no_wait_is_longer_than_it_was_when_it_began() {
    let back = |script: &mut Script| script.now = script.now.before(Millis::secs(3_600));
    let left = |script: &Script| script.machine.deadline().map(|due| due.since(script.now));
    for restart in [true, false] {
        let mut limited = limited(|limits| limits.max_run_duration = Some(Millis::secs(20)));
        limited.approval_timeout = Some(Millis::secs(8));
        let mut script = given_round(limited, [tool("pay").approval()]);
        script.passes(Millis::secs(3));
        back(&mut script);
        if restart {
            script.restarts();
            assert_eq!(left(&script), Some(Millis::secs(8)), "time that no event tells of is lost");
        } else {
            script.passes(Millis(0));
            assert_eq!(left(&script), Some(Millis::secs(5)), "the question's");
        }
        script.wakes();
        assert_eq!(script.result(A).0, ToolStatus::Denied);
        assert_eq!(left(&script), Some(Millis::secs(12)), "the run's");
        let asked = script.now;
        script.wakes();
        assert_eq!(script.now.since(asked), Millis::secs(12));
        assert_eq!(script.status(), RunStatus::Failed);
        assert!(script.journal.iter().map(|record| record.at).is_sorted(), "times never go back");
    }
}

#[test]
fn a_backoff_over_a_restart_with_a_clock_set_back_lasts_as_long_as_it_was_to() {
    let mut script = given(spec());
    script.model_fails(ModelErrorKind::Timeout);
    let wait = script.machine.deadline().expect("it backs off").since(script.now);
    script.now = script.now.before(Millis::secs(3_600));
    script.restarts();
    assert_eq!(script.machine.deadline(), Some(script.now.after(wait)));
    script.restarts();
    assert_eq!(script.machine.deadline(), Some(script.now.after(wait)));
    assert_eq!(kinds(&script.wakes().records), "model_call_started");
}

/// A host gets the deadline by its server's clock, and the time left, which needs no clock.
#[test]
fn a_call_after_the_clock_was_set_back_has_its_whole_time() {
    let mut script = given_round(spec(), [tool("a")]);
    script.now = script.now.before(Millis::secs(3_600));
    script.restarts();
    let offer = offer(&script.grants(A));
    assert_eq!((offer.deadline, offer.time_left), (script.now.after(Millis::secs(60)), Millis::secs(60)));
    assert_eq!(script.machine.deadline(), Some(script.now.after(Millis::secs(60))));
}

/// Hours ahead is not told from hours without a server: what fell due meanwhile is done, and hosts have their while.
#[test]
fn a_clock_far_ahead_at_a_restart_counts_as_time_without_a_server() {
    let spec = RunSpec { approval_timeout: Some(Millis::secs(8)), ..parallel(2) };
    let mut script = given_round(spec, [tool("pay").approval(), tool("look").class(EffectClass::ReadOnly)]);
    script.grants(B);
    script.later(Millis::secs(7_200));
    script.restarts();
    script.wakes();
    assert_eq!(script.result(A).0, ToolStatus::Denied, "the question is over");
    script.finishes(B, "found");
    assert_eq!(script.result(B).0, ToolStatus::Succeeded, "a host that comes back within 30 s is heard");
}

#[test]
#[should_panic(expected = "events are dense")]
fn a_journal_with_a_hole_is_not_read() {
    let mut script = given_round(spec(), [tool("a")]);
    script.journal.remove(1);
    let _ = Machine::replay(run_id(), &script.journal);
}

#[test]
#[should_panic(expected = "a run starts once")]
fn a_journal_that_begins_twice_is_not_read() {
    let mut script = given(spec());
    script.journal[1].event = script.journal[0].event.clone();
    let _ = Machine::replay(run_id(), &script.journal);
}

#[test]
#[should_panic(expected = "a question is answered once")]
fn a_journal_with_two_answers_to_a_question_is_not_read() {
    let mut script = given_round(spec(), [tool("a").approval()]);
    script.decides(A, agentloop_core::run::human::Decision::Approve);
    let mut again = script.journal.last().expect("the answer").clone();
    again.seq = again.seq.next();
    script.journal.push(again);
    let _ = Machine::replay(run_id(), &script.journal);
}

#[test]
fn the_groups_of_the_caller_are_in_the_journal_of_every_run() {
    let groups = ["sre".to_owned(), "on call".to_owned()];
    for (queued, imports) in [(false, false), (true, false), (false, true)] {
        let Input::Start(start) = start(spec()) else { unreachable!("a start") };
        let start = Box::new(Start { queued, caller_groups: groups.to_vec(), ..*start });
        let mut script = unstarted();
        script.does(if imports { Input::Import(start) } else { Input::Start(start) });
        if queued {
            script.does(enter(&script));
        }
        let again = replay(&run_id(), &script.journal, |_| Ok(()));
        assert_eq!((again.difference, &again.state.caller_groups()[..]), (None, &groups[..]));
    }
    assert!(given(spec()).state().caller_groups().is_empty());
}
