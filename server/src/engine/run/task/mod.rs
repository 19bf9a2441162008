//! One task owns one live run. Its order is law: handle, append, publish, perform.

mod commit;
mod effects;
mod park;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::error::Refusal;
use agentloop_core::id::{CallId, CallSlot, Epoch, SessionId, TenantId};
use agentloop_core::run::event::Record;
use agentloop_core::run::input::Input;
use agentloop_core::run::machine::Machine;
use agentloop_core::run::state::Call;
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::trace::SpanOf;
use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::alarm::Alarm;
use crate::engine::deps::Deps;
use crate::engine::effect::extensions::Asking;
use crate::engine::effect::tool_hooks::{Judged, Judging, after_tool};
use crate::engine::feed::Feed;
use crate::engine::history::History;
use crate::engine::ports::RunObserver;
use crate::engine::run::human::Executing;
use crate::engine::run::table::{Mail, Reply, StartPermit};
use crate::engine::run::timers::Wake;
use crate::extension::RunContext;
use crate::store::StoreError;
use crate::tool::CallOwner;

use self::effects::granted_slot;

/// How long an event that may wait waits for one that may not.
const LAZY_WAIT: Millis = Millis(200);
/// How long a run that was brought up for an input, and had no use for it, stays up.
const LINGER: Duration = Duration::from_secs(1);
/// The longest that a timer sleeps, so that a clock that was moved is noticed.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// Why a task ended.
#[derive(Debug)]
pub(in crate::engine) enum End {
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
pub(in crate::engine) struct RunTask {
    pub(in crate::engine) deps: Arc<Deps>,
    pub(in crate::engine) wake: Wake,
    pub(in crate::engine) place: StartPermit,
    pub(in crate::engine) machine: Machine,
    pub(in crate::engine) epoch: Epoch,
    pub(in crate::engine) session: SessionId,
    pub(in crate::engine) history: History,
    pub(in crate::engine) feed: Feed,
    pub(in crate::engine) mailbox: mpsc::Receiver<Mail>,
    /// Those who called for the step whose instruction the planner is asked for, and by what name they did.
    pub(in crate::engine) steppers: Vec<(String, Reply)>,
    /// What is done here in a human's place.
    pub(in crate::engine) executing: Executing,
    /// The model call or the planner's deliberation under way.
    pub(in crate::engine) speaking: Option<Pin<Box<dyn Future<Output = Input> + Send>>>,
    /// Hosts' answers that hooks have their say about.
    pub(in crate::engine) judging: Judging,
    /// Events decided on and not durable yet.
    pub(in crate::engine) unwritten: Vec<Record>,
    /// Observers of this run alone.
    pub(in crate::engine) followers: Vec<Box<dyn RunObserver>>,
    /// When those are written at the latest.
    pub(in crate::engine) write_by: Option<Timestamp>,
    /// Whether the run's row has a time to wake it at.
    pub(in crate::engine) wakes: bool,
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
    pub(in crate::engine) async fn run(&mut self) -> End {
        // What a new owner finds may be the end of it: nothing would wake it.
        if let Some(End::Finished) = self.end() {
            return End::Finished;
        }
        let mut alarm = Alarm::default();
        loop {
            let end = match self.next(&mut alarm).await {
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

    async fn next(&mut self, alarm: &mut Alarm) -> Woken {
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
            () = alarm.ring(Instant::now() + wait.unwrap_or_default()), if wait.is_some() => {
                Woken::Input(Input::DeadlinePassed)
            }
            () = async { tokio::time::sleep(LINGER).await }, if parks => Woken::Idle,
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
                // Nothing is shown before it is durable.
                self.flush().await?;
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
    pub(in crate::engine) async fn step(
        &mut self,
        input: Input,
        reply: Option<Reply>,
    ) -> Result<Option<End>, StoreError> {
        let now = self.deps.clock.now();
        let granted = granted_slot(&input);
        let called_for = match &input {
            Input::Step { request, .. } => Some(request.clone()),
            _ => None,
        };
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
        match called_for {
            Some(step) => self.steppers.extend(reply.map(|reply| (step, reply))),
            None => answer(reply, Ok(())),
        }
        if !self.machine.is_stepping() {
            self.answer_steppers();
        }
        for effect in step.effects {
            self.perform(effect);
        }
        Ok(self.end())
    }

    /// A step was taken, or cannot be any more: something ended the run while its planner was asked.
    fn answer_steppers(&mut self) {
        let state = self.machine.state();
        for (step, reply) in self.steppers.drain(..) {
            let taken = state.steps.contains_key(&step);
            let said = if taken { Ok(()) } else { Err(Refusal::WrongPhase(state.status())) };
            answer(Some(reply), said);
        }
    }

    fn tenant(&self) -> &TenantId {
        &self.place.key().tenant
    }

    fn owner(&self) -> CallOwner {
        CallOwner {
            tenant: self.place.key().tenant.clone(),
            session: self.session.clone(),
            agent: self.machine.state().spec.agent.clone(),
            traceparent: None,
        }
    }

    /// As [`Self::owner`], with what the host of a call is told of its trace.
    fn owner_of(&self, slot: CallSlot) -> CallOwner {
        let state = self.machine.state();
        let traceparent = match self.deps.options.traced {
            true => Some(state.trace().below(SpanOf::Call(slot))),
            false => state.traceparent,
        };
        CallOwner { traceparent, ..self.owner() }
    }

    fn call_id(&self, slot: CallSlot) -> CallId {
        self.machine.state().call_id(slot)
    }
}

fn answer(reply: Option<Reply>, result: Result<(), Refusal>) {
    if let Some(reply) = reply {
        // Whoever asked may have gone; what was decided stands.
        let _gone = reply.send(result);
    }
}
