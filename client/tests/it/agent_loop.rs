//! A scripted `AgentLoop`: each call of a stream plays the next scene.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use agentloop_client::v1::{
    AbortRequest, AbortResponse, GetRunRequest, GetRunResponse, ListPendingRequest, ListPendingResponse,
    ListRunsRequest, ListRunsResponse, ResumeRunRequest, ResumeRunResponse, RunEvent, RunRequest,
    RunResponse, RunResult, RunStreamRequest, RunStreamResponse, StepRequest, StepResponse,
    SubmitApprovalRequest, SubmitApprovalResponse, SubmitInputRequest, SubmitInputResponse, SubscribeRequest,
    SubscribeResponse, agent_loop_server::AgentLoop,
};
use futures_util::{Stream, StreamExt as _, stream};
use tonic::{Request, Response, Status};

/// What one call of a stream plays, or how one unary call fails before it succeeds.
pub(crate) struct Scene {
    pub(crate) events: Vec<RunEvent>,
    pub(crate) end: End,
}

/// How a scene ends.
pub(crate) enum End {
    /// With OK.
    Ok,
    /// With an error.
    Error(Status),
    /// Not at all.
    Hang,
}

/// A call that came in.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Called {
    Run { run_id: String },
    RunStream { run_id: String },
    Subscribe { run_id: String, after_seq: u64 },
    GetRun,
}

/// The scenes to play, and the calls so far. A call without a scene is refused as UNAVAILABLE.
#[derive(Clone, Default)]
pub(crate) struct Script {
    scenes: Arc<Mutex<VecDeque<Scene>>>,
    calls: Arc<Mutex<Vec<Called>>>,
}

type Events<T> = std::pin::Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Script {
    pub(crate) fn scene(self, events: Vec<RunEvent>, end: End) -> Self {
        self.scenes.lock().expect("no test panics with it").push_back(Scene { events, end });
        self
    }

    pub(crate) fn calls(&self) -> Vec<Called> {
        self.calls.lock().expect("no test panics with it").clone()
    }

    fn called(&self, call: Called) -> Result<Scene, Status> {
        self.calls.lock().expect("no test panics with it").push(call);
        self.scenes
            .lock()
            .expect("no test panics with it")
            .pop_front()
            .ok_or_else(|| Status::unavailable("no scene"))
    }

    fn play<T: Send + 'static>(
        &self,
        call: Called,
        dress: fn(RunEvent) -> T,
    ) -> Result<Response<Events<T>>, Status> {
        let Scene { events, end } = self.called(call)?;
        let events = stream::iter(events).map(move |event| Ok(dress(event)));
        let events: Events<T> = match end {
            End::Ok => Box::pin(events),
            End::Error(status) => Box::pin(events.chain(stream::iter([Err(status)]))),
            End::Hang => Box::pin(events.chain(stream::pending())),
        };
        Ok(Response::new(events))
    }

    fn answer<T>(&self, call: Called, answer: T) -> Result<Response<T>, Status> {
        match self.called(call)?.end {
            End::Error(status) => Err(status),
            End::Ok | End::Hang => Ok(Response::new(answer)),
        }
    }
}

#[tonic::async_trait]
impl AgentLoop for Script {
    type RunStreamStream = Events<RunStreamResponse>;
    type SubscribeStream = Events<SubscribeResponse>;

    async fn run(&self, request: Request<RunRequest>) -> Result<Response<RunResponse>, Status> {
        let run_id = request.into_inner().input.and_then(|input| input.run_id).unwrap_or_default();
        let result = RunResult { run_id: run_id.clone(), ..RunResult::default() };
        self.answer(Called::Run { run_id }, RunResponse { result: Some(result) })
    }

    async fn run_stream(
        &self,
        request: Request<RunStreamRequest>,
    ) -> Result<Response<Self::RunStreamStream>, Status> {
        let run_id = request.into_inner().input.and_then(|input| input.run_id).unwrap_or_default();
        self.play(Called::RunStream { run_id }, |event| RunStreamResponse { event: Some(event) })
    }

    async fn subscribe(
        &self,
        request: Request<SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let SubscribeRequest { run_id, after_seq, .. } = request.into_inner();
        let call = Called::Subscribe { run_id, after_seq };
        self.play(call, |event| SubscribeResponse { event: Some(event) })
    }

    async fn get_run(&self, _: Request<GetRunRequest>) -> Result<Response<GetRunResponse>, Status> {
        self.answer(Called::GetRun, GetRunResponse { run: Some(agentloop_client::v1::Run::default()) })
    }

    async fn abort(&self, _: Request<AbortRequest>) -> Result<Response<AbortResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn submit_approval(
        &self,
        _: Request<SubmitApprovalRequest>,
    ) -> Result<Response<SubmitApprovalResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn submit_input(
        &self,
        _: Request<SubmitInputRequest>,
    ) -> Result<Response<SubmitInputResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn step(&self, _: Request<StepRequest>) -> Result<Response<StepResponse>, Status> {
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
