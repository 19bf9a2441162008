//! One task owns one live run. Its order is law: handle, append, publish, perform.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::error::Refusal;
use agentloop_core::id::{CallId, CallSlot, EntryNo, Epoch, Seq, SessionId, TenantId};
use agentloop_core::run::effect::Effect;
use agentloop_core::run::event::{Outcome, Record};
use agentloop_core::run::input::Input;
use agentloop_core::run::machine::{Machine, Step};
use agentloop_core::run::state::{Call, Phase, State};
use agentloop_core::time::{Millis, Timestamp};
use futures_util::StreamExt as _;
use tokio::sync::{mpsc, oneshot};

use crate::engine::asking::Asking;
use crate::engine::compact::Compacting;
use crate::engine::deps::Deps;
use crate::engine::executing::Executing;
use crate::engine::executor::in_process;
use crate::engine::feed::Feed;
use crate::engine::history::History;
use crate::engine::hooks::{Judged, Judging, after_tool};
use crate::engine::perform::ModelCall;
use crate::engine::prepare::prepare;
use crate::engine::table::{Mail, Mailbox, Vacancy};
use crate::engine::wake::Wake;
use crate::extension::RunContext;
use crate::store::{Append, CreateRun, RunSummary, StoreError};
use crate::tool::{CallOwner, Seek};

/// How long an event that may wait waits for one that may not.
const LAZY_WAIT: Millis = Millis(200);
/// How long a run that was brought up for an input, and had no use for it, stays up.
const LINGER: Duration = Duration::from_secs(1);
/// The longest that a timer sleeps, so that a clock that was moved is noticed.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// Why a task ended.
#[derive(Debug)]
pub(super) enum End {
    /// The run is over.
    Finished,
    /// It waits for someone, or for long.
    Parked,
    /// The server is going down; the run goes on with the next one.
    Stopped,
    /// The store refused or failed: what is in memory is not to be believed.
    Lost(StoreError),
}

/// One live run.
pub(super) struct RunTask {
    pub(super) deps: Arc<Deps>,
    pub(super) wake: Wake,
    pub(super) place: Vacancy,
    pub(super) machine: Machine,
    pub(super) epoch: Epoch,
    pub(super) session: SessionId,
    pub(super) history: History,
    pub(super) feed: Feed,
    pub(super) mailbox: mpsc::Receiver<Mail>,
    /// Those who called for the step whose instruction the planner is asked for.
    pub(super) steppers: Vec<oneshot::Sender<Result<(), Refusal>>>,
    /// What executors of this process do for it.
    pub(super) executing: Executing,
    /// The model call or the planner's deliberation under way.
    pub(super) speaking: Option<Pin<Box<dyn Future<Output = Input> + Send>>>,
    /// Hosts' answers that hooks have their say about.
    pub(super) judging: Judging,
    /// Events decided on and not durable yet.
    pub(super) unwritten: Vec<Record>,
    /// When those are written at the latest.
    pub(super) write_by: Option<Timestamp>,
    /// Whether the run's row has a time to wake it at.
    pub(super) wakes: bool,
}

enum Woken {
    /// Nothing came for a while.
    Idle,
    Mail(Option<Mail>),
    Input(Input),
    /// Hooks had their say about an answer.
    Judged(Judged),
    /// An executor of this process is done.
    Executed(Input),
    /// An executor had nothing to say.
    Nothing,
    Stop,
}

impl RunTask {
    /// Runs until the run is over, parks, or must be given up.
    pub(super) async fn run(&mut self) -> End {
        loop {
            let end = match self.next().await {
                Woken::Idle => Ok(Some(End::Parked)),
                Woken::Stop => self.flush().await.map(|()| Some(End::Stopped)),
                Woken::Executed(input) => self.step(input, None).await,
                Woken::Nothing => Ok(self.end()),
                Woken::Mail(None) => Ok(Some(End::Stopped)),
                Woken::Mail(Some(mail)) => self.mail(mail).await,
                Woken::Judged((input, reply)) => self.step(input, Some(reply)).await,
                Woken::Input(input) => {
                    if !matches!(input, Input::DeadlinePassed) {
                        self.speaking = None;
                    }
                    self.step(input, None).await
                }
            };
            match end {
                Ok(None) => {}
                Ok(Some(End::Parked)) => match self.close().await {
                    Ok(None) => {}
                    Ok(Some(end)) => return end,
                    Err(error) => return End::Lost(error),
                },
                Ok(Some(end)) => return end,
                Err(error) => return End::Lost(error),
            }
        }
    }

