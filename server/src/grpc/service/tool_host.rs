//! The service `ToolHost`, which tool hosts connect to, and its error statuses.

use std::pin::Pin;
use std::sync::Arc;

use agentloop_core::host::CloseReason;
use agentloop_core::host::frame::ServerFrame;
use agentloop_core::id::{CallId, TenantId};
use agentloop_proto::v1::tool_host_server::{self, ToolHostServer};
use agentloop_proto::v1::{
    CompleteCallRequest, CompleteCallResponse, ConnectRequest, ConnectResponse, ErrorReason,
    complete_call_request::Outcome,
};
use futures_util::{Stream, StreamExt as _, stream};
use tokio_util::task::TaskTracker;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::auth::{Quota, Quotas};
use crate::grpc::caller::{Caller, tenant};
use crate::grpc::convert::host::server_frame::{
    extension_request, forwarded_request, result_verdict, server_frame,
};
use crate::grpc::convert::host::{self as convert, Malformed};
use crate::grpc::status::{Violations, quota_exceeded, retryable, status};
use crate::pace::{Pace, Paced};
use crate::tool::{FrameError, Inbound, NotAccepted, Outbound, RemoteTools, SinkUnavailable, Verdict};

/// Size of a fault in the status at the end of a stream. Statuses travel in headers, which peers bound.
const FAULT_BYTES_MAX: usize = 1024;

/// Serves `agentloop.v1.ToolHost`.
#[derive(Debug, Clone)]
pub struct ToolHostService {
    tools: Arc<RemoteTools>,
    tasks: TaskTracker,
    quotas: Option<Quotas>,
    max_frame_bytes: usize,
    /// The pace of acknowledgements for hosts at other replicas.
    pace: Pace,
}

impl ToolHostService {
    /// The service for tonic's router. Each host's stream runs on a task of its own, which `tasks` tracks.
    #[must_use]
    pub fn server(
        tools: Arc<RemoteTools>,
        tasks: TaskTracker,
        quotas: Option<Quotas>,
    ) -> ToolHostServer<Self> {
        let service = Self::new(tools, tasks, quotas);
        let max_frame_bytes = service.max_frame_bytes;
        ToolHostServer::new(service)
            .max_decoding_message_size(max_frame_bytes)
            .max_encoding_message_size(max_frame_bytes)
    }

    /// The service itself.
    pub(in crate::grpc) fn new(tools: Arc<RemoteTools>, tasks: TaskTracker, quotas: Option<Quotas>) -> Self {
        let max_frame_bytes = tools.options().max_frame_bytes;
        Self { tools, tasks, quotas, max_frame_bytes, pace: Pace::new() }
    }
}

/// The error that an RPC or stream of this service ends with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum ToolHostError {
    #[error(transparent)]
    NotAccepted(#[from] NotAccepted),
    #[error("{field}: {problem}")]
    Malformed { field: &'static str, problem: String },
    #[error("there is no call {0}, or it has another lease token")]
    NoCall(CallId),
    #[error("results cannot be recorded at the moment; keep the result and try again")]
    Unavailable,
    #[error("the host broke the protocol: {0}")]
    Violation(String),
    #[error("{0}")]
    Version(String),
    #[error("another connection with this host id took this one's place")]
    Replaced,
    #[error("the host sent nothing for the lease timeout; send a heartbeat as often as the welcome says")]
    Silent,
    #[error("the host does not read its stream, and too much waits to be sent; connect again and read it")]
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
            ToolHostError::NotAccepted(NotAccepted::TooManyHosts { .. }) => {
                retryable(Code::ResourceExhausted, ErrorReason::TooManyHosts, message)
            }
            ToolHostError::Malformed { field, problem } => Violations::single(field, problem),
            ToolHostError::NoCall(_) => status(Code::NotFound, ErrorReason::CallNotFound, message, []),
            ToolHostError::Unavailable => {
                retryable(Code::Unavailable, ErrorReason::StoreUnavailable, message)
            }
            ToolHostError::Violation(_) => {
                status(Code::InvalidArgument, ErrorReason::ProtocolViolation, message, [])
            }
            ToolHostError::Version(_) | ToolHostError::Replaced => {
                status(Code::FailedPrecondition, ErrorReason::ProtocolViolation, message, [])
            }
            ToolHostError::Silent | ToolHostError::NotReading => {
                retryable(Code::Unavailable, ErrorReason::ProtocolViolation, message)
            }
            ToolHostError::NotAccepted(NotAccepted::ShuttingDown) | ToolHostError::ShuttingDown => {
                retryable(Code::Unavailable, ErrorReason::ShuttingDown, message)
            }
        }
    }
}

