//! Performs the effects of a transition. An effect's result comes back as an input, through the mailbox or as the output of
//! the running effect.

use std::collections::VecDeque;

use agentloop_core::entry::CompactionReason;
use agentloop_core::host::CallUpdate;
use agentloop_core::id::{Attempt, CallSlot, EntryNo};
use agentloop_core::run::effect::Effect;
use agentloop_core::run::input::Input;
use agentloop_core::run::machine::Transition;
use agentloop_core::run::plan::Situation;
use agentloop_core::run::state::Phase;
use agentloop_core::time::Timestamp;
use tokio::sync::oneshot;
use tokio::time::{Duration, Instant, timeout_at};

use crate::engine::effect::compact::CompactionEffect;
use crate::engine::effect::model_call::ModelCallEffect;
use crate::engine::effect::prepare::prepare;
use crate::engine::feed::ModelAttempt;
use crate::engine::run::task::RunTask;
use crate::tool::Seek;

/// Responses to seeks that another replica is to give.
type SeekResponses = VecDeque<(CallSlot, oneshot::Receiver<CallUpdate>)>;

/// The longest wait for another replica's responses to the seeks of one transition. Later ones cost a commit more.
const SEEK_WAIT: Duration = Duration::from_millis(10);

impl RunTask {
    /// Seeks hosts before the transition is durable. If a host has room at once, the call's offer is part of the same commit.
    /// A call that is to stop seeking does so at once too, in the order of the effects: it may seek again in the same transition.
    /// Adds the responses that are to come from another replica, and takes away those of calls that stop seeking.
    pub(in crate::engine) fn seek_hosts(
        &mut self,
        transition: &mut Transition,
        now: Timestamp,
        responses: &mut SeekResponses,
    ) {
        let mut at = 0;
        while at < transition.effects.len() {
            match &transition.effects[at] {
                Effect::SeekHost { slot, tool, on } => {
                    let (slot, tool, on) = (*slot, tool.clone(), on.clone());
                    transition.effects.remove(at);
                    let (origin, call) = (self.run_origin(), self.call_id(slot));
                    let seek = self.deps.tools.seek(&origin, &call, &tool, on.as_ref());
                    if seek == Seek::Queued {
                        let response = self.deps.tools.seek_response(self.tenant(), &call);
                        responses.extend(response.map(|response| (slot, response)));
                    } else {
                        self.sought(transition, slot, seek, now);
                    }
                }
                Effect::StopSeeking { slot } => {
                    let slot = *slot;
                    transition.effects.remove(at);
                    responses.retain(|(of, _)| *of != slot);
                    self.deps.tools.stop_seeking(self.tenant(), &self.call_id(slot));
                }
                _ => at += 1,
            }
        }
    }

    /// Waits a moment for the responses to seeks, where another replica has the hosts. Without that, each call's offer would be a
    /// commit of its own. A response may lead to further seeks.
    pub(in crate::engine) async fn wait_for_seeks(
        &mut self,
        transition: &mut Transition,
        mut responses: SeekResponses,
    ) {
        let until = Instant::now() + SEEK_WAIT;
        while let Some((slot, mut response)) = responses.pop_front() {
            let response = match timeout_at(until, &mut response).await {
                Ok(response) => response.ok(),
                Err(_late) => {
                    // From here on it goes to the mailbox. It may have come until here.
                    response.close();
                    response.try_recv().ok()
                }
            };
            if let Some(update) = response {
                let now = self.deps.clock.now();
                self.sought(transition, slot, Seek::of(update), now);
                self.seek_hosts(transition, now, &mut responses);
            }
        }
    }

    /// Adds the result of a seek to the transition.
    fn sought(&mut self, transition: &mut Transition, slot: CallSlot, seek: Seek, now: Timestamp) {
        let input = match seek {
            Seek::Queued => return,
            Seek::Granted { host, instance, terms } => Input::HostGranted { slot, host, instance, terms },
            Seek::Denied(message) => Input::HostDenied { slot, message },
        };
        match self.machine.handle(input, now) {
            Ok(more) => transition.merge(more),
            Err(_) => self.deps.tools.stop_seeking(self.tenant(), &self.call_id(slot)),
        }
    }

    /// Retries of the running model call before this attempt.
    fn retries_of_call(&self, attempt: Attempt) -> u32 {
        match self.machine.state().phase() {
            Phase::ModelRunning(call) => call.first_counted.further_until(attempt),
            _ => 0,
        }
    }

