//! The service `AgentLoop`: each RPC converts the request, calls the engine and converts the result.

mod question;
mod start;
mod stream;

use std::pin::Pin;
use std::sync::Arc;

use agentloop_core::id::{RequestId, RunId, Seq, SessionId};
use agentloop_core::limits::GRPC_MESSAGE_BYTES_MAX;
use agentloop_core::run::input::AbortCause;
use agentloop_core::run::refusal::Refusal;
use agentloop_proto::v1 as wire;
use agentloop_proto::v1::agent_loop_server::AgentLoop;
use futures_util::{Stream, StreamExt as _};
use prost::Message as _;
use prost::encoding::message;
use tonic::{Request, Response, Status};

use self::question::about_question;
use self::stream::{EventSelection, EventStream};
use crate::auth::Role;
use crate::engine::error::EngineError;
use crate::engine::{Engine, Resolution, RunView, StoppedRun};
use crate::grpc::caller::Caller;
use crate::grpc::convert::event::EventConverter;
use crate::grpc::convert::id::{optional, required};
use crate::grpc::convert::people::{human, masked};
use crate::grpc::convert::query::filter;
use crate::grpc::convert::run_input::input::Agents;
use crate::grpc::convert::{instruction, run, short};
use crate::grpc::edge::page::{List, fit_page, traceparent};
use crate::grpc::service::ownership::{Right, check_question, check_run, check_session};
use crate::grpc::status::{Violations, permission_denied};
use crate::model::Models;
use crate::pace::Pace;
use crate::store::{RequestFilter, RunFilter};

/// Serves `agentloop.v1.AgentLoop` for one engine.
pub struct AgentLoopService {
    engine: Engine,
    models: Arc<dyn Models>,
    agents: Arc<Agents>,
    pace: Pace,
}

type WatchStream = Pin<Box<dyn Stream<Item = Result<wire::WatchRunsResponse, Status>> + Send>>;

impl AgentLoopService {
    /// `agents` are the configured agents that a request may name.
    pub fn new(engine: Engine, models: Arc<dyn Models>, agents: Arc<Agents>) -> Self {
        Self { engine, models, agents, pace: Pace::new() }
    }
}

/// A run as people see it: without sensitive arguments.
pub(super) fn shown_run(engine: &Engine, view: &RunView) -> wire::Run {
    let mut run = run::view(view);
    masked::run(engine.masks(), &mut run);
    run
}

/// The first events that fit into `room` bytes. The caller gets the rest by `Subscribe`.
fn take_fitting(room: usize, events: impl Iterator<Item = wire::RunEvent>) -> Vec<wire::RunEvent> {
    let mut bytes = 0;
    let fits = |event: &wire::RunEvent| {
        bytes += message::encoded_len(1, event);
        bytes <= room
    };
    events.take_while(fits).collect()
}

#[tonic::async_trait]
impl AgentLoop for AgentLoopService {
    async fn run(&self, request: Request<wire::RunRequest>) -> Result<Response<wire::RunResponse>, Status> {
        let caller = Caller::of(&request);
        let traceparent = traceparent(&request);
        let (started, mut guard) = self.start(&caller, request.into_inner().input, traceparent).await?;
        let stopped = self.engine.wait(caller.tenant(), &started.run).await;
        guard.disarm();
        let StoppedRun { session, state } = stopped?;
        let mut result = run::result(&session, &state);
        masked::result(self.engine.masks(), &mut result);
        Ok(Response::new(wire::RunResponse { result: Some(result) }))
    }

    type RunStreamStream = EventStream;

    async fn run_stream(
        &self,
        request: Request<wire::RunStreamRequest>,
    ) -> Result<Response<Self::RunStreamStream>, Status> {
        let caller = Caller::of(&request);
        let traceparent = traceparent(&request);
        let wire::RunStreamRequest { input, after_seq } = request.into_inner();
        self.check_after(&caller, input.as_ref(), Seq(after_seq)).await?;
        let (started, guard) = self.start(&caller, input, traceparent).await?;
        let selection = if started.joined { EventSelection::All } else { EventSelection::AllOfNewRun };
        let events = self.events(&caller, &started.run, after_seq, selection, Some(guard)).await?;
        Ok(Response::new(events))
    }

    type SubscribeStream = EventStream;

    async fn subscribe(
        &self,
        request: Request<wire::SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let caller = Caller::of(&request);
        let wire::SubscribeRequest { run_id, after_seq, durable_only } = request.into_inner();
        let run = required("run_id", run_id, RunId::parse)?;
        check_run(&self.engine, &caller, &run, Right::Read).await?;
        let selection = if durable_only { EventSelection::Durable } else { EventSelection::All };
        Ok(Response::new(self.events(&caller, &run, after_seq, selection, None).await?))
    }

