//! Receives what tools report of calls, and hands it to the runs as inputs. Results are acknowledged once they are
//! recorded; progress and output go to the run's feed without an event.

use std::sync::{Arc, Weak};

use agentloop_core::host::frame::CallRef;
use agentloop_core::id::{CallId, CallSlot, HostId, RunId, RunKey, RuntimeId, TenantId};
use agentloop_core::outcome::Ran;
use agentloop_core::run::input::{CallFinished, Input};
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::state::{CallState, RunState};
use agentloop_core::tool::Digest;
use async_trait::async_trait;

use crate::engine::error::EngineError;
use crate::engine::feed::LiveProgress;
use crate::engine::{Engine, Inner};
use crate::store::StoreError;
use crate::tool::{CallInHand, CallSink, CallUpdate, Disposition, ReportedResult, SinkUnavailable, Verdict};

#[async_trait]
impl CallSink for Engine {
    async fn report_update(&self, tenant: &TenantId, call: &CallId, update: CallUpdate) -> bool {
        let key = RunKey::new(tenant.clone(), call.run.clone());
        let (input, reach) = match report(call.slot, update) {
            CallReport::Input(input, reach) => (input, reach),
            CallReport::Progress(progress) => {
                self.publish_progress(&key, progress);
                return true;
            }
        };
        match reach {
            ReportTargets::Live => {
                // A task that ends meanwhile releases its calls. The run's next task seeks or reclaims a host again.
                let _taken = self.send_to_live(&key, input).await;
                true
            }
            ReportTargets::LiveFirst => {
                self.send_to_live(&key, input.clone()).await
                    || self.record(&key, call, || input.clone()).await
            }
            ReportTargets::Recorded => self.record(&key, call, || input.clone()).await,
        }
    }

    async fn finished(
        &self,
        tenant: &TenantId,
        call: &CallId,
        result: ReportedResult,
    ) -> Result<Verdict, SinkUnavailable> {
        let key = RunKey::new(tenant.clone(), call.run.clone());
        let finished = || CallFinished {
            slot: call.slot,
            attempt: result.attempt,
            lease: Digest::claimed(result.lease.clone()),
            host: result.host.clone(),
            outcome: result.outcome.clone(),
            sent: None,
            applied: Vec::new(),
        };
        let input = || Input::CallFinished(Box::new(finished()));
        match self.deliver(&key, input).await {
            Ok(()) => Ok(Verdict::Recorded),
            Err(EngineError::RunNotFound) => Ok(Verdict::Unknown),
            Err(EngineError::Refused(refusal)) => Ok(verdict(&refusal)),
            Err(error) if error.is_damage() => {
                tracing::warn!(call.id = %call, %error, "a result is not recorded: the journal of its run is damaged");
                Ok(Verdict::Stale)
            }
            // The next owner records it.
            Err(EngineError::ShuttingDown | EngineError::Store(StoreError::Elsewhere)) => {
                Err(SinkUnavailable)
            }
            Err(error) => {
                tracing::warn!(call.id = %call, %error, "cannot record a result now; its host will send it again");
                Err(SinkUnavailable)
            }
        }
    }

    async fn uses_runtime(
        &self,
        tenant: &TenantId,
        runtime: &RuntimeId,
        host: &HostId,
    ) -> Result<bool, SinkUnavailable> {
        let key = RunKey::new(tenant.clone(), runtime.run.clone());
        match self.state_of(&key).await {
            Ok(state) => Ok(state.uses_runtime(runtime, host)),
            Err(EngineError::RunNotFound) => Ok(false),
            Err(error) if error.is_damage() => Ok(!self.is_damaged_for_good(&key).await),
            Err(error) => {
                tracing::warn!(runtime.id = %runtime, %error, "cannot read the run of a runtime; its host has to connect again");
                Err(SinkUnavailable)
            }
        }
    }