    /// Starts one effect. Call this only after the transition that requested it is durable.
    pub(in crate::engine) fn perform(&mut self, effect: Effect) {
        let tools = self.deps.tools.clone();
        match effect {
            Effect::CallModel { model_call, attempt, last_entry, checked } => {
                self.start_model_call(ModelAttempt { model_call, attempt }, last_entry, checked);
            }
            Effect::Plan { decision, situation } => self.start_planning(decision, situation),
            Effect::Prepare => self.running.effect = Some(Box::pin(prepare(self.extensions()))),
            Effect::Compact { number, strategy, reason, level, last_entry } => {
                self.start_compaction(number, strategy, reason, level, last_entry);
            }
            Effect::StopModel { .. }
            | Effect::StopPlanning { .. }
            | Effect::StopPreparing
            | Effect::StopCompacting { .. } => {
                self.running.effect = None;
                self.memory.wait = None;
            }
            Effect::SeekHost { .. } | Effect::StopSeeking { .. } => {
                unreachable!("hosts are sought before the transition is durable")
            }
            Effect::CloseRuntime { host, runtime } => {
                tools.close_runtime(self.tenant(), &host, &runtime);
            }
            Effect::OfferCall(offer) => {
                tools.offer(&self.origin_of_call(offer.slot), &self.call_id(offer.slot), offer);
            }
            Effect::ReclaimCall(offer) => {
                tools.reclaim(&self.origin_of_call(offer.slot), &self.call_id(offer.slot), offer);
            }
            Effect::AnswerInput { slot, attempt, input, answer } => {
                tools.answer_input(self.tenant(), &self.call_ref(slot, attempt), &input, answer);
            }
            Effect::AckResumeState { slot, attempt, resume_no } => {
                tools.ack_resume_state(self.tenant(), &self.call_ref(slot, attempt), resume_no);
            }
            Effect::ReleaseCall { slot, attempt } => {
                tools.release_call(self.tenant(), &self.call_ref(slot, attempt));
            }
            Effect::CancelCall { slot, attempt, cause, reason } => {
                tools.cancel(self.tenant(), &self.call_ref(slot, attempt), cause, &reason);
            }
        }
    }

    fn start_model_call(&mut self, call: ModelAttempt, last_entry: EntryNo, checked: bool) {
        let ModelAttempt { model_call, attempt } = call;
        self.start_with_history(move |task, reserved| {
            let call = ModelCallEffect {
                deps: task.deps.clone(),
                feed: task.feed.clone(),
                tenant: task.permit.key().tenant.clone(),
                created_by: task.row.created_by.clone(),
                spec: task.machine.state().spec().clone(),
                model_call,
                attempt,
                run: task.permit.key().run.clone(),
                iteration: task.machine.state().iterations(),
                has_called_tools: task.machine.state().tool_rounds() > 0,
                retry: task.retries_of_call(attempt),
                system_prompt: task.machine.state().system_prompt(),
                extensions: (!task.machine.state().spec().hooks.is_empty()).then(|| task.extensions()),
                checked,
                memory: reserved,
            };
            task.running.effect = Some(Box::pin(call.prepare(&mut task.history, last_entry)));
        });
    }

    fn start_planning(&mut self, decision: u32, situation: Situation) {
        self.start_with_history(move |task, reserved| {
            let planned = task.call_planner(decision, situation);
            task.running.effect = Some(Box::pin(async move {
                let _reserved = reserved;
                planned.await
            }));
        });
    }

    fn start_compaction(
        &mut self,
        number: u32,
        strategy: String,
        reason: CompactionReason,
        level: u32,
        last_entry: EntryNo,
    ) {
        self.start_with_history(move |task, reserved| {
            assert_eq!(task.history.last(), last_entry, "a context is all of its session");
            let state = task.machine.state();
            let compacting = CompactionEffect {
                deps: task.deps.clone(),
                spec: state.spec().clone(),
                seed: state.seed(),
                number,
                strategy,
                reason,
                level,
                entries: task.history.entries().to_vec(),
            };
            task.running.effect = Some(Box::pin(async move {
                let _reserved = reserved;
                compacting.run().await
            }));
        });
    }
}

/// The call that an input grants a host to.
pub(in crate::engine) fn granted_call(input: &Input) -> Option<CallSlot> {
    if let Input::HostGranted { slot, .. } = input { Some(*slot) } else { None }
}