    async fn abort(
        &self,
        request: Request<wire::AbortRequest>,
    ) -> Result<Response<wire::AbortResponse>, Status> {
        use wire::abort_request::Target;
        let caller = Caller::of(&request);
        let tenant = caller.tenant();
        let wire::AbortRequest { target, reason } = request.into_inner();
        let reason = short(reason).map_err(|problem| Violations::single("reason", problem))?;
        let run = match target {
            None => return Err(Violations::single("target", "run_id or session_id is required")),
            Some(Target::RunId(run)) => {
                let run = required("run_id", run, RunId::parse)?;
                check_run(&self.engine, &caller, &run, Right::Change).await?;
                self.engine.abort(tenant, &run, AbortCause::Caller, &reason).await?;
                Some(run)
            }
            Some(Target::SessionId(session)) => {
                let session = required("session_id", session, SessionId::parse)?;
                check_session(&self.engine, &caller, &session, Right::Change).await?;
                self.engine.abort_session(tenant, &session, &reason).await?
            }
        };
        let Some(run) = run else { return Ok(Response::new(wire::AbortResponse::default())) };
        // Its row, since its journal may be damaged.
        let row = self.engine.store().run(tenant, &run).await?.ok_or(EngineError::RunNotFound)?;
        let status = run::run_status(row.summary.status);
        Ok(Response::new(wire::AbortResponse { run_id: run.to_string(), status: status.into() }))
    }

    async fn submit_approval(
        &self,
        request: Request<wire::SubmitApprovalRequest>,
    ) -> Result<Response<wire::SubmitApprovalResponse>, Status> {
        let caller = Caller::of(&request);
        let tenant = caller.tenant();
        let mut message = request.into_inner();
        message.decided_by = caller.name_or(message.decided_by);
        let request = required("request_id", std::mem::take(&mut message.request_id), RequestId::parse)?;
        about_question(&self.engine, tenant, &request).await?;
        let resolution = human::approval_resolution(message)?;
        let resolution = Resolution { by: caller.person(resolution.by.name), ..resolution };
        let resolution = self.unmask(tenant, &request, resolution).await?;
        self.engine.decide(tenant, &request, resolution).await?;
        let request = self.request(tenant, &request).await?;
        Ok(Response::new(wire::SubmitApprovalResponse { request: Some(request) }))
    }

    async fn submit_input(
        &self,
        request: Request<wire::SubmitInputRequest>,
    ) -> Result<Response<wire::SubmitInputResponse>, Status> {
        let caller = Caller::of(&request);
        let tenant = caller.tenant();
        let mut message = request.into_inner();
        message.answered_by = caller.name_or(message.answered_by);
        let request = required("request_id", std::mem::take(&mut message.request_id), RequestId::parse)?;
        about_question(&self.engine, tenant, &request).await?;
        let resolution = human::input_resolution(message)?;
        let resolution = Resolution { by: caller.person(resolution.by.name), ..resolution };
        check_question(&self.engine, &caller, &request).await?;
        self.engine.decide(tenant, &request, resolution).await?;
        let request = self.request(tenant, &request).await?;
        Ok(Response::new(wire::SubmitInputResponse { request: Some(request) }))
    }

    async fn step(
        &self,
        request: Request<wire::StepRequest>,
    ) -> Result<Response<wire::StepResponse>, Status> {
        let caller = Caller::of(&request);
        let tenant = caller.tenant();
        let message = request.into_inner();
        let run = required("run_id", message.run_id, RunId::parse)?;
        let request = required("request_id", message.request_id, RequestId::parse)?;
        let approve = optional("approve_request_id", message.approve_request_id, RequestId::parse)?;
        // The question of another run is refused, and the RPC is about the run that it names.
        if let Some(approve) = approve.as_ref().filter(|approve| approve.run().as_ref() == Some(&run)) {
            about_question(&self.engine, tenant, approve).await?;
        }
        if approve.is_some() && !caller.has_any(&[Role::Approver, Role::Operator]) {
            return Err(permission_denied("approve_request_id is for approvers"));
        }
        check_run(&self.engine, &caller, &run, Right::Change).await?;
        let done = self
            .engine
            .step(tenant, &run, request.as_str(), approve.as_ref(), caller.person(String::new()))
            .await
            .map_err(|error| match error {
                // In other requests `request_id` names the question.
                EngineError::Refused(Refusal::BadAnswer(bad)) => {
                    Violations::single("approve_request_id", bad.to_string())
                }
                other => other.into(),
            })?;
        let converter =
            EventConverter::new(run, done.view.row.session.clone()).masking(self.engine.masks().clone());
        let events = done.records.into_iter().map(|record| converter.durable(&record));
        let response = wire::StepResponse {
            events: Vec::new(),
            run: Some(shown_run(&self.engine, &done.view)),
            instruction: Some(instruction::to_wire(&done.instruction)),
        };
        // The run itself takes room too: it repeats the model's message and open questions.
        let room = GRPC_MESSAGE_BYTES_MAX.saturating_sub(response.encoded_len());
        Ok(Response::new(wire::StepResponse { events: take_fitting(room, events), ..response }))
    }