    async fn dispositions(
        &self,
        tenant: &TenantId,
        run: &RunId,
        calls: &[CallInHand],
    ) -> Result<Vec<Disposition>, SinkUnavailable> {
        let key = RunKey::new(tenant.clone(), run.clone());
        match self.state_of(&key).await {
            Ok(state) => Ok(calls.iter().map(|claim| disposition(&state, claim)).collect()),
            Err(EngineError::RunNotFound) => Ok(vec![Disposition::Stop; calls.len()]),
            Err(error) if error.is_damage() && self.is_damaged_for_good(&key).await => {
                tracing::warn!(run.id = %run, %error, "a host is told to stop the calls of a run whose journal is damaged");
                Ok(vec![Disposition::Stop; calls.len()])
            }
            Err(error) => {
                tracing::warn!(run.id = %run, %error, "cannot read the run of a host's calls; the host has to connect again");
                Err(SinkUnavailable)
            }
        }
    }
}

/// A report of tools on a call, as the run takes it.
enum CallReport {
    Input(Input, ReportTargets),
    /// For the run's feed. It is no event.
    Progress(LiveProgress),
}

/// The runs that a report reaches.
enum ReportTargets {
    /// Live runs: a run that is made live later reclaims its calls.
    Live,
    /// Live runs at once; others are made live for it.
    LiveFirst,
    /// Every run, and the report counts when it is recorded.
    Recorded,
}

fn report(slot: CallSlot, update: CallUpdate) -> CallReport {
    let (input, reach) = match update {
        CallUpdate::Granted { host, instance, terms } => {
            (Input::HostGranted { slot, host, instance, terms }, ReportTargets::Live)
        }
        CallUpdate::Denied { message } => (Input::HostDenied { slot, message }, ReportTargets::Live),
        CallUpdate::Accepted { attempt, host } => {
            (Input::CallAccepted { slot, attempt, host }, ReportTargets::Live)
        }
        CallUpdate::Checkpoint { attempt, checkpoint } => {
            (Input::CallCheckpoint { slot, attempt, checkpoint }, ReportTargets::Live)
        }
        CallUpdate::InputNeeded { attempt, question, timeout, resume_state } => {
            let question = *question;
            (Input::InputNeeded { slot, attempt, question, timeout, resume_state }, ReportTargets::Recorded)
        }
        CallUpdate::Resumable { attempt, resume_no, state } => {
            (Input::CallResumable { slot, attempt, resume_no, state }, ReportTargets::Recorded)
        }
        CallUpdate::Lost { attempt, message, ran, busy } => {
            let reach = if ran == Ran::No { ReportTargets::LiveFirst } else { ReportTargets::Live };
            (Input::CallLost { slot, attempt, message, ran, busy }, reach)
        }
        CallUpdate::Stopped { attempt, lease, begun } => {
            let reach = if begun { ReportTargets::Live } else { ReportTargets::Recorded };
            (Input::CallStopped { slot, attempt, lease: Digest::claimed(lease), begun }, reach)
        }
        CallUpdate::Progress { attempt, message, fraction } => {
            return CallReport::Progress(LiveProgress::Call { slot, attempt, message, fraction });
        }
        CallUpdate::Output { attempt, chunk_seq, stderr, data } => {
            return CallReport::Progress(LiveProgress::Output { slot, attempt, chunk_seq, stderr, data });
        }
    };
    CallReport::Input(input, reach)
}

/// A weak handle to the engine. The engine owns the tools, so a strong one would keep both alive for ever.
struct WeakSink(Weak<Inner>);

impl WeakSink {
    fn engine(&self) -> Result<Engine, SinkUnavailable> {
        self.0.upgrade().map(Engine).ok_or(SinkUnavailable)
    }
}

#[async_trait]
impl CallSink for WeakSink {
    async fn report_update(&self, tenant: &TenantId, call: &CallId, update: CallUpdate) -> bool {
        match self.engine() {
            Ok(engine) => engine.report_update(tenant, call, update).await,
            Err(SinkUnavailable) => false,
        }
    }

    async fn finished(
        &self,
        tenant: &TenantId,
        call: &CallId,
        result: ReportedResult,
    ) -> Result<Verdict, SinkUnavailable> {
        self.engine()?.finished(tenant, call, result).await
    }

    async fn uses_runtime(
        &self,
        tenant: &TenantId,
        runtime: &RuntimeId,
        host: &HostId,
    ) -> Result<bool, SinkUnavailable> {
        self.engine()?.uses_runtime(tenant, runtime, host).await
    }