/// The error that a stream ends with, for the fault that the host was told before; `None` after a goodbye, and where the
/// host is to connect again.
fn end(reason: CloseReason, fault: String) -> Option<ToolHostError> {
    match reason {
        CloseReason::Goodbye | CloseReason::Reconnect => None,
        CloseReason::Violation => Some(ToolHostError::Violation(fault)),
        CloseReason::Version => Some(ToolHostError::Version(fault)),
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

    /// Returns at once, before the hello: the RPC of a host blocks until the response headers arrive.
    async fn connect(
        &self,
        request: Request<Streaming<ConnectRequest>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let caller = Caller::of(&request);
        let use_permit =
            self.quotas.as_ref().map(|quotas| quotas.hold(Quota::Hosts, caller.tenant(), caller.name()));
        let use_permit = use_permit.transpose().map_err(|exceeded| quota_exceeded(&exceeded))?;
        let accepted =
            self.tools.accept_as(tenant(&request), caller.host_identity()).map_err(ToolHostError::from);
        let (connection, sending) = accepted?;
        let max = self.max_frame_bytes;
        let frames = request.into_inner().map(move |frame| inbound(frame, max));
        let running = connection.run(frames);
        let (tools, tenant, link) = (self.tools.clone(), caller.tenant().clone(), caller.link());
        self.tasks.spawn(async move {
            let host = running.await;
            drop(use_permit);
            if let (Some(host), Some(link)) = (host, link)
                && link.is_lost().await
            {
                tools.link_lost(&tenant, host);
            }
        });
        let sending = match caller.is_at_another_replica() {
            true => Paced::new(sending, self.pace, is_acknowledgement).left_stream(),
            false => sending.right_stream(),
        };
        let mut responses = Responses::default();
        let sent = sending.flat_map(move |outbound| stream::iter(responses.next(outbound)));
        Ok(Response::new(Box::pin(sent)))
    }

    async fn complete_call(
        &self,
        request: Request<CompleteCallRequest>,
    ) -> Result<Response<CompleteCallResponse>, Status> {
        let tenant = tenant(&request);
        let verdict = self.complete(&tenant, request.into_inner()).await?;
        Ok(Response::new(verdict))
    }
}

impl ToolHostService {
    async fn complete(
        &self,
        tenant: &TenantId,
        request: CompleteCallRequest,
    ) -> Result<CompleteCallResponse, ToolHostError> {
        let result = match request.outcome {
            Some(Outcome::Result(result)) => convert::result(result)?,
            Some(Outcome::Failed(failed)) => convert::failed(failed)?,
            None => {
                return Err(ToolHostError::Malformed { field: "outcome", problem: "is required".to_owned() });
            }
        };
        let call = result.call.call.clone();
        match self.tools.complete(tenant, result).await {
            Ok(Verdict::Unknown) => Err(ToolHostError::NoCall(call)),
            Ok(verdict) => {
                let verdict = result_verdict(verdict.for_host()).into();
                Ok(CompleteCallResponse { verdict })
            }
            Err(SinkUnavailable) => Err(ToolHostError::Unavailable),
        }
    }
}

/// The host works on without it, and keeps the result for so long.
fn is_acknowledgement(outbound: &Outbound) -> bool {
    matches!(outbound, Outbound::Frame(ServerFrame::ResultAck { .. }))
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

/// Converts what a host is sent. The status at the end repeats the fault: many clients show nothing else.
#[derive(Debug, Default)]
pub(in crate::grpc) struct Responses {
    /// The fault of the host that the last `protocol_error` named.
    fault: String,
}

impl Responses {
    pub(in crate::grpc) fn next(&mut self, outbound: Outbound) -> Option<Result<ConnectResponse, Status>> {
        match outbound {
            Outbound::Frame(frame) => {
                if let ServerFrame::ProtocolError { message, .. } = &frame {
                    let end = message.floor_char_boundary(FAULT_BYTES_MAX);
                    message[..end].clone_into(&mut self.fault);
                }
                Some(Ok(server_frame(frame)))
            }
            Outbound::ExtensionRequest(request) => Some(Ok(extension_request(&request))),
            Outbound::Forward(request) => Some(Ok(forwarded_request(request))),
            Outbound::End(reason) => {
                let fault = std::mem::take(&mut self.fault);
                end(reason, fault).map(|error| Err(error.into()))
            }
        }
    }
}