    async fn next(&mut self) -> Woken {
        let parks = self.may_park();
        let due = self.write_by.into_iter().chain(self.machine.deadline()).min();
        let wait = due.map(|due| due.since(self.deps.clock.now()).duration().min(SLEEP_MAX));
        let speaking = async {
            match self.speaking.as_mut() {
                Some(call) => call.await,
                None => std::future::pending().await,
            }
        };
        let executing = &mut self.executing;
        tokio::select! { biased;
            () = self.deps.tasks.soft().cancelled() => Woken::Stop,
            mail = self.mailbox.recv() => Woken::Mail(mail),
            input = speaking => Woken::Input(input),
            Some(judged) = self.judging.next() => Woken::Judged(judged),
            input = executing.next() => input.map_or(Woken::Nothing, Woken::Executed),
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {
                Woken::Input(Input::DeadlinePassed)
            }
            () = tokio::time::sleep(LINGER), if parks => Woken::Idle,
        }
    }

    async fn mail(&mut self, mail: Mail) -> Result<Option<End>, StoreError> {
        match mail {
            Mail::Tell(input) => self.step(input, None).await,
            Mail::Ask(input, reply) => match self.judged(&input) {
                Some((asking, call)) => {
                    let judge = async move { (after_tool(asking, call, input).await, reply) };
                    self.judging.push(Box::pin(judge));
                    Ok(None)
                }
                None => self.step(input, Some(reply)).await,
            },
            Mail::Look(reply) => {
                // Whoever stopped looking has no use for it.
                let _gone = reply.send(Box::new(self.machine.state().clone()));
                Ok(None)
            }
        }
    }

    /// Whom to ask about an input, and about which call: a host's answer to an open call, where there are hooks. What
    /// the run will not take anyway is no matter for them.
    fn judged(&self, input: &Input) -> Option<(Asking, Call)> {
        let state = self.machine.state();
        let Input::CallFinished { slot, attempt, lease, .. } = input else { return None };
        if state.spec.hooks.is_empty() || state.lease(*slot, *attempt) != *lease {
            return None;
        }
        let call = state.call(*slot).filter(|call| !call.is_settled() && call.attempt == *attempt)?;
        Some((self.asking(), call.clone()))
    }

    /// Asks extensions about the run as it stands.
    fn asking(&self) -> Asking {
        let run = RunContext { tenant: self.tenant().clone(), state: Arc::new(self.machine.state().clone()) };
        let deps = &self.deps;
        let (extensions, tools, clock) = (deps.extensions.clone(), deps.tools.clone(), deps.clock.clone());
        Asking { extensions, tools, clock, run }
    }

    /// handle → append → publish → perform.
    pub(super) async fn step(
        &mut self,
        input: Input,
        reply: Option<oneshot::Sender<Result<(), Refusal>>>,
    ) -> Result<Option<End>, StoreError> {
        let now = self.deps.clock.now();
        let granted = granted_slot(&input);
        let steps = matches!(input, Input::Step { .. });
        let mut step = match self.machine.handle(input, now) {
            Ok(step) => step,
            Err(refusal) => {
                if let Some(slot) = granted {
                    self.deps.tools.stop_seeking(self.tenant(), &self.call_id(slot));
                }
                // What was decided before is what the refusal rests on.
                if reply.is_some() {
                    self.flush().await?;
                }
                answer(reply, Err(refusal));
                return Ok(None);
            }
        };
        self.seek(&mut step, now);
        let may_wait = reply.is_none() && step.may_wait();
        self.unwritten.extend(step.records);
        if may_wait && self.write_by.is_none_or(|by| by > now) {
            if !self.unwritten.is_empty() {
                self.write_by.get_or_insert(now.after(LAZY_WAIT));
            }
            return Ok(None);
        }
        self.flush().await?;
        if steps && self.machine.is_stepping() {
            self.steppers.extend(reply);
        } else {
            answer(reply, Ok(()));
        }
        if !self.machine.is_stepping() {
            for stepper in self.steppers.drain(..) {
                answer(Some(stepper), Ok(()));
            }
        }
        for effect in step.effects {
            self.perform(effect);
        }
        Ok(self.end())
    }

