//! The task of one live run. It handles one input at a time, always in this order: handle, append, publish, perform.

mod commit;
mod effects;
pub(in crate::engine) mod human;
mod memory;
mod park;
mod plan;
pub(in crate::engine) mod results;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::host::frame::CallRef;
use agentloop_core::id::{Attempt, CallId, CallSlot, Epoch, SessionId, TenantId};
use agentloop_core::outcome::Ran;
use agentloop_core::run::event::Record;
use agentloop_core::run::input::{Input, ResponseSoFar};
use agentloop_core::run::machine::Machine;
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::state::{CallState, Phase};
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::trace::RunSpan;
use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::alarm::Alarm;
use crate::audit;
use crate::auth::UsePermit;
use crate::engine::deps::Deps;
use crate::engine::effect::complete::priced;
use crate::engine::effect::extensions::RunExtensions;
use crate::engine::feed::Feed;
use crate::engine::history::History;
use crate::engine::ports::RunObserver;
use crate::engine::run::recovery_order::RecoveryPlace;
use crate::engine::run::table::{InputReplySender, Mail, StartPermit};
use crate::engine::run::timers::WakeSignal;
use crate::engine::shards::GivenAwayShards;
use crate::extension::RunContext;
use crate::memory::Charge;
use crate::store::StoreError;
use crate::tool::CallOrigin;

pub(in crate::engine) use self::commit::RunWrite;
use self::effects::granted_call;
use self::human::PendingAnswers;
use self::memory::{MemoryWait, WaitEnd};
use self::results::{HookedResult, RunningHooks};

/// The longest time that an event that may be written late waits for others to be written with it.
const DELAYED_WRITE_MAX: Millis = Millis(200);
/// The time without any input after which the task of a run that waits parks it.
const IDLE_PARK_WAIT: Duration = Duration::from_secs(1);
/// The longest sleep, so that a change of the system clock is noticed.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// The reason why a task ended.
#[derive(Debug)]
pub(in crate::engine) enum TaskEnd {
    /// The run has finished.
    Finished,
    /// The run waits for something outside or for a distant deadline.
    Parked,
    /// The server shuts down. The next start of the server continues the run.
    Stopped,
    /// The store refused or failed a write, so the state in memory may be wrong.
    Lost(StoreError),
}

/// Longest wait for offers of a run whose session is given away. Its next owner reclaims those that are open then.
const LEAVING_OFFERS_WAIT: Duration = Duration::from_millis(500);
/// Time between two looks of a run that stops if hosts have confirmed its offers.
const OFFERS_CHECK_EVERY: Duration = Duration::from_millis(10);

/// Everything that the task of one live run owns.
pub(in crate::engine) struct RunTask {
    pub(in crate::engine) deps: Arc<Deps>,
    pub(in crate::engine) wake_signal: WakeSignal,
    pub(in crate::engine) permit: StartPermit,
    pub(in crate::engine) machine: Machine,
    pub(in crate::engine) epoch: Epoch,
    pub(in crate::engine) session: SessionId,
    pub(in crate::engine) row: RowColumns,
    pub(in crate::engine) history: History,
    pub(in crate::engine) unwritten: Unwritten,
    pub(in crate::engine) feed: Feed,
    pub(in crate::engine) mailbox: mpsc::Receiver<Mail>,
    pub(in crate::engine) running: RunningWork,
    pub(in crate::engine) memory: TaskMemory,
    /// Callers of `Step` whose step has not begun yet, because the planner is still being called.
    pub(in crate::engine) step_callers: Vec<StepCaller>,
    /// True once failures of the store before this task do not count any more.
    pub(in crate::engine) is_past_failure: bool,
    /// Counts the run as live for its caller and tenant, if they have quotas.
    pub(in crate::engine) use_permit: Option<UsePermit>,
    /// Observers that follow this run only.
    pub(in crate::engine) run_observers: Vec<Box<dyn RunObserver>>,
    /// The run's session is given away: whoever gives it away waits until the task has ended.
    pub(in crate::engine) given_away: Option<GivenAwayShards>,
}

/// Columns of the run's row, as they were last written.
#[derive(Default)]
pub(in crate::engine) struct RowColumns {
    /// The beginning of the run's first message.
    pub(in crate::engine) preview: String,
    /// Name of the caller that started the run.
    pub(in crate::engine) created_by: Option<String>,
    /// True if the row has a time at which the timer wakes the run.
    pub(in crate::engine) has_wake_time: bool,
    /// Status after the last durable event. `None` before the first one.
    pub(in crate::engine) status: Option<RunStatus>,
}

