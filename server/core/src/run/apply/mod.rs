//! The fold: how each event changes the state. Nothing else changes it.

mod calls;
mod compaction;

use std::sync::Arc;

use crate::message::ToolCall;
use crate::run::event::{AfterAttempt, Event, Record};
use crate::run::plan::Instruction;
use crate::run::state::{Asked, CallState, ModelCall, News, Phase, State, StepCall};
use crate::time::Timestamp;
use crate::tool::Digest;

use calls::round_of;

impl State {
    /// Takes in one event.
    ///
    /// # Panics
    /// When the event is not the next one or does not fit the state: the journal is not this machine's work, or there
    /// is a bug. The caller treats that as a fault of this run.
    pub fn apply(&mut self, record: &Record) {
        assert_eq!(record.seq, self.seq.next(), "events are dense");
        self.seq = record.seq;
        self.updated_at = record.at;
        if let Some((entry, _)) = record.event.entry() {
            assert_eq!(entry, self.last_entry.next(), "entries are dense");
            self.last_entry = entry;
        }
        if self.beginning.as_ref().is_some_and(|instruction| begins(instruction, &record.event)) {
            self.beginning = None;
        }
        self.apply_event(&record.event, record.at);
    }

    /// One arm per kind of event.
    fn apply_event(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::Started { session, last_entry, spec, seed, queued, traceparent } => {
                assert_eq!(self.phase, Phase::New, "a run starts once");
                self.session = Some(session.clone());
                self.last_entry = *last_entry;
                self.spec = spec.clone();
                self.seed = *seed;
                self.traceparent = *traceparent;
                self.started_at = at;
                self.entered_at = at;
                self.phase = if *queued { Phase::Queued } else { Phase::Preparing };
            }
            Event::SessionEntered { last_entry, rules } => {
                assert_eq!(self.phase, Phase::Queued, "only a queued run enters later");
                self.last_entry = *last_entry;
                if !rules.is_empty() {
                    Arc::make_mut(&mut self.spec).tool_policy.rules.extend_from_slice(rules);
                }
                self.entered_at = at;
                self.phase = Phase::Preparing;
            }
            Event::InputAdded { .. } => {
                if self.phase == Phase::Preparing {
                    // What is put in place of messages that were brought lets none of them in.
                    let brought = std::mem::take(&mut self.brought);
                    self.held.retain(|seq, _| !brought.contains(seq));
                }
            }
            Event::ContextAdded { .. } => {}
            Event::ExtensionApplied { applied, .. } => self.prompt_additions.push(&applied.system_prompt),
            Event::InputHeld { message, steer } => {
                if steer.is_none() && matches!(self.phase, Phase::Queued | Phase::Preparing) {
                    self.brought.insert(self.seq);
                }
                self.held.insert(self.seq, message.clone());
                if let Some(steer) = steer {
                    self.steered.insert(steer.id.clone(), steer.digest.clone());
                }
            }
            Event::InputEntered { held, .. } => {
                self.held.remove(held).expect("only a held message enters later");
                self.brought.remove(held);
            }
            Event::CompactionStarted { number, strategy, reason, level, .. } => {
                self.begin_compaction(*number, strategy, *reason, *level, at);
            }
            Event::CompactionFailed { error, usage, .. } => {
                self.usage += *usage;
                self.last_error = Some(error.clone());
            }
            Event::Compacted { usage, .. } => {
                self.usage += *usage;
                self.last_error = None;
                self.end_compaction();
            }
            Event::ModelCallStarted { model_call, attempt, first_counted, .. } => {
                self.begin_model_call(ModelCall {
                    number: *model_call,
                    attempt: *attempt,
                    first_counted: *first_counted,
                    since: at,
                });
            }
            Event::ModelCallFailed { error, retry_at, .. } => {
                self.last_error = Some(error.clone());
                if let (Phase::ModelRunning(call), Some(until)) = (&self.phase, retry_at) {
                    self.phase = Phase::BackingOff { call: *call, until: *until };
                }
            }
            Event::AssistantMessage { entry, message, finish, usage, duration, full, .. } => {
                self.last_message_entry = *entry;
                self.usage += *usage;
                self.squeezes = 0;
                self.compact_due = *full;
                self.model_time = self.model_time.plus(*duration);
                self.last_message = Some(message.clone());
                self.last_error = None;
                self.phase = round_of(message)
                    .map_or_else(|| Phase::Observed { finish: finish.clone() }, Phase::Tools);
                for call in message.tool_calls() {
                    self.repetition = Some(repeated(self.repetition.take(), call));
                }
                self.tool_rounds += u32::from(matches!(self.phase, Phase::Tools(_)));
            }
            Event::CallProposed {
                slot,
                effect,
                timeout,
                needs_approval,
                asks_human,
                arguments,
                needs_runtime,
                title,
                ..
            } => {
                self.propose(*slot, *effect, *timeout, *needs_approval, at);
                let call = self.open_call(*slot);
                call.needs_runtime = *needs_runtime;
                call.title.clone_from(title);
                if *asks_human {
                    call.asks_human = true;
                    call.state = CallState::AwaitingInput { request: None };
                }
                if let Some(arguments) = arguments {
                    call.arguments.clone_from(arguments);
                    call.changed_by_hook = true;
                }
            }
            Event::Planned { instruction, step, approved, named, .. } => {
                self.decisions += 1;
                self.news = None;
                self.approving.clone_from(approved);
                if let Some(step) = step {
                    let approve = approved.as_ref().or(named.as_ref()).cloned();
                    self.steps.insert(step.clone(), StepCall { seq: self.seq, approve });
                }
                let goes_on = self.release(instruction, at) && approved.is_none();
                self.beginning = if goes_on { None } else { Some(instruction.clone()) };
            }
            Event::CallOffered { slot, attempt, host, .. } => {
                let call = self.open_call(*slot);
                assert_eq!(*attempt, call.attempt + 1, "tries are dense");
                call.attempt = *attempt;
                call.host = Some(host.clone());
                call.first_offered.get_or_insert(at);
                call.state = CallState::Offered { at };
                if call.needs_runtime {
                    let runtime = self.take_runtime(host);
                    self.open_call(*slot).runtime = Some(runtime);
                }
            }
            Event::CallAccepted { slot, .. } => {
                let call = self.open_call(*slot);
                if let CallState::Offered { at } = call.state {
                    call.state = CallState::Accepted { at };
                }
            }
            Event::CallCheckpoint { slot, checkpoint, .. } => {
                self.open_call(*slot).checkpoint = Some(checkpoint.clone());
            }
            Event::CallAttemptFailed { slot, then, .. } => {
                let call = self.open_call(*slot);
                match then {
                    AfterAttempt::Retry { at: not_before } => {
                        call.state = CallState::Ready { since: at, not_before: *not_before };
                    }
                    AfterAttempt::InDoubt => call.state = CallState::InDoubt { request: None, since: at },
                    AfterAttempt::Settle => {}
                }
            }
            Event::CallSettled { slot, attempt, host, message, duration, .. } => {
                self.tool_time = self.tool_time.plus(*duration);
                let answered = if host.is_some() { *attempt } else { 0 };
                self.settle(*slot, *attempt, answered, message);
            }
            Event::HumanRequested { question } => {
                if let Some(slot) = question.slot {
                    self.await_answer(slot, question, at);
                }
                let asked = Asked { question: question.clone(), answer: None };
                self.questions.insert(question.request.clone(), asked);
            }
            Event::HumanResolved { request, slot, answer } => {
                let asked = self.questions.get_mut(request).expect("only what was asked is answered");
                assert!(asked.answer.is_none(), "a question is answered once");
                asked.answer = Some(answer.clone());
                let of_running = asked.question.input().is_some();
                let hold = self.spec.stepped && self.approving.as_ref() != Some(request);
                self.remembered.extend(answer.remembered.as_ref().map(|remembered| remembered.rule.clone()));
                match slot {
                    Some(slot) if of_running => self.open_call(*slot).heard(at),
                    Some(slot) => self.resolve(*slot, answer, hold, at),
                    None => self.news = Some(News::HumanAnswered),
                }
            }
            Event::Paused { error } => {
                let Phase::ModelRunning(call) = self.phase else {
                    panic!("only a model call can pause a run")
                };
                self.last_error = Some(error.clone());
                self.phase = Phase::Paused { call, since: at };
            }
            Event::Resumed { request, .. } => {
                self.resumed.insert(request.clone());
            }
            Event::Finished { outcome, error, .. } => {
                self.keep_settled();
                self.last_error.clone_from(error);
                self.phase = Phase::Finished { outcome: *outcome };
            }
        }
    }

    fn begin_model_call(&mut self, call: ModelCall) {
        self.keep_settled();
        // In older journals the call after a compaction is another try of the one before it.
        let is_new = call.number != self.model_calls;
        let counts_with_the_last = std::mem::take(&mut self.unsent);
        self.iterations += u32::from(is_new && !counts_with_the_last);
        self.model_calls = call.number;
        self.phase = Phase::ModelRunning(call);
    }

    /// Remembers whose answer settled each call of the round that ends.
    fn keep_settled(&mut self) {
        if let Phase::Tools(calls) = &self.phase {
            self.settled.extend(calls.iter().map(|call| (call.slot, call.answered)));
        }
    }
}

/// Whether with this event it has begun to be done.
fn begins(instruction: &Instruction, event: &Event) -> bool {
    match instruction {
        Instruction::CallTools | Instruction::RequestApproval => true,
        Instruction::CallModel
        | Instruction::RequestPrompt { .. }
        | Instruction::RequestSelect { .. }
        | Instruction::Compact { .. }
        | Instruction::Finish { .. } => matches!(
            event,
            Event::ModelCallStarted { .. }
                | Event::CompactionStarted { .. }
                | Event::HumanRequested { .. }
                | Event::Finished { .. }
        ),
    }
}

/// A tool call's digest and how often it came in a row, after one more call.
pub(crate) fn repeated(before: Option<(Digest, u32)>, call: &ToolCall) -> (Digest, u32) {
    let key = Digest::of(&[call.name.as_bytes(), call.arguments.as_bytes()]);
    let times = before.filter(|(last, _)| *last == key).map_or(0, |(_, times)| times);
    (key, times + 1)
}
