//! One host's stream: its hello, then its frames until the stream ends.

mod capabilities;
mod hello;
mod pending_results;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::host::frame::{CallRef, HostFrame, ResultVerdict, ServerFrame};
use agentloop_core::host::{CloseReason, ConnectionId, FleetInput};
use agentloop_core::id::{CallId, HostId, TenantId};
use agentloop_core::text::json::encoded_len;
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use self::capabilities::extensions_of;
use self::pending_results::{PendingResults, Weight};
use crate::audit::{self, Act};
use crate::extension::remote::{ExtensionResponse, RequestSender};
use crate::tool::SinkUnavailable;
use crate::tool::catalogue::terms::Declarer;
use crate::tool::host::deliver::AcceptedResult;
use crate::tool::host::identity::HostIdentity;
use crate::tool::host::outbound::{self, Channel, OutboundFrames, SendPause};
use crate::tool::host::remote::{CapabilityOffer, RemoteTools};
use crate::tool::host::state::CheckedOffer;

/// Time to record the results of a stream that has ended. The host brings the others again.
const LAST_RESULTS_WAIT: Duration = Duration::from_secs(30);

/// The reason why a host's stream is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAccepted {
    /// The limit of connected hosts is reached.
    #[error("{max} tool hosts are connected, which is the limit; raise hosts.max_hosts or connect later")]
    TooManyHosts {
        /// The limit, `hosts.max_hosts` of the configuration.
        max: usize,
    },
    /// The shutdown has begun. Where there are other replicas, one of them accepts the host.
    #[error("the server is shutting down")]
    ShuttingDown,
}

/// A frame that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameError {
    /// A frame that breaks the protocol.
    Malformed {
        /// The fault and the expected form. The host is told.
        message: String,
        /// The call that the frame named, if that could be read.
        call: Option<CallId>,
    },
    /// The transport failed; nothing more can be read.
    Broken,
}

/// A message from a host.
#[derive(Debug, Clone, PartialEq)]
pub enum Inbound {
    /// A frame of the tool-host protocol.
    Frame(HostFrame),
    /// The response of one of its extensions to a request.
    Reply(Box<ExtensionResponse>),
}

impl From<HostFrame> for Inbound {
    fn from(frame: HostFrame) -> Self {
        Self::Frame(frame)
    }
}

/// The server's side of one host's stream.
pub struct HostStream {
    tools: Arc<RemoteTools>,
    tenant: TenantId,
    identity: HostIdentity,
    /// The call as the audit log names it, if there is one.
    act: Option<Arc<Act>>,
    id: ConnectionId,
    /// Cancelled when the host is gone or the server ended the stream.
    ended: CancellationToken,
    /// Holds back the frames for the host.
    pause: SendPause,
    /// Sends requests to the host's extensions.
    extension_sender: Arc<dyn RequestSender>,
    _slot: OwnedSemaphorePermit,
}

impl RemoteTools {
    /// Accepts a host's stream. Run [`HostStream::run`], and send the host what comes out of [`OutboundFrames`].
    ///
    /// # Errors
    /// [`NotAccepted`]: there is no room, or the shutdown has begun.
    pub fn accept(self: &Arc<Self>, tenant: TenantId) -> Result<(HostStream, OutboundFrames), NotAccepted> {
        self.accept_as(tenant, HostIdentity::default())
    }

    /// As [`Self::accept`], of a host of this principal.
    ///
    /// # Errors
    /// [`NotAccepted`], as above.
    pub fn accept_as(
        self: &Arc<Self>,
        tenant: TenantId,
        identity: HostIdentity,
    ) -> Result<(HostStream, OutboundFrames), NotAccepted> {
        if self.is_closing() {
            return Err(NotAccepted::ShuttingDown);
        }
        let slot = self.connection_slots.clone().try_acquire_owned();
        let slot = slot.map_err(|_| NotAccepted::TooManyHosts { max: self.options().max_hosts })?;
        let Channel { sender, frames, pause, ended } = outbound::channel();
        let id = self.next_connection();
        let extension_sender = sender.extension_sender();
        self.open(&tenant, id, sender);
        let act = audit::current();
        let tools = self.clone();
        let stream =
            HostStream { tools, tenant, identity, act, id, ended, pause, extension_sender, _slot: slot };
        Ok((stream, frames))
    }
}

impl HostStream {
    /// Serves the host until the stream ends from either side and its results are recorded.
    /// Returns the host's id, if its hello came.
    pub async fn run<I: Into<Inbound>>(
        self,
        frames: impl Stream<Item = Result<I, FrameError>> + Send,
    ) -> Option<HostId> {
        let frames = frames.map(|frame| frame.map(I::into));
        tokio::pin!(frames);
        let hello = self.hello(&mut frames).await?;
        let host = hello.host.clone();
        tracing::info!(host.id = %host, connection.id = %self.id, sdk = hello.sdk, "tool host connected");
        let open_runtimes = hello.open_runtimes.clone();
        self.handle_hello(hello).await;
        self.serve(&host, open_runtimes, &mut frames).await;
        tracing::info!(host.id = %host, connection.id = %self.id, "tool host disconnected");
        Some(host)
    }