/// Events that the machine decided and that are not durable yet.
#[derive(Default)]
pub(in crate::engine) struct Unwritten {
    /// The events, in their order.
    pub(in crate::engine) records: Vec<Record>,
    /// When they are written at the latest. `None` if they are written with the input that made them.
    pub(in crate::engine) write_by: Option<Timestamp>,
}

/// The work that is under way in the task itself.
#[derive(Default)]
pub(in crate::engine) struct RunningWork {
    /// The model call, planner call, preparation or compaction. A run has at most one.
    pub(in crate::engine) effect: Option<Pin<Box<dyn Future<Output = Input> + Send>>>,
    /// Results of tool calls that `post_tool` hooks are looking at.
    pub(in crate::engine) hooks: RunningHooks,
    /// Questions that executors of this process are answering.
    pub(in crate::engine) answers: PendingAnswers,
}

/// The memory that the run has or waits for, beside its history.
pub(in crate::engine) struct TaskMemory {
    /// An effect that waits for memory. Then there is no running effect.
    pub(in crate::engine) wait: Option<MemoryWait>,
    /// The run was taken over, and has not had its memory yet.
    pub(in crate::engine) recovery_place: Option<RecoveryPlace>,
    /// For what the run holds beside its history.
    _base: Charge,
}

impl TaskMemory {
    /// The memory of a run that has requested nothing more yet.
    pub(in crate::engine) fn new(base: Charge) -> Self {
        Self { wait: None, recovery_place: None, _base: base }
    }
}

/// A caller of `Step`, who waits until the step begins.
pub(in crate::engine) struct StepCaller {
    /// The client's id of the request.
    request: String,
    reply: InputReplySender,
}

/// The next thing for the task to do.
enum Wakeup {
    /// The run waits, and nothing came for [`IDLE_PARK_WAIT`].
    Idle,
    /// `None`: every sender is gone, so nothing can reach the run any more.
    Mail(Option<Mail>),
    /// The running effect is done.
    EffectDone(Input),
    /// The wait for memory is over.
    MemoryWaitEnded(WaitEnd),
    /// Other runs wait for memory.
    MemoryWanted,
    /// The machine's deadline has passed, or unwritten events are due.
    Deadline,
    /// Hooks are done with the result of a tool call.
    HooksDone(HookedResult),
    /// An executor has answered a question.
    Answered(Input),
    /// An executor leaves a question to a human.
    NotAnswered,
    /// The server shuts down.
    Stop,
}

impl RunTask {
    /// Works until the run finishes or parks, or the server or the store stops it.
    pub(in crate::engine) async fn run(&mut self) -> TaskEnd {
        // Taking the run over may already have finished it. Nothing would wake the loop then.
        if let Some(TaskEnd::Finished) = self.check_end() {
            return TaskEnd::Finished;
        }
        let mut alarm = Alarm::default();
        loop {
            if self.memory.wait.is_none() {
                self.memory.recovery_place = None;
            }
            let wakeup = self.next_wakeup(&mut alarm).await;
            let end = match self.handle_wakeup(wakeup).await {
                Ok(Some(TaskEnd::Parked)) => self.park().await,
                other => other,
            };
            match end {
                Ok(None) => {}
                Ok(Some(end)) => return end,
                Err(error) => return TaskEnd::Lost(error),
            }
        }
    }

    async fn handle_wakeup(&mut self, wakeup: Wakeup) -> Result<Option<TaskEnd>, StoreError> {
        match wakeup {
            Wakeup::Idle => Ok(Some(TaskEnd::Parked)),
            Wakeup::Stop => self.stop(self.deps.options.offers_wait).await.map(Some),
            Wakeup::Mail(None) => Ok(Some(TaskEnd::Stopped)),
            Wakeup::Mail(Some(mail)) => self.handle_mail(mail).await,
            Wakeup::HooksDone(HookedResult { input, reply }) => self.handle_input(input, Some(reply)).await,
            Wakeup::Answered(input) => self.handle_input(input, None).await,
            Wakeup::NotAnswered => Ok(self.check_end()),
            Wakeup::Deadline => self.handle_input(Input::DeadlinePassed, None).await,
            Wakeup::MemoryWaitEnded(end) => self.handle_memory_wait(end).await,
            Wakeup::MemoryWanted => {
                self.history.unload();
                Ok(None)
            }
            Wakeup::EffectDone(input) => {
                self.running.effect = None;
                self.handle_input(input, None).await
            }
        }
    }

