//! Every situation and everything that can happen in it: taken, and where it leads, or refused, and how.

mod situation;
mod stimulus;

use agentloop_core::run::input::AbortCause;
use agentloop_core::run::refusal::Refusal;

use situation::{COLUMNS, Situation, in_situation, situation_of};
use stimulus::{ROWS, Stimulus, rows_of};

use crate::support::*;

/// Exhaustive, so that a new refusal has to find its code.
fn code(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::WrongPhase(_) => "!ph",
        Refusal::StaleModelCall => "!mc",
        Refusal::UnknownCall => "!uc",
        Refusal::DuplicateResult => "!du",
        Refusal::StaleAttempt => "!st",
        Refusal::UnknownRequest => "!rq",
        Refusal::AlreadyResolved(_) => "!ar",
        Refusal::DigestMismatch => "!dg",
        Refusal::NotADecision => "!nd",
        Refusal::IdReused => "!id",
        Refusal::TooManyWaitingMessages => "!hd",
        Refusal::NotStepped => "!ns",
        Refusal::StaleDecision => "!pl",
        Refusal::BadAnswer(_) => "!ba",
        Refusal::DeniedByRule(_) => "!rl",
        Refusal::CannotRemember(_) => "!rm",
        Refusal::NotAnApprover(_) => "!who",
        Refusal::SeveralApprovals(_) => "!all",
    }
}

/// The outcome, in the table's words.
fn outcome(given: &Script, stimulus: Stimulus) -> String {
    let mut script = given.clone();
    script.later(stimulus.wait());
    let input = stimulus.input(&script);
    let before = script.state().clone();
    match script.step(input) {
        Err(refusal) => code(&refusal).to_owned(),
        Ok(transition) if transition.records.is_empty() => {
            assert_eq!(*script.state(), before, "nothing recorded is nothing changed");
            "=".to_owned()
        }
        Ok(_) => {
            let after = situation_of(script.state()).expect("a place between two steps");
            COLUMNS.iter().find(|(column, _)| *column == after).expect("a column").1.to_owned()
        }
    }
}

#[test]
fn every_pair_is_taken_or_refused_as_the_table_says() {
    let mut wrong = Vec::new();
    for (at, (situation, name)) in COLUMNS.into_iter().enumerate() {
        let given = in_situation(situation);
        for (stimulus, row) in ROWS {
            let cells: Vec<&str> = row.split_whitespace().collect();
            assert_eq!(cells.len(), COLUMNS.len(), "{stimulus:?}");
            let got = outcome(&given, *stimulus);
            if got != cells[at] {
                wrong.push(format!("{stimulus:?} in {name}: {got}, not {}", cells[at]));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Not a column of its own: a run that is being prepared has no past, and takes next to nothing.
#[test]
fn a_run_that_is_being_prepared_takes_what_any_live_one_takes() {
    let given = given(hooked());
    for (stimulus, _) in ROWS {
        let mut script = given.clone();
        script.later(stimulus.wait());
        let got = script.step(stimulus.input(&script));
        let taken = match stimulus {
            Stimulus::Prepared => Some("input_entered model_call_started"),
            Stimulus::SayMore | Stimulus::SayMoreAgain | Stimulus::SayOtherByTheSameId => Some("input_held"),
            Stimulus::AbortByCaller
            | Stimulus::AbortByDisconnect
            | Stimulus::AbortByFault
            | Stimulus::AbortForMemory => Some("finished"),
            Stimulus::DeadlineTooEarly | Stimulus::DeadlineLongPast | Stimulus::Recovered => Some(""),
            _ => None,
        };
        let got = got.ok().map(|transition| kinds(&transition.records));
        assert_eq!(got.as_deref(), taken, "{stimulus:?}");
    }
}

#[test]
fn the_situations_are_what_they_are_called() {
    for (situation, name) in COLUMNS {
        assert_eq!(situation_of(in_situation(situation).state()), Some(situation), "{name}");
    }
}

#[test]
fn every_row_is_under_its_input() {
    let script = in_situation(Situation::InDoubt);
    let mut listed = 0;
    for (stimulus, _) in ROWS {
        let rows = rows_of(&stimulus.input(&script));
        assert!(rows.contains(stimulus), "{stimulus:?}");
        listed += usize::from(rows.first() == Some(stimulus)) * rows.len();
    }
    assert_eq!(listed, ROWS.len(), "each row is listed once");
}

#[test]
fn refusals_say_where_the_run_stands() {
    let mut script = in_situation(Situation::Paused);
    let refusal = script.refuses(start(spec()));
    assert_eq!(refusal, Refusal::WrongPhase(script.state().status()));
    assert_eq!(unstarted().refuses(abort(AbortCause::Caller)), Refusal::WrongPhase(None));
}
