//! A scripted `AgentLoop` service: each call plays the next scene.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use agentloop_client::v1::{
    AbortRequest, AbortResponse, GetRunRequest, GetRunResponse, HumanAnswer, HumanRequest,
    ListPendingRequest, ListPendingResponse, ListRunsRequest, ListRunsResponse, ReplayRunRequest,
    ReplayRunResponse, ResumeRunRequest, ResumeRunResponse, Run, RunEvent, RunInput, RunRequest, RunResponse,
    RunResult, RunStatus, RunStreamRequest, StepRequest, StepResponse, SubmitApprovalRequest,
    SubmitApprovalResponse, SubmitInputRequest, SubmitInputResponse, SubscribeRequest, WatchRunsRequest,
    WatchRunsResponse, abort_request, agent_loop_server::AgentLoop,
};
use agentloop_proto::EventFrame;
use futures_util::{Stream, StreamExt as _, stream};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

/// The script of one call: the events of a stream and its end. A unary call uses only the end.
pub struct Scene {
    pub events: Vec<RunEvent>,
    pub end: End,
}

/// The end of a scene.
pub enum End {
    /// The call ends with status OK.
    Ok,
    /// The call ends with this error status.
    Error(Status),
    /// The stream stays open.
    Hang,
    /// After an approval, an input or an abort, the stream sends these events and ends with OK.
    AfterDecision(Vec<RunEvent>),
}

/// A call that the service received.
#[derive(Debug, Clone, PartialEq)]
pub enum ReceivedCall {
    Run { run_id: String },
    RunStream { run_id: String, after_seq: u64 },
    Subscribe { run_id: String, after_seq: u64 },
    GetRun,
    Abort { run_id: String },
    AbortSession { session_id: String },
    SubmitApproval(Box<SubmitApprovalRequest>),
    SubmitInput(Box<SubmitInputRequest>),
}

/// The scenes still to play, and the calls received so far. A call without a scene fails as UNAVAILABLE.
#[derive(Clone)]
pub struct Script {
    scenes: Arc<Mutex<VecDeque<Scene>>>,
    calls: Arc<Mutex<Vec<ReceivedCall>>>,
    inputs: Arc<Mutex<Vec<RunInput>>>,
    decisions: Arc<Semaphore>,
    /// Number of the last event of the run that `GetRun` shows.
    last_seq: u64,
}

type Events = std::pin::Pin<Box<dyn Stream<Item = Result<EventFrame, Status>> + Send>>;

impl Default for Script {
    fn default() -> Self {
        Script {
            scenes: Arc::default(),
            calls: Arc::default(),
            inputs: Arc::default(),
            decisions: Arc::new(Semaphore::new(0)),
            last_seq: 0,
        }
    }
}

impl Script {
    pub fn scene(self, events: Vec<RunEvent>, end: End) -> Self {
        self.scenes.lock().expect("no test panics with it").push_back(Scene { events, end });
        self
    }

    /// Sets the last event of the run that `GetRun` shows. 0 until then.
    pub fn last_seq(self, last_seq: u64) -> Self {
        Script { last_seq, ..self }
    }

    pub fn calls(&self) -> Vec<ReceivedCall> {
        self.calls.lock().expect("no test panics with it").clone()
    }

    /// The inputs of all `RunStream` calls so far.
    pub fn inputs(&self) -> Vec<RunInput> {
        self.inputs.lock().expect("no test panics with it").clone()
    }

    fn note(&self, call: ReceivedCall) {
        self.calls.lock().expect("no test panics with it").push(call);
    }

    fn called(&self, call: ReceivedCall) -> Result<Scene, Status> {
        self.note(call);
        self.scenes
            .lock()
            .expect("no test panics with it")
            .pop_front()
            .ok_or_else(|| Status::unavailable("no scene"))
    }

    fn play(&self, call: ReceivedCall) -> Result<Response<Events>, Status> {
        let Scene { events, end } = self.called(call)?;
        let events = stream::iter(events).map(|event| Ok(EventFrame::from(&event)));
        let events: Events = match end {
            End::Ok => Box::pin(events),
            End::Error(status) => Box::pin(events.chain(stream::iter([Err(status)]))),
            End::Hang => Box::pin(events.chain(stream::pending())),
            End::AfterDecision(later) => {
                let decisions = Arc::clone(&self.decisions);
                let decided = stream::once(async move { decisions.acquire().await.expect("open").forget() });
                let later = decided.flat_map(move |()| stream::iter(later.clone()));
                Box::pin(events.chain(later.map(|event| Ok(EventFrame::from(&event)))))
            }
        };
        Ok(Response::new(events))
    }