    async fn dispositions(
        &self,
        tenant: &TenantId,
        run: &RunId,
        calls: &[CallInHand],
    ) -> Result<Vec<Disposition>, SinkUnavailable> {
        self.engine()?.dispositions(tenant, run, calls).await
    }
}

impl Engine {
    /// The sink that tools report to. It does not keep the engine alive.
    #[must_use]
    pub fn sink(&self) -> Arc<dyn CallSink> {
        Arc::new(WeakSink(Arc::downgrade(&self.0)))
    }

    /// True if a run's own journal is damaged. The run has ended then: its hosts must not look for it again and again.
    async fn is_damaged_for_good(&self, key: &RunKey) -> bool {
        self.ensure_live(key).await.is_err_and(|error| error.is_damage())
    }

    /// Returns false if the run is not live, or its task has ended.
    async fn send_to_live(&self, key: &RunKey, input: Input) -> bool {
        match self.0.live_runs.live(key) {
            Some(mailbox) => mailbox.send(input).await,
            None => false,
        }
    }

    /// Records what a host says once. The run is made live for it: it may be parked, or not be taken up yet after a start.
    /// False: the next owner of the run needs it.
    async fn record(&self, key: &RunKey, call: &CallId, input: impl Fn() -> Input + Send + Sync) -> bool {
        match self.deliver(key, input).await {
            // Refused: the call is settled, of which its host learns in another way; or another run has its id.
            Ok(()) | Err(EngineError::Refused(_) | EngineError::RunNotFound) => true,
            Err(EngineError::ShuttingDown | EngineError::Store(StoreError::Elsewhere)) => false,
            Err(error) => {
                tracing::warn!(call.id = %call, %error, "a report of a host on this call cannot be recorded");
                false
            }
        }
    }

    fn publish_progress(&self, key: &RunKey, progress: LiveProgress) {
        let deps = self.deps();
        if let Some(feed) = deps.feeds.get(key) {
            feed.publish_progress(deps.clock.now(), progress);
        }
    }
}

/// The acknowledgement of a result that the machine refused.
fn verdict(refusal: &Refusal) -> Verdict {
    match refusal {
        Refusal::DuplicateResult => Verdict::Duplicate,
        Refusal::UnknownCall => Verdict::Unknown,
        Refusal::StaleAttempt
        | Refusal::WrongPhase(_)
        | Refusal::StaleModelCall
        | Refusal::UnknownRequest
        | Refusal::AlreadyResolved(_)
        | Refusal::DigestMismatch
        | Refusal::NotADecision
        | Refusal::NotStepped
        | Refusal::StaleDecision
        | Refusal::BadAnswer(_)
        | Refusal::DeniedByRule(_)
        | Refusal::NotAnApprover(_)
        | Refusal::SeveralApprovals(_)
        | Refusal::CannotRemember(_)
        | Refusal::IdReused
        | Refusal::TooManyWaitingMessages => Verdict::Stale,
    }
}

/// The instruction to a host that reconnects and names a call it is still running.
fn disposition(state: &RunState, claim: &CallInHand) -> Disposition {
    let CallRef { call, attempt } = &claim.call;
    let attempt = *attempt;
    if state.lease(call.slot, attempt).as_str() != claim.lease {
        return Disposition::Stop;
    }
    match state.call(call.slot) {
        Some(open) if open.attempt != attempt => Disposition::Stop,
        Some(open) => match open.state {
            CallState::Settled => Disposition::AlreadyRecorded,
            CallState::Offered { .. } | CallState::Accepted { .. } | CallState::InDoubt { .. } => {
                Disposition::Continue
            }
            CallState::Ready { .. } if open.was_released() => Disposition::Stop,
            // Its result is still the call's, also while a human is asked about the next attempt.
            CallState::Ready { .. }
            | CallState::AwaitingInstruction { .. }
            | CallState::AwaitingApproval { .. } => Disposition::Continue,
            CallState::Proposed | CallState::AwaitingInput { .. } | CallState::Suspended { .. } => {
                Disposition::Stop
            }
        },
        None if state.settled_calls().get(&call.slot) == Some(&attempt) => Disposition::AlreadyRecorded,
        None => Disposition::Stop,
    }
}
