//! A running call asks a human, by its host.

use crate::error::Refusal;
use crate::id::CallSlot;
use crate::limits::INPUTS_PER_CALL_MAX;
use crate::question::{InputAnswer, QuestionContent};
use crate::run::event::Event;
use crate::run::human::{Decision, Question};
use crate::run::machine::Turn;
use crate::run::state::Asked;
use crate::run::transition::tool;
use crate::time::Millis;

/// A call in flight asks. What was asked before is not asked again: its answer is told again, once there is one.
pub(crate) fn needed(
    turn: &mut Turn<'_>,
    slot: CallSlot,
    attempt: u32,
    ask: QuestionContent,
    timeout: Option<Millis>,
) -> Result<(), Refusal> {
    let tool = tool::in_flight(turn, slot, attempt)?.wanted.name.clone();
    let Some(input) = ask.input.clone() else { return Ok(()) };
    if let Some(answer) = known(turn, slot, attempt, &ask) {
        if let Some(answer) = answer {
            turn.answer(slot, attempt, input, answer);
        }
        return Ok(());
    }
    let asked = asked_by(turn, slot, attempt).count();
    if asked >= INPUTS_PER_CALL_MAX {
        let refused = format!("a call may ask {INPUTS_PER_CALL_MAX} questions at most");
        turn.answer(slot, attempt, input, InputAnswer::Refused(refused));
        return Ok(());
    }
    let number = u32::try_from(asked + 1).expect("they are few");
    let request = turn.state.call_id(slot).input(attempt, number);
    let timeout = timeout.or(turn.state.spec.approval_timeout);
    let question = Question { slot: Some(slot), tool, ..Question::asking(request, ask, turn.now, timeout) };
    turn.emit(Event::HumanRequested { question });
    Ok(())
}

/// The question is settled: its host hears of it. Where the call is over, nobody waits for it.
pub(crate) fn settled(turn: &mut Turn<'_>, slot: CallSlot, input: &str, decision: &Decision) {
    let Some(attempt) = turn.state.call(slot).map(|call| call.attempt) else { return };
    if let Some(answer) = answer(decision) {
        turn.answer(slot, attempt, input.to_owned(), answer);
    }
}

/// What is known of a question that was asked before: its answer, or that it still waits (`Some(None)`). What a human
/// said to an earlier try counts, if that asked the same.
fn known(
    turn: &Turn<'_>,
    slot: CallSlot,
    attempt: u32,
    ask: &QuestionContent,
) -> Option<Option<InputAnswer>> {
    if let Some(asked) =
        asked_by(turn, slot, attempt).find(|asked| asked.question.input() == ask.input.as_deref())
    {
        if asked.question.digest != ask.digest() {
            let refused = "the input_id is that of another question of this call".to_owned();
            return Some(Some(InputAnswer::Refused(refused)));
        }
        return Some(asked.answer.as_ref().and_then(|given| answer(&given.decision)));
    }
    let earlier = (1..attempt).rev().flat_map(|attempt| asked_by(turn, slot, attempt));
    let mut same = earlier.filter(|asked| {
        asked.question.input() == ask.input.as_deref() && asked.question.digest == ask.digest()
    });
    let given = same.find_map(|asked| asked.answer.as_ref().filter(|given| given.decision.is_input()))?;
    Some(answer(&given.decision))
}

/// What this try has asked, in order.
fn asked_by<'a>(turn: &'a Turn<'_>, slot: CallSlot, attempt: u32) -> impl Iterator<Item = &'a Asked> {
    let call = turn.state.call_id(slot);
    let number = 1..=u32::try_from(INPUTS_PER_CALL_MAX).expect("they are few");
    number.map_while(move |number| turn.state.questions.get(&call.input(attempt, number)))
}

fn answer(decision: &Decision) -> Option<InputAnswer> {
    match decision {
        Decision::Text { text } => Some(InputAnswer::Text(text.clone())),
        Decision::Selected { options } => Some(InputAnswer::Selected(options.clone())),
        Decision::Expired => Some(InputAnswer::Refused("nobody answered in time".to_owned())),
        Decision::Approve
        | Decision::ApproveWithEdits { .. }
        | Decision::Deny { .. }
        | Decision::DenyAndStop { .. }
        | Decision::AnswerInPlace { .. }
        | Decision::Withdrawn => None,
    }
}