    async fn next_wakeup(&mut self, alarm: &mut Alarm) -> Wakeup {
        let may_park = self.may_park();
        let can_unload = self.can_unload();
        let memory_wanted = self.deps.ledger().wanted();
        if can_unload && self.deps.ledger().is_wanted() {
            return Wakeup::MemoryWanted;
        }
        let due = self.unwritten.write_by.into_iter().chain(self.machine.deadline()).min();
        let wait = due.map(|due| due.since(self.deps.clock.now()).duration().min(SLEEP_MAX));
        let effect = async {
            match self.running.effect.as_mut() {
                Some(effect) => effect.await,
                None => std::future::pending().await,
            }
        };
        let memory_wait_ended = async {
            match self.memory.wait.as_mut() {
                Some(wait) => wait.reserved.as_mut().await,
                None => std::future::pending().await,
            }
        };
        let pending_answers = &mut self.running.answers;
        tokio::select! { biased;
            () = self.deps.tasks.soft().cancelled() => Wakeup::Stop,
            mail = self.mailbox.recv() => Wakeup::Mail(mail),
            input = effect => Wakeup::EffectDone(input),
            end = memory_wait_ended => Wakeup::MemoryWaitEnded(end),
            Some(hooked) = self.running.hooks.next() => Wakeup::HooksDone(hooked),
            input = pending_answers.next() => input.map_or(Wakeup::NotAnswered, Wakeup::Answered),
            () = alarm.wait_until(Instant::now() + wait.unwrap_or_default()), if wait.is_some() => {
                Wakeup::Deadline
            }
            () = memory_wanted, if can_unload => Wakeup::MemoryWanted,
            () = async { tokio::time::sleep(IDLE_PARK_WAIT).await }, if may_park => Wakeup::Idle,
        }
    }

    /// Stops the run. For as long as `wait` at most, it first hears if hosts begin the calls that they were offered. Otherwise a
    /// call that was given back would count as one that may have run.
    async fn stop(&mut self, wait: Duration) -> Result<TaskEnd, StoreError> {
        let until = Instant::now() + wait;
        while self.has_open_offers() && Instant::now() < until {
            tokio::select! { biased;
                Some(mail) = self.mailbox.recv() => {
                    if let Some(TaskEnd::Finished) = self.handle_mail(mail).await? {
                        return Ok(TaskEnd::Finished);
                    }
                }
                () = tokio::time::sleep(OFFERS_CHECK_EVERY) => {}
            }
        }
        self.flush().await?;
        self.record_unbegun_calls().await?;
        Ok(TaskEnd::Stopped)
    }

    /// Closes the mailbox, and records which calls surely did not begin: it is told once, to a run that is live. Nothing is begun
    /// for them any more. All else that is left is told again to the run's next task, or that one requests it.
    async fn record_unbegun_calls(&mut self) -> Result<(), StoreError> {
        self.mailbox.close();
        while let Some(mail) = self.mailbox.recv().await {
            if let Mail::Input(input @ Input::CallLost { ran: Ran::No, .. }) = mail
                // Refused: the call has ended, or is at another attempt.
                && let Ok(transition) = self.machine.handle(input, self.deps.clock.now())
            {
                self.unwritten.records.extend(transition.records);
            }
        }
        self.flush().await
    }

    fn has_open_offers(&self) -> bool {
        let Phase::Tools(calls) = self.machine.state().phase() else { return false };
        calls
            .iter()
            .filter(|call| matches!(call.state, CallState::Offered { .. }))
            .any(|call| self.deps.tools.is_offer_open(self.tenant(), &self.call_id(call.slot)))
    }

    async fn handle_mail(&mut self, mail: Mail) -> Result<Option<TaskEnd>, StoreError> {
        match mail {
            Mail::Input(input) => self.handle_input(input, None).await,
            Mail::InputWithReply { input, reply, act } => {
                let input = self.with_checked_result(input).await?;
                match act {
                    None => self.handle_or_hook(input, reply).await,
                    act => Box::pin(audit::within(act, self.handle_or_hook(input, reply))).await,
                }
            }
            Mail::ReadState(reply) => {
                // The state is shown only as far as it is durable.
                self.flush().await?;
                // The reader may have stopped waiting.
                let _gone = reply.send(Box::new(self.machine.state().clone()));
                Ok(None)
            }
            Mail::GiveAway(given_away)
                if self.given_away.is_none() && given_away.has(self.tenant(), &self.session) =>
            {
                self.given_away = Some(given_away);
                let wait = LEAVING_OFFERS_WAIT.min(self.deps.options.offers_wait);
                Box::pin(self.stop(wait)).await.map(Some)
            }
            Mail::GiveAway(_) => Ok(None),
        }
    }

