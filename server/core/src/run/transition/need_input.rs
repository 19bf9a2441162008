//! Input of a running call that puts a question to people, by its host.

use crate::id::{Attempt, CallSlot};
use crate::limits::{INPUT_ANSWERS_PER_CALL_BYTES_MAX, INPUTS_PER_CALL_MAX};
use crate::question::{InputAnswer, InputReply, QuestionContent};
use crate::run::event::Event;
use crate::run::human::Question;
use crate::run::refusal::Refusal;
use crate::run::state::AskedQuestion;
use crate::run::transition::builder::TransitionBuilder;
use crate::run::transition::routine::calls;
use crate::time::Millis;

/// A question that a call asks, compared with those that it asked before.
enum KnownQuestion {
    /// It was not asked before.
    New,
    /// It was asked, and is open.
    Open,
    /// The host can be told this at once.
    Answered(InputAnswer),
}

/// The reply to the host of a call in doubt that asks.
const IN_DOUBT: &str =
    "a person decides what became of this call, so nobody is asked for it: end it with what it has";

/// A call in flight asks. A question that was asked before is not asked again: its answer is repeated, once there is
/// one. With a `resume_state`, no host has the call until it is answered. A call that is in doubt, whose host came back, hears
/// an answer that is already there; nothing new is asked for it.
pub(super) fn needed(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    attempt: Attempt,
    content: QuestionContent,
    timeout: Option<Millis>,
    resume_state: Option<Vec<u8>>,
) -> Result<(), Refusal> {
    let open = calls::open(builder, slot)?;
    let is_in_doubt = open.attempt == attempt && open.is_in_doubt();
    let call = if is_in_doubt { open } else { calls::in_flight(builder, slot, attempt)? };
    let tool = call.requested.name.clone();
    let Some(input) = content.input.clone() else { return Ok(()) };
    match find_known(builder, slot, attempt, &content) {
        KnownQuestion::New | KnownQuestion::Open if is_in_doubt => {
            builder.answer(slot, attempt, input, InputAnswer::Refused(IN_DOUBT.to_owned()));
            return Ok(());
        }
        KnownQuestion::New => {}
        KnownQuestion::Open => return Ok(()),
        KnownQuestion::Answered(answer) => {
            builder.answer(slot, attempt, input, answer);
            return Ok(());
        }
    }
    let asked = asked_by(builder, slot, attempt).count();
    if asked >= INPUTS_PER_CALL_MAX {
        let refused = format!("a call may ask {INPUTS_PER_CALL_MAX} questions at most");
        builder.answer(slot, attempt, input, InputAnswer::Refused(refused));
        return Ok(());
    }
    if !has_room_for_answer(builder, slot, &input) {
        let refused = format!(
            "the answers to the call's questions have {INPUT_ANSWERS_PER_CALL_BYTES_MAX} bytes, which is the most: \
             end the call with what it has"
        );
        builder.answer(slot, attempt, input, InputAnswer::Refused(refused));
        return Ok(());
    }
    let number = u32::try_from(asked + 1).expect("they are few");
    let request = builder.state().call_id(slot).input(attempt, number);
    let timeout = timeout.or(builder.state().spec().approval_timeout);
    let question = Question::with_content(request, content, builder.now, timeout);
    let question = Question { slot: Some(slot), tool, ..question };
    builder.emit(Event::HumanRequested { question, resume_state });
    Ok(())
}

/// True if there is room for a short answer to one more question of the call.
fn has_room_for_answer(builder: &TransitionBuilder<'_>, slot: CallSlot, input: &str) -> bool {
    let Some(call) = builder.state().call(slot) else { return false };
    let least = InputReply::size_of(input, &InputAnswer::Visited(true));
    builder.state().answered_bytes(call) + least <= INPUT_ANSWERS_PER_CALL_BYTES_MAX
}

/// Looks up a question. The answer to an earlier attempt counts if that attempt asked the same.
fn find_known(
    builder: &TransitionBuilder<'_>,
    slot: CallSlot,
    attempt: Attempt,
    content: &QuestionContent,
) -> KnownQuestion {
    let same_input = |asked: &&AskedQuestion| asked.question.input() == content.input.as_deref();
    if let Some(asked) = asked_by(builder, slot, attempt).find(same_input) {
        if asked.question.digest != content.digest() {
            let refused = "the input_id is that of another question of this call".to_owned();
            return KnownQuestion::Answered(InputAnswer::Refused(refused));
        }
        let answer = asked.answer.as_ref().and_then(|answer| answer.decision.input_answer());
        return answer.map_or(KnownQuestion::Open, KnownQuestion::Answered);
    }
    let earlier = (1..attempt.0).rev().flat_map(|attempt| asked_by(builder, slot, Attempt(attempt)));
    let mut same = earlier.filter(same_input).filter(|asked| asked.question.digest == content.digest());
    let answer = same.find_map(|asked| asked.answer.as_ref().filter(|answer| answer.decision.is_input()));
    let answer = answer.and_then(|answer| answer.decision.input_answer());
    answer.map_or(KnownQuestion::New, KnownQuestion::Answered)
}

/// The questions of an attempt, in the order in which they were asked.
fn asked_by<'a>(
    builder: &'a TransitionBuilder<'_>,
    slot: CallSlot,
    attempt: Attempt,
) -> impl Iterator<Item = &'a AskedQuestion> {
    let call = builder.state().call_id(slot);
    let number = 1..=u32::try_from(INPUTS_PER_CALL_MAX).expect("they are few");
    number.map_while(move |number| builder.state().question(&call.input(attempt, number)))
}