    async fn serve(
        &self,
        host: &HostId,
        open_runtimes: Vec<String>,
        frames: &mut (impl Stream<Item = Result<Inbound, FrameError>> + Unpin),
    ) {
        let mut results = PendingResults::new();
        let mut closing_unused = pin!(self.close_unused(host, open_runtimes).fuse());
        let mut alive = tokio::time::interval(self.tools.options().heartbeat_interval.duration());
        let mut pings = 0;
        loop {
            let full = results.is_full();
            tokio::select! {
                biased;
                () = self.ended.cancelled() => break,
                _ = alive.tick() => {
                    pings += 1;
                    self.show_life(pings, full);
                }
                Some(()) = results.next() => {}
                () = &mut closing_unused => {}
                frame = frames.next(), if !full => match frame {
                    Some(Ok(Inbound::Frame(frame))) => {
                        for result in self.frame(host, frame).await {
                            let weight = self.weight(&result);
                            results.push(weight, self.record(result, weight));
                        }
                    }
                    Some(Ok(Inbound::Reply(reply))) => {
                        self.tools.handle(&self.tenant, FleetInput::Touch { connection: self.id });
                        self.tools.extensions().respond(self.id, *reply);
                    }
                    Some(Err(FrameError::Malformed { message, call })) => self.violation(message, call),
                    Some(Err(FrameError::Broken)) | None => break,
                },
            }
        }
        self.tools.remove_stream(&self.tenant, self.id);
        let last = async { while let Some(()) = results.next().await {} };
        let _late = tokio::time::timeout(LAST_RESULTS_WAIT, last).await;
    }

    /// The part of the bounds on results that this one takes up.
    fn weight(&self, accepted: &AcceptedResult) -> Weight {
        match self.tools.sink() {
            Some(sink) if sink.has_owner(&self.tenant, accepted.run()) => {
                Weight::waiting(encoded_len(&accepted.result.outcome))
            }
            Some(_) | None => Weight::Counted,
        }
    }

    /// Shows the host that the server is alive, as often as the host shows it. While the stream is not read, the host
    /// cannot show that, so its lease is renewed here.
    fn show_life(&self, nonce: u64, is_unread: bool) {
        if is_unread {
            self.tools.handle(&self.tenant, FleetInput::Touch { connection: self.id });
        }
        self.tools.send(self.id, ServerFrame::Ping { nonce });
    }

    async fn frame(&self, host: &HostId, frame: HostFrame) -> Vec<AcceptedResult> {
        let connection = self.id;
        match frame {
            HostFrame::UpdateTools { capabilities } => {
                let extensions = extensions_of(&capabilities);
                let offered = self.check(host, capabilities).await;
                let by = Declarer { host: host.clone(), connection };
                let replace = |tools| FleetInput::ReplaceTools { connection, tools };
                let offer_extensions = |verdicts: &mut [CheckedOffer]| {
                    self.offer_extensions(None, extensions, verdicts);
                };
                let _paused = self.pause.pause();
                self.tools
                    .replace(&self.tenant, CapabilityOffer { by, offered, input: replace, offer_extensions });
                self.mirrored().await;
                Vec::new()
            }
            frame => {
                if frame == HostFrame::Draining {
                    self.tools.extensions().drain(connection);
                }
                self.tools.handle(&self.tenant, FleetInput::Frame { connection, frame })
            }
        }
    }

    /// Waits until the other replicas know the tools of the host, so that a run which begins after the host has heard of them is
    /// offered them wherever it begins.
    async fn mirrored(&self) {
        tokio::select! { biased;
            () = self.ended.cancelled() => {}
            () = self.tools.mirrors().caught_up() => {}
        }
    }

    async fn record(&self, accepted: AcceptedResult, weight: Weight) -> Weight {
        let call = accepted.result.call.clone();
        match self.tools.record_from_stream(&self.tenant, accepted).await {
            Ok(verdict) => self.acknowledge(call, verdict.for_host()),
            Err(SinkUnavailable) => {
                self.go_away(CloseReason::Unavailable, "results cannot be recorded at the moment")
            }
        }
        weight
    }

    fn acknowledge(&self, call: CallRef, verdict: ResultVerdict) {
        self.tools.send(self.id, ServerFrame::ResultAck { call, verdict });
    }

    /// Tells the host to connect again later. It keeps its calls and results until then.
    fn go_away(&self, reason: CloseReason, message: &str) {
        let reconnect_after = self.tools.options().reconnect_after;
        self.tools.send(self.id, ServerFrame::GoAway { reconnect_after, reason: message.to_owned() });
        self.tools.handle(&self.tenant, FleetInput::CloseStream { connection: self.id, reason });
    }

    fn refuse(&self, reason: CloseReason, message: String) {
        tracing::debug!(connection.id = %self.id, message, "tool host refused");
        self.tools.send(self.id, ServerFrame::ProtocolError { message, call: None });
        self.tools.handle(&self.tenant, FleetInput::CloseStream { connection: self.id, reason });
    }

    fn violation(&self, message: String, call: Option<CallId>) {
        tracing::debug!(connection.id = %self.id, message, "tool host broke the protocol");
        self.tools.handle(&self.tenant, FleetInput::Violation { connection: self.id, message, call });
    }
}

impl std::fmt::Debug for HostStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostStream").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Drop for HostStream {
    /// Removes the host also when the task is dropped before its end.
    fn drop(&mut self) {
        self.tools.remove_stream(&self.tenant, self.id);
    }
}