    /// Seeks hosts before the step is made durable: where there is room at once, the offer needs no commit of its own.
    pub(super) fn seek(&mut self, step: &mut Step, now: Timestamp) {
        let mut at = 0;
        while at < step.effects.len() {
            let Effect::SeekHost { slot, tool, on } = &step.effects[at] else {
                at += 1;
                continue;
            };
            let (slot, tool, on) = (*slot, tool.clone(), on.clone());
            step.effects.remove(at);
            let (owner, call) = (self.owner(), self.call_id(slot));
            let sought = match &on {
                _ if self.tool_executor(&tool).is_some() => Seek::Granted(in_process()),
                Some(host) => self.deps.tools.seek_on(&owner, &call, &tool, host),
                None => self.deps.tools.seek(&owner, &call, &tool),
            };
            let input = match sought {
                Seek::Queued => continue,
                Seek::Granted(host) => Input::SlotGranted { slot, host },
                Seek::Denied(message) => Input::SlotDenied { slot, message },
            };
            match self.machine.handle(input, now) {
                Ok(more) => step.merge(more),
                Err(_) => self.deps.tools.stop_seeking(self.tenant(), &self.call_id(slot)),
            }
        }
    }

    /// Makes durable what was decided, then shows it.
    pub(super) async fn flush(&mut self) -> Result<(), StoreError> {
        self.write(None, None).await
    }

    /// As [`Self::flush`], with what the store needs to know of a new run, and of one that enters its session.
    pub(super) async fn write(
        &mut self,
        create: Option<CreateRun>,
        enter: Option<EntryNo>,
    ) -> Result<(), StoreError> {
        self.write_by = None;
        let Some(first) = self.unwritten.first() else { return Ok(()) };
        let (tenant, run) = self.place.key().clone();
        let after = Seq(first.seq.0 - 1);
        let records = std::mem::take(&mut self.unwritten);
        let jobs = self.deps.jobs.wanted(&tenant, self.machine.state(), &records);
        let has_jobs = !jobs.is_empty();
        let summary = summary(&self.machine, self.parks());
        let wakes = summary.wake_at.is_some();
        self.deps
            .store
            .append(Append {
                tenant,
                run,
                session: self.session.clone(),
                epoch: self.epoch,
                after,
                records: records.clone(),
                summary,
                create,
                enter,
                jobs,
            })
            .await?;
        self.wakes = wakes;
        if has_jobs {
            self.deps.jobs.added();
        }
        self.history.extend(&records);
        let records: Vec<Arc<Record>> = records.into_iter().map(Arc::new).collect();
        self.feed.publish(&records);
        self.executors_see(&records);
        let (tenant, run) = self.place.key();
        for observer in &self.deps.observers {
            for record in &records {
                observer.event(tenant, run, &self.session, record);
            }
        }
        Ok(())
    }

    /// One call each. What leads to an input comes back through the mailbox or as the model's answer.
    pub(super) fn perform(&mut self, effect: Effect) {
        let tools = self.deps.tools.clone();
        match effect {
            Effect::CallModel { model_call, attempt, last_entry, checked } => {
                let call = ModelCall {
                    deps: self.deps.clone(),
                    feed: self.feed.clone(),
                    tenant: self.place.key().0.clone(),
                    spec: self.machine.state().spec.clone(),
                    model_call,
                    attempt,
                    system_prompt: self.machine.state().system_prompt(),
                    asking: (!self.machine.state().spec.hooks.is_empty()).then(|| self.asking()),
                    checked,
                };
                self.speaking = Some(Box::pin(call.prepare(&mut self.history, last_entry)));
            }
            Effect::Plan { decision, situation } => {
                self.speaking = Some(Box::pin(self.planning(decision, situation)));
            }
            Effect::Prepare => self.speaking = Some(Box::pin(prepare(self.asking()))),
            Effect::Compact { number, strategy, reason, level, last_entry } => {
                assert_eq!(self.history.last(), last_entry, "a context is all of its session");
                let state = self.machine.state();
                let compacting = Compacting {
                    deps: self.deps.clone(),
                    spec: state.spec.clone(),
                    seed: state.seed,
                    number,
                    strategy,
                    reason,
                    level,
                    entries: self.history.entries().to_vec(),
                };
                self.speaking = Some(Box::pin(compacting.run()));
            }
            Effect::StopModel { .. }
            | Effect::StopPlanning { .. }
            | Effect::StopPreparing
            | Effect::StopCompacting { .. } => {
                self.speaking = None;
            }
            Effect::SeekHost { .. } => unreachable!("hosts are sought before the step is written"),
            Effect::CloseRuntime { host, runtime } => {
                tools.close_runtime(self.tenant(), &host, &runtime);
            }
            Effect::StopSeeking { slot } => tools.stop_seeking(self.tenant(), &self.call_id(slot)),
            Effect::OfferCall(offer) if self.executes(&offer) => {}
            Effect::ReclaimCall(offer) if self.abandons(&offer) => {}
            Effect::OfferCall(offer) => tools.offer(&self.owner(), &self.call_id(offer.slot), offer),
            Effect::ReclaimCall(offer) => tools.reclaim(&self.owner(), &self.call_id(offer.slot), offer),
            Effect::AnswerInput { slot, attempt, input, answer } => {
                tools.answer_input(self.tenant(), &self.call_id(slot), attempt, &input, answer);
            }
            Effect::CancelCall { slot, attempt, reason } => {
                self.stop_executing(slot);
                tools.cancel(self.tenant(), &self.call_id(slot), attempt, reason);
            }
        }
    }

