//! The start of a run, or the way back to one that exists.

use agentloop_core::agent::RunSpec;
use agentloop_core::id::{RunId, Seq, SessionId, TenantId};
use agentloop_core::trace::TraceParent;
use agentloop_proto::v1 as wire;
use tonic::Status;

use super::AgentLoopService;
use crate::audit;
use crate::engine::error::EngineError;
use crate::engine::{Author, OnBusy, STRATEGIES, StartRequest, StartedRun};
use crate::grpc::caller::Caller;
use crate::grpc::convert::id::required;
use crate::grpc::convert::people::{masked, policy};
use crate::grpc::convert::run_input::input::{RequestIdentity, agent_name, start_request};
use crate::grpc::convert::run_input::reuse::{GivenFields, names_a_run_only};
use crate::grpc::edge::disconnect::DisconnectGuard;
use crate::grpc::service::ownership::{Right, check_run, check_session};
use crate::grpc::status::{Violations, id_reused, model_not_configured, no_such_agent};

impl AgentLoopService {
    /// Starts or joins the run. If the request says so, the RPC aborts the run on disconnect, as soon as the run exists.
    pub(super) async fn start(
        &self,
        caller: &Caller,
        input: Option<wire::RunInput>,
        traceparent: Option<TraceParent>,
    ) -> Result<(StartedRun, DisconnectGuard), Status> {
        let (tenant, author) = (caller.tenant(), caller.author());
        let input = input.ok_or_else(|| Violations::single("input", "is required"))?;
        let cancel = input.on_disconnect() == wire::DisconnectPolicy::Cancel;
        let (engine, of, link) = (self.engine.clone(), tenant.clone(), caller.link());
        // A steered run follows the disconnect policy of the request that started it.
        let guard = move |started: &StartedRun| {
            let guard = DisconnectGuard::new(engine, of, started.run.clone());
            if cancel && !started.steered { guard.aborting(link) } else { guard }
        };
        if names_a_run_only(&input) {
            let run = required("input.run_id", input.run_id.unwrap_or_default(), RunId::parse)?;
            audit::about("run_id", run.as_str());
            let started = self.engine.join_named(tenant, &run, &author).await?;
            let guard = guard(&started);
            return Ok((started, guard));
        }
        let identity = RequestIdentity::of(&input);
        // Messages that steer enter another run. The write that adds them names it.
        if let Some(run) = identity.run.as_ref().filter(|_| identity.on_busy != OnBusy::Steer) {
            audit::about("run_id", run.as_str());
        }
        // The write of a run names its session. A refusal has no other place for it.
        let session = input.session_id.clone().and_then(|id| SessionId::parse(id).ok());
        let started = self.start_or_join(caller, input, identity, traceparent, guard).await;
        if let (Err(_), Some(session)) = (&started, session) {
            audit::about("session_id", session.as_str());
        }
        started
    }

    async fn start_or_join(
        &self,
        caller: &Caller,
        input: wire::RunInput,
        identity: RequestIdentity,
        traceparent: Option<TraceParent>,
        guard: impl FnOnce(&StartedRun) -> DisconnectGuard + Send + 'static,
    ) -> Result<(StartedRun, DisconnectGuard), Status> {
        let (tenant, author) = (caller.tenant(), caller.author());
        let given = GivenFields::of(&input);
        match self.request_to_start(caller, input, identity.clone()) {
            Ok(request) => {
                let request = StartRequest { traceparent, author: author.clone(), ..request };
                match self.engine.start_with(request.clone(), guard).await {
                    Err(EngineError::IdReused) => Err(self.id_reused(caller, given, &request).await),
                    other => Ok(other?),
                }
            }
            Err(refused) => {
                // The configuration may have changed, but a run with this id may exist from before.
                let started = self.join(tenant, &identity, &author).await?.ok_or(refused)?;
                let guard = guard(&started);
                Ok((started, guard))
            }
        }
    }

