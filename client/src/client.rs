//! The client: its settings, the generated clients, and the retries of its calls.

use std::{future::Future, time::Duration};

use agentloop_proto::v1::{
    agent_loop_client::AgentLoopClient, server_client::ServerClient, sessions_client::SessionsClient,
    tool_host_client::ToolHostClient, tools_client::ToolsClient,
};
use tonic::{Response, Status};

use crate::{
    Error, Service,
    connect::MESSAGE_BYTES_MAX,
    error::is_unconnected,
    retry::{Backoff, Retries},
};

/// A client of one server. Cheap to clone; clones share the connection.
///
/// The client fills in the ids that the caller leaves out, so every call may be repeated without harm, but for
/// [`Self::abort_session`]. It repeats the others, within the bounds of [`Backoff`], when the server cannot be reached or is going
/// away.
#[derive(Debug, Clone)]
pub struct Client {
    service: Service,
    backoff: Backoff,
    call_timeout: Duration,
}

impl Client {
    /// `call_timeout` bounds each attempt of a call.
    pub(crate) fn new(service: Service, backoff: Backoff, call_timeout: Duration) -> Client {
        Client { service, backoff, call_timeout }
    }

    /// The generated client of the service `AgentLoop`, for RPCs that this type lacks.
    pub fn agent_loop(&self) -> AgentLoopClient<Service> {
        AgentLoopClient::new(self.service.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// The generated client of the service `Server`, for RPCs that this type lacks.
    pub fn server(&self) -> ServerClient<Service> {
        ServerClient::new(self.service.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// The generated client of the service `Sessions`, for RPCs that this type lacks.
    pub fn sessions(&self) -> SessionsClient<Service> {
        SessionsClient::new(self.service.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// The generated client of the service `Tools`, for RPCs that this type lacks.
    pub fn tools(&self) -> ToolsClient<Service> {
        ToolsClient::new(self.service.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// The generated client of the service `ToolHost`. [`crate::host::ToolHost`] does everything that a host needs.
    pub fn tool_host(&self) -> ToolHostClient<Service> {
        ToolHostClient::new(self.service.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub(crate) fn retries(&self) -> Retries {
        Retries::new(self.backoff)
    }

    /// The transport of the generated clients.
    pub(crate) fn service(&self) -> Service {
        self.service.clone()
    }

    pub(crate) async fn unary<Q: Clone, A, F, Fut>(&self, request: Q, send: F) -> Result<A, Error>
    where
        F: Fn(Client, Q) -> Fut,
        Fut: Future<Output = Result<Response<A>, Status>>,
    {
        self.call(request, Some(self.call_timeout), send).await
    }

    /// As [`Self::unary`] for a request that must not be carried out twice: it is sent again only while there is no connection.
    pub(crate) async fn unary_once<Q: Clone, A, F, Fut>(&self, request: Q, send: F) -> Result<A, Error>
    where
        F: Fn(Client, Q) -> Fut,
        Fut: Future<Output = Result<Response<A>, Status>>,
    {
        let mut retries = self.retries();
        loop {
            let sent = tokio::time::timeout(self.call_timeout, send(self.clone(), request.clone())).await;
            let status = match sent {
                Ok(Ok(response)) => return Ok(response.into_inner()),
                Ok(Err(status)) => status,
                Err(_) => return Err(no_response(self.call_timeout)),
            };
            let is_unsent = is_unconnected(&status);
            let error = Error::from(status);
            let Some(wait) = retries.after(&error).filter(|_| is_unsent) else { return Err(error) };
            tracing::debug!(%error, ?wait, "no connection; trying again");
            tokio::time::sleep(wait).await;
        }
    }

    /// Sends a request until there is an answer, a lasting error, or no retry left. `timeout` bounds each attempt.
    pub(crate) async fn call<Q: Clone, A, F, Fut>(
        &self,
        request: Q,
        timeout: Option<Duration>,
        send: F,
    ) -> Result<A, Error>
    where
        F: Fn(Client, Q) -> Fut,
        Fut: Future<Output = Result<Response<A>, Status>>,
    {
        let mut retries = self.retries();
        loop {
            // On the heap: the future of a call with a large request is large itself.
            let sending = Box::pin(send(self.clone(), request.clone()));
            let error = match within(timeout, sending).await {
                Ok(response) => return Ok(response.into_inner()),
                Err(error) => error,
            };
            let Some(wait) = retries.after(&error) else { return Err(error) };
            tracing::debug!(%error, ?wait, "call failed; retrying");
            tokio::time::sleep(wait).await;
        }
    }
}

async fn within<A>(
    timeout: Option<Duration>,
    call: impl Future<Output = Result<A, Status>>,
) -> Result<A, Error> {
    let Some(timeout) = timeout else { return Ok(call.await?) };
    match tokio::time::timeout(timeout, call).await {
        Ok(response) => Ok(response?),
        Err(_) => Err(no_response(timeout)),
    }
}

fn no_response(timeout: Duration) -> Error {
    Error::Unreachable(format!("no answer within {timeout:?}"))
}
