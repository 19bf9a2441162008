//! The service `ToolHost`, which tool hosts connect to, and its error statuses.

use std::pin::Pin;
use std::sync::Arc;

use agentloop_core::host::CloseReason;
use agentloop_core::id::{CallId, TenantId};
use agentloop_proto::v1::tool_host_server::{self, ToolHostServer};
use agentloop_proto::v1::{
    CompleteCallRequest, CompleteCallResponse, ConnectRequest, ConnectResponse, ErrorReason,
    complete_call_request::Outcome,
};
use futures_util::{Stream, StreamExt as _, stream};
use tokio_util::task::TaskTracker;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::grpc::convert::host::{self as convert, Malformed};
use crate::grpc::convert::server_frame::{extension_request, result_verdict, server_frame};
use crate::grpc::status::{Violations, retryable, status};
use crate::tool::{FrameError, Inbound, Outbound, RemoteTools, SinkUnavailable, TooManyHosts, Verdict};

/// Serves `agentloop.v1.ToolHost`.
#[derive(Debug, Clone)]
pub struct ToolHostService {
    tools: Arc<RemoteTools>,
    tasks: TaskTracker,
    max_frame_bytes: usize,
}

impl ToolHostService {
    /// The service for tonic's router. Each host's stream runs on a task of its own, which `tasks` tracks.
    #[must_use]
    pub fn server(tools: Arc<RemoteTools>, tasks: TaskTracker) -> ToolHostServer<Self> {
        let max_frame_bytes = tools.options().max_frame_bytes;
        let service = Self { tools, tasks, max_frame_bytes };
        ToolHostServer::new(service)
            .max_decoding_message_size(max_frame_bytes)
            .max_encoding_message_size(max_frame_bytes)
    }
}

/// The error that a call or stream of this service ends with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum ToolHostError {
    #[error(transparent)]
    TooManyHosts(#[from] TooManyHosts),
    #[error("{field}: {problem}")]
    Malformed { field: &'static str, problem: String },
    #[error("there is no call {0}, or it has another lease token")]
    NoCall(CallId),
    #[error("results cannot be recorded at the moment; keep the result and try again")]
    Unavailable,
    #[error("the host broke the protocol; see the protocol_error frame before this")]
    Violation,
    #[error("the host's protocol version is not supported; see the protocol_error frame before this")]
    Version,
    #[error("another connection with this host id took this one's place")]
    Replaced,
    #[error("the host was silent for too long")]
    Silent,
    #[error("the host does not read what it is sent")]
    NotReading,
    #[error("the server is shutting down")]
    ShuttingDown,
}

impl From<Malformed> for ToolHostError {
    fn from(fault: Malformed) -> Self {
        Self::Malformed { field: fault.field, problem: fault.problem }
    }
}

impl From<ToolHostError> for Status {
    fn from(error: ToolHostError) -> Self {
        let message = error.to_string();
        match error {
            ToolHostError::TooManyHosts(_) => {
                retryable(Code::ResourceExhausted, ErrorReason::TooManyHosts, message)
            }
            ToolHostError::Malformed { field, problem } => Violations::single(field, problem),
            ToolHostError::NoCall(_) => status(Code::NotFound, ErrorReason::CallNotFound, message, []),
            ToolHostError::Unavailable => {
                retryable(Code::Unavailable, ErrorReason::StoreUnavailable, message)
            }
            ToolHostError::Violation => {
                status(Code::InvalidArgument, ErrorReason::ProtocolViolation, message, [])
            }
            ToolHostError::Version | ToolHostError::Replaced => {
                status(Code::FailedPrecondition, ErrorReason::ProtocolViolation, message, [])
            }
            ToolHostError::Silent | ToolHostError::NotReading => {
                retryable(Code::Unavailable, ErrorReason::ProtocolViolation, message)
            }
            ToolHostError::ShuttingDown => retryable(Code::Unavailable, ErrorReason::ShuttingDown, message),
        }
    }
}

/// The error that a stream ends with; `None` after a goodbye.
fn end(reason: CloseReason) -> Option<ToolHostError> {
    match reason {
        CloseReason::Goodbye => None,
        CloseReason::Violation => Some(ToolHostError::Violation),
        CloseReason::Version => Some(ToolHostError::Version),
        CloseReason::Replaced => Some(ToolHostError::Replaced),
        CloseReason::Silent => Some(ToolHostError::Silent),
        CloseReason::NotReading => Some(ToolHostError::NotReading),
        CloseReason::Unavailable => Some(ToolHostError::Unavailable),
        CloseReason::ShuttingDown => Some(ToolHostError::ShuttingDown),
    }
}

#[tonic::async_trait]
impl tool_host_server::ToolHost for ToolHostService {
    type ConnectStream = Pin<Box<dyn Stream<Item = Result<ConnectResponse, Status>> + Send>>;

    /// Returns at once, before the hello: a host's call blocks until the response headers arrive.
    async fn connect(
        &self,
        request: Request<Streaming<ConnectRequest>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let accepted = self.tools.accept(TenantId::local()).map_err(ToolHostError::from);
        let (connection, sending) = accepted?;
        let max = self.max_frame_bytes;
        let frames = request.into_inner().map(move |frame| inbound(frame, max));
        self.tasks.spawn(connection.run(frames));
        let responses = sending.flat_map(|outbound| stream::iter(response(outbound)));
        Ok(Response::new(Box::pin(responses)))
    }

    async fn complete_call(
        &self,
        request: Request<CompleteCallRequest>,
    ) -> Result<Response<CompleteCallResponse>, Status> {
        let verdict = self.complete(request.into_inner()).await?;
        Ok(Response::new(verdict))
    }
}

impl ToolHostService {
    async fn complete(&self, request: CompleteCallRequest) -> Result<CompleteCallResponse, ToolHostError> {
        let answer = match request.outcome {
            Some(Outcome::Result(result)) => convert::result(result)?,
            Some(Outcome::Failed(failed)) => convert::failed(failed)?,
            None => {
                return Err(ToolHostError::Malformed { field: "outcome", problem: "is required".to_owned() });
            }
        };
        let call = answer.call.call.clone();
        match self.tools.complete(&TenantId::local(), answer).await {
            Ok(Verdict::Unknown) => Err(ToolHostError::NoCall(call)),
            Ok(verdict) => {
                let verdict = result_verdict(verdict.for_host()).into();
                Ok(CompleteCallResponse { verdict })
            }
            Err(SinkUnavailable) => Err(ToolHostError::Unavailable),
        }
    }
}

pub(in crate::grpc) fn inbound(
    frame: Result<ConnectRequest, Status>,
    max: usize,
) -> Result<Inbound, FrameError> {
    match frame {
        Ok(frame) => convert::inbound(frame).map_err(FrameError::from),
        // tonic's status for a message above the size limit.
        Err(status) if status.code() == Code::OutOfRange => {
            let message = format!("a frame is larger than {max} bytes");
            Err(FrameError::Malformed { message, call: None })
        }
        // tonic's status for bytes that cannot be decoded.
        Err(status) if status.code() == Code::Internal => {
            Err(FrameError::Malformed { message: "a frame cannot be decoded".to_owned(), call: None })
        }
        Err(_) => Err(FrameError::Broken),
    }
}

pub(in crate::grpc) fn response(outbound: Outbound) -> Option<Result<ConnectResponse, Status>> {
    match outbound {
        Outbound::Frame(frame) => Some(Ok(server_frame(frame))),
        Outbound::Ask(question) => Some(Ok(extension_request(&question))),
        Outbound::End(reason) => end(reason).map(|error| Err(error.into())),
    }
}
