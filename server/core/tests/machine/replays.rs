//! A journal is folded anew: what is in it may be anything.

use agentloop_core::id::{Attempt, EntryNo, Seq};
use agentloop_core::model::error::ModelErrorKind;
use agentloop_core::run::event::{Event, Record};
use agentloop_core::run::human::Decision;
use agentloop_core::run::input::Input;
use agentloop_core::run::machine::Machine;
use agentloop_core::run::replay::{Replayed, replay};
use agentloop_core::run::state::Phase;
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;

use crate::support::*;

/// The journal by an earlier version of a run whose context was made smaller twice, because of an overflow and of a bound.
/// Each time the call was made again as the next try of the same.
const COMPACTED: &str = include_str!("../golden/journals-v1/compacted.json");
/// Its journal of one that overflowed, until the compaction was under way.
const COMPACTING: &str = include_str!("../golden/journals-v1/compacting.json");

/// A run with everything in it.
fn journal() -> Vec<Record> {
    let mut script = given_round(spec(), [tool("pay").approval(), tool("look")]);
    script.runs(B, "seen");
    script.decides(A, Decision::Approve);
    script.restarts();
    script.runs(A, "paid");
    script.says("done");
    script.journal
}

fn fold(journal: &[Record]) -> Replayed {
    replay(&run_id(), journal, |_| Ok(()))
}

#[test]
fn what_a_machine_wrote_folds_to_where_it_stands() {
    let journal = journal();
    let folded = fold(&journal);
    assert_eq!((folded.events, folded.difference.as_deref()), (journal.len() as u64, None));
    assert_eq!(folded.state.status(), Some(RunStatus::Completed));
    assert_eq!(folded.state.digest(), fold(&journal).state.digest(), "equal journals, equal digests");
    assert_ne!(folded.state.digest(), fold(&journal[..3]).state.digest());
    let empty = fold(&[]);
    assert_eq!((empty.events, empty.difference), (0, None));
}

#[test]
fn what_does_not_fit_is_named_and_nothing_panics() {
    let whole = journal();
    let last = whole.len() - 1;
    for at in 0..whole.len() {
        let seq = at as u64 + 1;
        let mut missing = whole.clone();
        missing.remove(at);
        let folded = fold(&missing);
        assert_eq!(folded.events, seq - 1);
        let difference = folded.difference.unwrap_or_default();
        assert!(at == last || difference.starts_with(&format!("event {} (", seq + 1)), "{difference}");

        let mut twice = whole.clone();
        twice.insert(at, whole[at].clone());
        let difference = fold(&twice).difference.expect("an event cannot come twice");
        assert!(difference.contains("dense"), "{difference}");

        let mut status = whole.clone();
        status[at].status = RunStatus::Queued;
        let difference = fold(&status).difference.expect("a run was never queued");
        assert!(difference.contains("it says queued"), "{difference}");
    }
}

#[test]
fn an_event_of_another_place_is_named() {
    let whole = journal();
    let find = |kind: &str| whole.iter().position(|record| record.event.kind() == kind).expect("it is there");
    for (kind, event) in [
        ("call_settled", whole[find("human_resolved")].event.clone()),
        ("call_accepted", whole[find("call_settled")].event.clone()),
        ("input_added", Event::MessageAdded { entry: EntryNo(9), message: user("forged") }),
        ("model_call_started", Event::MessageEntered { entry: EntryNo(2), held: Seq(1) }),
        ("finished", whole[0].event.clone()),
    ] {
        let mut forged = whole.clone();
        let at = find(kind);
        forged[at].event = event;
        let folded = fold(&forged);
        assert!(folded.difference.is_some() && folded.events >= at as u64, "{kind}: {folded:?}");
    }
}

/// A machine that takes over what an earlier version wrote.
#[track_caller]
fn taken_over(journal: &str) -> Machine {
    let records: Vec<Record> = serde_json::from_str(journal).expect("it is readable");
    assert_eq!(fold(&records).difference, None);
    let mut machine = Machine::replay(run_id(), &records);
    machine.handle(Input::Recovered, Timestamp(2_000_000)).expect("it is recovered");
    machine
}

#[test]
fn a_compaction_that_was_followed_by_a_try_of_the_same_call_is_read_as_it_was() {
    let mut machine = taken_over(COMPACTED);
    let state = machine.state();
    assert_eq!((state.iterations(), state.model_calls(), state.compactions()), (2, 2, 2));
    let Phase::ModelRunning(call) = state.phase() else { panic!("{:?}", state.phase()) };
    assert_eq!((call.number, call.attempt), (2, Attempt(3)), "the try after the one that the restart cut");
    // It goes on as any other: the next compaction is followed by the next call.
    let now = Timestamp(2_000_001);
    let overflow = failure(ModelErrorKind::ContextOverflow);
    let failed = Input::ModelFailed { model_call: 2, attempt: Attempt(3), failure: overflow };
    machine.handle(failed, now).expect("it overflows");
    machine.handle(compacted(3), now).expect("it is smaller");
    assert_eq!((machine.state().iterations(), machine.state().model_calls()), (3, 3));
    machine.handle(model_says(3, 1, "done"), now).expect("it answers");
    assert_eq!(machine.state().status(), Some(RunStatus::Completed));
}

#[test]
fn a_compaction_under_way_of_an_earlier_version_is_followed_by_the_next_call() {
    let mut machine = taken_over(COMPACTING);
    let now = Timestamp(2_000_001);
    let Phase::Compacting(anew) = machine.state().phase() else { panic!("{:?}", machine.state().phase()) };
    assert_eq!((anew.number, anew.level), (2, 0), "the restart has cut the first one");
    let transition = machine.handle(compacted(2), now).expect("it is smaller");
    assert_eq!(kinds(&transition.records), "compacted model_call_started");
    assert_eq!((machine.state().iterations(), machine.state().model_calls()), (2, 2));
}

#[test]
fn whoever_watches_may_object() {
    let whole = journal();
    let folded = replay(&run_id(), &whole, |state| {
        if state.seq() == Seq(4) { Err("its row says otherwise".to_owned()) } else { Ok(()) }
    });
    assert_eq!(folded.events, 3);
    assert!(folded.difference.is_some_and(|difference| difference.ends_with("its row says otherwise")));
}