    /// The refusal of a request whose run id was used before, with the field that differs if the journal shows it.
    async fn id_reused(&self, caller: &Caller, given: GivenFields, request: &StartRequest) -> Status {
        let Some(run) = &request.run else { return EngineError::IdReused.into() };
        if check_run(&self.engine, caller, run, Right::Change).await.is_err() {
            return EngineError::IdReused.into();
        }
        // One more than the request has: then the number of messages is compared too.
        match self.engine.origin(&request.tenant, run, request.messages.len() + 1).await {
            Ok(Some(origin)) => id_reused(given.differing(request, &origin)),
            Ok(None) => EngineError::IdReused.into(),
            Err(error) => error.into(),
        }
    }

    fn request_to_start(
        &self,
        caller: &Caller,
        input: wire::RunInput,
        identity: RequestIdentity,
    ) -> Result<StartRequest, Status> {
        let name = agent_name(&input);
        let agent = self.agents.get(name).ok_or_else(|| no_such_agent(name, self.agents.keys()))?;
        let tenant = caller.tenant();
        let request = start_request(tenant.clone(), agent, &*self.models, input, identity)?;
        masked::check_rules("input.tool_policy.rules.rules", self.engine.masks(), &request.spec.tool_policy)?;
        policy::check_approvers("input.tool_policy.rules.rules", caller.name(), &request.spec)?;
        self.check(tenant, &request.spec)?;
        Ok(request)
    }

    async fn join(
        &self,
        tenant: &TenantId,
        identity: &RequestIdentity,
        author: &Author,
    ) -> Result<Option<StartedRun>, Status> {
        let RequestIdentity { run: Some(run), digest, on_busy } = identity else { return Ok(None) };
        Ok(self.engine.join(tenant, run, digest, *on_busy, author).await?)
    }

    /// Checks that the model, the tool and the compaction strategy that a run names exist, and that its cost can be known if
    /// it has a limit.
    fn check(&self, tenant: &TenantId, spec: &RunSpec) -> Result<(), Status> {
        for model in [Some(&spec.model), spec.context.summary_model.as_ref()].into_iter().flatten() {
            self.models.resolve(model).map_err(|error| model_not_configured(error.to_string()))?;
        }
        let strategy = &spec.context.strategy;
        if !self.engine.has_strategy(strategy) {
            let problem = format!("no strategy is named {strategy:?}; there is {}", STRATEGIES.join(", "));
            return Err(Violations::single("input.context_policy.strategy", problem));
        }
        let mut bad = Violations::default();
        for model in [Some(&spec.model), spec.context.summary_model.as_ref()].into_iter().flatten() {
            if spec.limits.max_cost_micros.is_some() && self.models.facts(model).prices.is_none() {
                let problem = format!("needs the prices of {model}, which the configuration does not have");
                bad.add("input.loop_limits.max_cost_micros", problem);
            }
        }
        if let Err(error) = self.engine.check_tool_choice(tenant, spec) {
            let field = match error {
                EngineError::NoToolOffered => "input.model_options.tool_choice.mode",
                _ => "input.model_options.tool_choice.name",
            };
            bad.add(field, error.to_string());
        }
        bad.check()
    }

    /// Refuses an `after_seq` beyond the run's last event before the run is started.
    pub(super) async fn check_after(
        &self,
        caller: &Caller,
        input: Option<&wire::RunInput>,
        after: Seq,
    ) -> Result<(), Status> {
        let Some(input) = input.filter(|_| after > Seq(0)) else { return Ok(()) };
        let run = input.run_id.clone().map(RunId::parse).transpose();
        let session = input.session_id.clone().map(SessionId::parse).transpose();
        // Invalid ids are reported later, together with other invalid fields.
        let (Ok(run), Ok(session)) = (run, session) else { return Ok(()) };
        let steered = session.filter(|_| input.on_busy_session() == wire::BusySessionPolicy::Steer);
        // Nothing is told here that the caller has no right to. The start says what is wrong.
        if let Some(run) = &run
            && check_run(&self.engine, caller, run, Right::Change).await.is_err()
        {
            return Ok(());
        }
        if let Some(session) = &steered
            && check_session(&self.engine, caller, session, Right::Change).await.is_err()
        {
            return Ok(());
        }
        let last = self.engine.last_seq(caller.tenant(), run.as_ref(), steered.as_ref()).await?;
        if after > last { Err(EngineError::SeqAhead { last }.into()) } else { Ok(()) }
    }
}