    async fn get_run(
        &self,
        request: Request<wire::GetRunRequest>,
    ) -> Result<Response<wire::GetRunResponse>, Status> {
        let caller = Caller::of(&request);
        let run = required("run_id", request.into_inner().run_id, RunId::parse)?;
        check_run(&self.engine, &caller, &run, Right::Read).await?;
        let view = self.engine.view(caller.tenant(), &run).await?;
        Ok(Response::new(wire::GetRunResponse { run: Some(shown_run(&self.engine, &view)) }))
    }

    async fn list_runs(
        &self,
        request: Request<wire::ListRunsRequest>,
    ) -> Result<Response<wire::ListRunsResponse>, Status> {
        let caller = Caller::of(&request);
        let mut message = request.into_inner();
        let (list, page) = List::begin(caller.tenant(), &mut message)?;
        let list = &list;
        let filter = filter::runs(&mut message)?;
        let Some(filter) = filter else { return Ok(Response::new(wire::ListRunsResponse::default())) };
        let created_by = filter::only_of(caller.reads_only_of(), filter.created_by)?;
        let filter = &RunFilter { created_by, ..filter };
        let (store, tenant) = (self.engine.store(), caller.tenant());
        fit_page(page, |page| async move {
            let page = store.runs(tenant, filter.clone(), page).await?;
            Ok(wire::ListRunsResponse {
                runs: page.rows.iter().map(run::row).collect(),
                next_page_token: list.token(page.next),
            })
        })
        .await
    }

    async fn list_pending(
        &self,
        request: Request<wire::ListPendingRequest>,
    ) -> Result<Response<wire::ListPendingResponse>, Status> {
        let caller = Caller::of(&request);
        let mut message = request.into_inner();
        let (list, page) = List::begin(caller.tenant(), &mut message)?;
        let list = &list;
        let created_by = caller.reads_only_of().map(str::to_owned);
        let mine = message.filter.as_ref().is_some_and(|filter| filter.mine);
        let answerer = mine.then(|| caller.answerer());
        let masks = self.engine.masks().clone();
        let filter = RequestFilter { created_by, answerer, masks, ..filter::pending(&mut message)? };
        let (store, tenant, filter) = (self.engine.store(), caller.tenant(), &filter);
        fit_page(page, |page| async move {
            let page = store.pending(tenant, filter.clone(), page).await?;
            Ok(wire::ListPendingResponse {
                requests: page.rows.iter().map(|row| self.shown_request(row)).collect(),
                next_page_token: list.token(page.next),
            })
        })
        .await
    }

    type WatchRunsStream = WatchStream;

    async fn watch_runs(
        &self,
        request: Request<wire::WatchRunsRequest>,
    ) -> Result<Response<Self::WatchRunsStream>, Status> {
        let caller = Caller::of(&request);
        let wire::WatchRunsRequest { filter, resume_token } = request.into_inner();
        let mut bad = Violations::default();
        let filter = filter::run_filter(filter.unwrap_or_default(), &mut bad);
        bad.check()?;
        let created_by = filter::only_of(caller.reads_only_of(), filter.created_by)?;
        let filter = RunFilter { created_by, ..filter };
        let changes = self.engine.watch_runs(caller.tenant(), filter, &resume_token);
        let changes = changes.map(|change| change.map(run::watched).map_err(Status::from));
        Ok(Response::new(Box::pin(changes)))
    }

    async fn replay_run(
        &self,
        request: Request<wire::ReplayRunRequest>,
    ) -> Result<Response<wire::ReplayRunResponse>, Status> {
        let caller = Caller::of(&request);
        let run = required("run_id", request.into_inner().run_id, RunId::parse)?;
        check_run(&self.engine, &caller, &run, Right::Read).await?;
        let report = self.engine.replay(caller.tenant(), &run).await?;
        Ok(Response::new(wire::ReplayRunResponse {
            events: report.events,
            faithful: report.difference.is_none(),
            difference: report.difference.unwrap_or_default(),
            state_digest: report.state_digest.to_string(),
            context_digest: report.context_digest.map(|digest| digest.to_string()).unwrap_or_default(),
            unverified_events: report.unverified,
        }))
    }

    async fn resume_run(
        &self,
        request: Request<wire::ResumeRunRequest>,
    ) -> Result<Response<wire::ResumeRunResponse>, Status> {
        let caller = Caller::of(&request);
        let tenant = caller.tenant();
        let message = request.into_inner();
        let run = required("run_id", message.run_id, RunId::parse)?;
        let request = required("request_id", message.request_id, RequestId::parse)?;
        let by = short(caller.name_or(message.resumed_by))
            .map_err(|problem| Violations::single("resumed_by", problem))?;
        check_run(&self.engine, &caller, &run, Right::Change).await?;
        self.engine.resume(tenant, &run, request.as_str(), &by).await?;
        let view = self.engine.view(tenant, &run).await?;
        Ok(Response::new(wire::ResumeRunResponse { run: Some(shown_run(&self.engine, &view)) }))
    }
}