    /// The run's extensions, with the state as it is now.
    fn extensions(&self) -> RunExtensions {
        let run = RunContext { tenant: self.tenant().clone(), state: Arc::new(self.machine.state().clone()) };
        let deps = &self.deps;
        let (extensions, tools, clock) = (deps.extensions.clone(), deps.tools.clone(), deps.clock.clone());
        RunExtensions { extensions, tools, clock, run }
    }

    /// The response of the model call under way, for an input that may end the run.
    fn response_so_far(&self, input: &Input, now: Timestamp) -> Option<ResponseSoFar> {
        if !matches!(input, Input::Abort { .. } | Input::DeadlinePassed) {
            return None;
        }
        let mut response = self.feed.response_so_far(now)?;
        let model = &self.machine.state().spec().model;
        response.usage = priced(&*self.deps.models, model, response.usage);
        Some(response)
    }

    /// Handles one input: handle, append, publish, perform. Replies once the result, or the refusal, rests on durable
    /// state. Events that may be written late are not appended yet if nobody waits for a reply.
    pub(in crate::engine) async fn handle_input(
        &mut self,
        input: Input,
        reply: Option<InputReplySender>,
    ) -> Result<Option<TaskEnd>, StoreError> {
        let now = self.deps.clock.now();
        let granted = granted_call(&input);
        let step_request = match &input {
            Input::Step { request, .. } => Some(request.clone()),
            _ => None,
        };
        let response = self.response_so_far(&input, now);
        let mut transition = match self.machine.handle_during_response(input, now, response) {
            Ok(transition) => transition,
            Err(refusal) => {
                if let Some(slot) = granted {
                    self.deps.tools.stop_seeking(self.tenant(), &self.call_id(slot));
                }
                // The refusal may rest on events that are not durable yet.
                if reply.is_some() {
                    // They are not of this call: the audit log must not have it as one that changed something.
                    audit::apart(self.flush()).await?;
                }
                send_reply(reply, Err(refusal));
                return Ok(None);
            }
        };
        let mut responses = VecDeque::new();
        self.seek_hosts(&mut transition, now, &mut responses);
        if !responses.is_empty() {
            self.wait_for_seeks(&mut transition, responses).await;
        }
        let may_wait = reply.is_none() && transition.may_wait();
        self.unwritten.records.extend(transition.records);
        if may_wait && self.unwritten.write_by.is_none_or(|by| by > now) {
            if !self.unwritten.records.is_empty() {
                self.unwritten.write_by.get_or_insert(now.after(DELAYED_WRITE_MAX));
            }
            return Ok(None);
        }
        self.flush().await?;
        match step_request {
            Some(request) => self.step_callers.extend(reply.map(|reply| StepCaller { request, reply })),
            None => send_reply(reply, Ok(())),
        }
        if !self.machine.has_pending_step() {
            self.reply_to_step_callers();
        }
        for effect in transition.effects {
            self.perform(effect);
        }
        Ok(self.check_end())
    }

    /// Replies to the callers of `Step`: their step has begun, or the run ended before its planner had responded.
    fn reply_to_step_callers(&mut self) {
        let state = self.machine.state();
        for StepCaller { request, reply } in self.step_callers.drain(..) {
            let has_begun = state.steps().contains_key(&request);
            let verdict = if has_begun { Ok(()) } else { Err(Refusal::WrongPhase(state.status())) };
            send_reply(Some(reply), verdict);
        }
    }

    fn tenant(&self) -> &TenantId {
        &self.permit.key().tenant
    }

    fn run_origin(&self) -> CallOrigin {
        CallOrigin {
            tenant: self.permit.key().tenant.clone(),
            session: self.session.clone(),
            agent: self.machine.state().spec().agent.clone(),
            caller: self.row.created_by.clone(),
            caller_groups: self.machine.state().caller_groups().clone(),
            traceparent: None,
            epoch: self.epoch,
        }
    }

    /// As [`Self::run_origin`], with the trace context that the host of the call gets.
    fn origin_of_call(&self, slot: CallSlot) -> CallOrigin {
        let state = self.machine.state();
        let traceparent = match self.deps.options.traced {
            true => Some(state.trace().parent_of(RunSpan::Call(slot))),
            false => state.traceparent(),
        };
        CallOrigin { traceparent, ..self.run_origin() }
    }

    fn call_id(&self, slot: CallSlot) -> CallId {
        self.machine.state().call_id(slot)
    }

    fn call_ref(&self, slot: CallSlot, attempt: Attempt) -> CallRef {
        CallRef { call: self.call_id(slot), attempt }
    }
}

fn send_reply(reply: Option<InputReplySender>, verdict: Result<(), Refusal>) {
    if let Some(reply) = reply {
        // The caller may have stopped waiting. The verdict holds all the same.
        let _gone = reply.send(verdict);
    }
}
