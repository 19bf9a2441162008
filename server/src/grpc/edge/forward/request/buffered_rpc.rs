//! An RPC with its one request message, kept so that it can be sent again.

use std::sync::Arc;

use agentloop_core::id::SessionId;
use agentloop_proto::v1::{self as wire, ErrorReason};
use prost::Message as _;
use tonic::body::Body;
use tonic::codegen::{Bytes, http};
use tonic::{Code, Status};

use crate::grpc::edge::forward::request::budget::{BudgetShare, BufferBudget};
use crate::grpc::edge::forward::request::forwarded_rpc::{ForwardedRpc, Head};
use crate::grpc::edge::forward::wire::bodies::{next_frame, of_bytes};
use crate::grpc::edge::message_prefix::{MessagePrefix, PREFIX_BYTES, framed};
use crate::grpc::status::{retryable, status};
use crate::ids::Ids;

/// An RPC with its one request message.
#[derive(Clone)]
pub(in crate::grpc::edge::forward) struct BufferedRpc {
    head: Head,
    /// The message with its prefix, as it came.
    framed: Bytes,
    /// Its part of the budget.
    _share: Option<Arc<BudgetShare>>,
}

impl BufferedRpc {
    /// Reads the request of an RPC, of at most so many bytes.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if it is larger or there is no budget for it; the error of its body if that breaks off.
    pub(in crate::grpc::edge::forward) async fn read(
        request: http::Request<Body>,
        bytes_max: usize,
        budget: &BufferBudget,
    ) -> Result<Self, Status> {
        let (parts, mut body) = request.into_parts();
        let mut framed: Vec<u8> = Vec::new();
        while let Some(frame) = next_frame(&mut body).await {
            let Ok(data) = frame?.into_data() else { continue };
            framed.extend_from_slice(&data);
            if framed.len() > bytes_max.saturating_add(PREFIX_BYTES) {
                let message = format!("a request is larger than {bytes_max} bytes");
                return Err(status(Code::ResourceExhausted, ErrorReason::MessageTooLarge, message, []));
            }
        }
        let full = "too many large requests are under way; try again later";
        let taken = budget.take(framed.len());
        let taken = taken.ok_or_else(|| retryable(Code::ResourceExhausted, ErrorReason::QueueFull, full))?;
        Ok(Self { head: Head::of(parts), framed: framed.into(), _share: Some(Arc::new(taken)) })
    }

    /// The encoded message; `None` if it is compressed or not whole, which the service refuses.
    pub(in crate::grpc::edge::forward) fn message(&self) -> Option<&[u8]> {
        let prefix = MessagePrefix::read(&self.framed)?;
        let message = &self.framed[PREFIX_BYTES..];
        (!prefix.is_compressed && prefix.message_bytes == message.len()).then_some(message)
    }

    /// Sets fields of the message. Encoded messages that follow each other are merged, and the last value counts, so nothing that
    /// this version does not know is lost.
    pub(in crate::grpc::edge::forward) fn set(&mut self, fields: &[u8]) {
        if let Some(message) = self.message() {
            self.framed = framed(&[message, fields]);
        }
    }

    /// The same caller's RPC at another path, with this message, which is small.
    pub(in crate::grpc::edge::forward) fn with(&self, path: &'static str, message: &[u8]) -> Self {
        Self { head: self.head.to_path(path), framed: framed(&[message]), _share: None }
    }

    /// Adds the ids that the caller left to the server. An RPC that is repeated then finds what its first try created. Returns true
    /// if it added any.
    pub(in crate::grpc::edge::forward) fn set_ids(&mut self, ids: &dyn Ids) -> bool {
        let fields = self.message().and_then(|message| missing_ids(self.head.path(), message, ids));
        fields.is_some_and(|fields| {
            self.set(&fields);
            true
        })
    }

    /// True if an `Abort` names a run, or an `AcceptTool` the terms. False for every other RPC.
    pub(in crate::grpc::edge::forward) fn names_its_target(&self) -> bool {
        use wire::abort_request::Target::RunId;
        let Some(message) = self.message() else { return false };
        match self.head.path() {
            "/agentloop.v1.AgentLoop/Abort" => wire::AbortRequest::decode(message)
                .is_ok_and(|request| matches!(request.target, Some(RunId(_)))),
            "/agentloop.v1.Tools/AcceptTool" => {
                wire::AcceptToolRequest::decode(message).is_ok_and(|request| !request.terms_digest.is_empty())
            }
            _ => false,
        }
    }

    /// The session that a `DeleteSession` names.
    pub(in crate::grpc::edge::forward) fn session(&self) -> Option<SessionId> {
        let request = wire::DeleteSessionRequest::decode(self.message()?).ok()?;
        SessionId::parse(request.session_id).ok()
    }
}

impl ForwardedRpc for BufferedRpc {
    fn head(&self) -> &Head {
        &self.head
    }

    fn body(&self) -> Body {
        of_bytes(self.framed.clone())
    }

    fn is_whole(&self) -> bool {
        true
    }
}

/// The fields with the ids that a request leaves to the server.
fn missing_ids(path: &str, message: &[u8], ids: &dyn Ids) -> Option<Vec<u8>> {
    match path {
        // Both requests have the input as their first field.
        "/agentloop.v1.AgentLoop/Run" | "/agentloop.v1.AgentLoop/RunStream" => {
            let input = wire::RunRequest::decode(message).ok()?.input?;
            if input.run_id.is_some() || brings_nothing(&input) {
                return None;
            }
            let input = wire::RunInput { run_id: Some(ids.run().to_string()), ..Default::default() };
            Some(wire::RunRequest { input: Some(input) }.encode_to_vec())
        }
        "/agentloop.v1.Sessions/ImportEntries" => {
            let request = wire::ImportEntriesRequest::decode(message).ok()?;
            let run_id = request.run_id.is_none().then(|| ids.run().to_string())?;
            let fields = wire::ImportEntriesRequest { run_id: Some(run_id), ..Default::default() };
            Some(fields.encode_to_vec())
        }
        "/agentloop.v1.Sessions/CreateSession" => {
            let request = wire::CreateSessionRequest::decode(message).ok()?;
            let session_id = request.session_id.is_none().then(|| ids.session().to_string())?;
            let fields = wire::CreateSessionRequest { session_id: Some(session_id), ..Default::default() };
            Some(fields.encode_to_vec())
        }
        "/agentloop.v1.Sessions/ForkSession" => {
            let request = wire::ForkSessionRequest::decode(message).ok()?;
            let new = request.new_session_id.is_none().then(|| ids.session().to_string())?;
            let fields = wire::ForkSessionRequest { new_session_id: Some(new), ..Default::default() };
            Some(fields.encode_to_vec())
        }
        _ => None,
    }
}

/// True for an input that is refused. With an id it would name a run to join.
fn brings_nothing(input: &wire::RunInput) -> bool {
    let rest = wire::RunInput { on_disconnect: 0, ..input.clone() };
    rest == wire::RunInput::default()
}