    /// Whether this was the last step for now.
    fn end(&self) -> Option<End> {
        if matches!(self.machine.state().phase, Phase::Finished { .. }) {
            return Some(End::Finished);
        }
        self.may_park().then_some(End::Parked)
    }

    /// Whether the task may end, and somebody will wake the run: what its row says was true when it was written, and a
    /// clock that is set back makes a short wait a long one.
    fn may_park(&self) -> bool {
        self.parks() && (self.wakes || self.machine.deadline().is_none())
    }

    /// Whether nothing will happen until someone outside, or a distant time, moves the run.
    pub(super) fn parks(&self) -> bool {
        if !self.judging.is_empty() {
            return false;
        }
        let state = self.machine.state();
        match &state.phase {
            Phase::Queued => true,
            Phase::BackingOff { until, .. } => {
                until.since(self.deps.clock.now()) > self.deps.options.park_after
            }
            Phase::New
            | Phase::Preparing
            | Phase::ModelRunning(_)
            | Phase::Compacting(_)
            | Phase::Observed { .. }
            | Phase::Tools(_)
            | Phase::Paused { .. }
            | Phase::Finished { .. } => {
                state.status().is_some_and(|status| status.is_interrupted())
                    && !self.machine.is_stepping()
                    && self.executing.is_empty()
                    && !state.is_at_hosts()
            }
        }
    }

    /// Takes no more mail, and sees to what has come by now. If that brings the run back to life, it opens again.
    async fn close(&mut self) -> Result<Option<End>, StoreError> {
        self.mailbox.close();
        let mut end = Some(End::Parked);
        while let Some(mail) = self.mailbox.recv().await {
            end = match self.mail(mail).await? {
                None if self.may_park() => Some(End::Parked),
                end => end,
            };
            if matches!(end, Some(End::Finished)) {
                return Ok(end);
            }
        }
        if end.is_none() {
            let (mailbox, receiver) = Mailbox::new();
            self.mailbox = receiver;
            self.place.occupy(mailbox);
        }
        if matches!(end, Some(End::Parked)) && self.machine.deadline().is_some() {
            self.wake.parked();
        }
        Ok(end)
    }

    fn tenant(&self) -> &TenantId {
        &self.place.key().0
    }

    fn owner(&self) -> CallOwner {
        CallOwner { tenant: self.place.key().0.clone(), session: self.session.clone() }
    }

    fn call_id(&self, slot: CallSlot) -> CallId {
        self.machine.state().call_id(slot)
    }
}

fn granted_slot(input: &Input) -> Option<CallSlot> {
    if let Input::SlotGranted { slot, .. } = input { Some(*slot) } else { None }
}

fn answer(reply: Option<oneshot::Sender<Result<(), Refusal>>>, result: Result<(), Refusal>) {
    if let Some(reply) = reply {
        // Whoever asked may have gone; what was decided stands.
        let _gone = reply.send(result);
    }
}

/// What the run's row says.
fn summary(machine: &Machine, parks: bool) -> RunSummary {
    let state: &State = machine.state();
    let completed = matches!(state.phase, Phase::Finished { outcome: Outcome::Completed });
    RunSummary {
        status: state.status().expect("a run that is written has started"),
        wake_at: if parks { machine.deadline() } else { None },
        at_hosts: state.is_at_hosts(),
        error: if completed { None } else { state.last_error.clone() },
        usage: state.usage,
        iterations: state.iterations,
        tool_calls: state.tool_calls,
    }
}