    fn answer<T>(&self, call: ReceivedCall, answer: T) -> Result<Response<T>, Status> {
        match self.called(call)?.end {
            End::Error(status) => Err(status),
            End::Ok | End::Hang | End::AfterDecision(_) => Ok(Response::new(answer)),
        }
    }
}

#[tonic::async_trait]
impl AgentLoop for Script {
    type RunStreamStream = Events;
    type SubscribeStream = Events;

    async fn run(&self, request: Request<RunRequest>) -> Result<Response<RunResponse>, Status> {
        let run_id = request.into_inner().input.and_then(|input| input.run_id).unwrap_or_default();
        let result = RunResult { run_id: run_id.clone(), ..RunResult::default() };
        self.answer(ReceivedCall::Run { run_id }, RunResponse { result: Some(result) })
    }

    async fn run_stream(
        &self,
        request: Request<RunStreamRequest>,
    ) -> Result<Response<Self::RunStreamStream>, Status> {
        let RunStreamRequest { input, after_seq } = request.into_inner();
        let input = input.unwrap_or_default();
        self.inputs.lock().expect("no test panics with it").push(input.clone());
        let run_id = input.run_id.unwrap_or_default();
        self.play(ReceivedCall::RunStream { run_id, after_seq })
    }

    async fn subscribe(
        &self,
        request: Request<SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let SubscribeRequest { run_id, after_seq, .. } = request.into_inner();
        self.play(ReceivedCall::Subscribe { run_id, after_seq })
    }

    async fn get_run(&self, _: Request<GetRunRequest>) -> Result<Response<GetRunResponse>, Status> {
        let run = Run { last_seq: self.last_seq, ..Run::default() };
        let response = GetRunResponse { run: Some(run) };
        if self.scenes.lock().expect("no test panics with it").is_empty() {
            self.note(ReceivedCall::GetRun);
            return Ok(Response::new(response));
        }
        self.answer(ReceivedCall::GetRun, response)
    }

    async fn abort(&self, request: Request<AbortRequest>) -> Result<Response<AbortResponse>, Status> {
        let run_id = match request.into_inner().target {
            Some(abort_request::Target::RunId(run_id)) => run_id,
            Some(abort_request::Target::SessionId(session_id)) => {
                return self.answer(ReceivedCall::AbortSession { session_id }, AbortResponse::default());
            }
            None => return Err(Status::unimplemented("not scripted")),
        };
        self.note(ReceivedCall::Abort { run_id: run_id.clone() });
        self.decisions.add_permits(1);
        Ok(Response::new(AbortResponse { run_id, status: RunStatus::Aborted.into() }))
    }

    async fn submit_approval(
        &self,
        request: Request<SubmitApprovalRequest>,
    ) -> Result<Response<SubmitApprovalResponse>, Status> {
        let request = request.into_inner();
        self.note(ReceivedCall::SubmitApproval(Box::new(request.clone())));
        if request.request_id == "unknown" {
            return Err(Status::not_found("no such question"));
        }
        self.decisions.add_permits(1);
        let answer = HumanAnswer { decision: request.decision, ..HumanAnswer::default() };
        let settled = HumanRequest {
            request_id: request.request_id,
            tool: "send_email".into(),
            answer: Some(answer),
            ..HumanRequest::default()
        };
        Ok(Response::new(SubmitApprovalResponse { request: Some(settled) }))
    }

    async fn submit_input(
        &self,
        request: Request<SubmitInputRequest>,
    ) -> Result<Response<SubmitInputResponse>, Status> {
        let request = request.into_inner();
        self.note(ReceivedCall::SubmitInput(Box::new(request.clone())));
        self.decisions.add_permits(1);
        let settled = HumanRequest { request_id: request.request_id, ..HumanRequest::default() };
        Ok(Response::new(SubmitInputResponse { request: Some(settled) }))
    }

    async fn step(&self, _: Request<StepRequest>) -> Result<Response<StepResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    type WatchRunsStream = stream::Empty<Result<WatchRunsResponse, Status>>;

    async fn watch_runs(
        &self,
        _: Request<WatchRunsRequest>,
    ) -> Result<Response<Self::WatchRunsStream>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn replay_run(&self, _: Request<ReplayRunRequest>) -> Result<Response<ReplayRunResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn list_runs(&self, _: Request<ListRunsRequest>) -> Result<Response<ListRunsResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn list_pending(
        &self,
        _: Request<ListPendingRequest>,
    ) -> Result<Response<ListPendingResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn resume_run(&self, _: Request<ResumeRunRequest>) -> Result<Response<ResumeRunResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }
}
