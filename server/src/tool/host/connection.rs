//! One host's stream: hello, then frames until it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::host::frame::{
    CallInHand, CallRef, Capability, CapabilityVerdict, Disposition, Hello, HostFrame, ResultVerdict,
    ServerFrame,
};
use agentloop_core::host::{CloseReason, ConnectionId, Input, Joining};
use agentloop_core::id::{CallId, HostId, RunId, RuntimeId, TenantId};
use agentloop_core::tool::ToolDeclaration;
use futures_util::stream::FuturesUnordered;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::extension::remote::{Joining as Offering, Line, Offered, Reply};
use crate::tool::SinkUnavailable;
use crate::tool::catalogue::registry::{Checked, Refused, check, normalise};
use crate::tool::host::outbound::{self, Sending};
use crate::tool::host::remote::{Answered, RemoteTools};

/// The version of the protocol that is spoken.
const PROTOCOL_VERSION: u32 = 1;
/// From the stream's start to its first frame.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// The smallest largest frame that a host may name: less holds no call worth sending.
const FRAME_BYTES_MIN: usize = 4 * 1024;
/// Answers of one host that are being recorded at a time; what comes on top waits in its stream.
const ANSWERS_AT_ONCE_MAX: usize = 64;
/// Tools that are checked where they come in, if they are known.
const KNOWN_AT_ONCE_MAX: usize = 16;
/// Runs that are looked at at a time for one host: a run that is not in memory is read whole.
const LOOKS_AT_ONCE_MAX: usize = 2;

/// Every place for a host is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{max} tool hosts are connected, and no more are taken")]
pub struct TooManyHosts {
    /// How many there may be.
    pub max: usize,
}

/// What came instead of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameError {
    /// A frame that breaks the protocol.
    Malformed {
        /// What was wrong, and what was expected.
        message: String,
        /// The call that it was about.
        call: Option<CallId>,
    },
    /// The stream broke.
    Broken,
}

/// What came from a host.
#[derive(Debug, Clone, PartialEq)]
pub enum Inbound {
    /// A frame.
    Frame(HostFrame),
    /// What one of its extensions answers.
    Reply(Box<Reply>),
}

impl From<HostFrame> for Inbound {
    fn from(frame: HostFrame) -> Self {
        Self::Frame(frame)
    }
}

/// One host's stream, seen from our side.
pub struct Connection {
    tools: Arc<RemoteTools>,
    tenant: TenantId,
    id: ConnectionId,
    /// Cancelled when the host is gone, or its stream is ended from our side.
    ended: CancellationToken,
    /// Where questions for its extensions go.
    line: Arc<dyn Line>,
    _place: OwnedSemaphorePermit,
}

impl RemoteTools {
    fn check(
        &self,
        tenant: &TenantId,
        capabilities: Vec<Capability>,
    ) -> Vec<Result<Checked, CapabilityVerdict>> {
        let mut names = BTreeSet::new();
        let mut extensions = BTreeSet::new();
        let refused = |name, reason| CapabilityVerdict { name, refused: Some(reason) };
        capabilities
            .into_iter()
            .map(|capability| match capability {
                Capability::Unreadable { name, reason } => Err(refused(name, reason)),
                Capability::Extension { name, terms } if !extensions.insert((terms.kind(), name.clone())) => {
                    Err(refused(name, "declared twice".to_owned()))
                }
                // Whether it is taken is said by the registry of extensions.
                Capability::Extension { name, .. } => Err(CapabilityVerdict { name, refused: None }),
                Capability::Tool(tool) if !names.insert(tool.name.clone()) => {
                    Err(refused(tool.name, "declared twice".to_owned()))
                }
                Capability::Tool(tool) => {
                    self.check_tool(tenant, *tool).map_err(|Refused { name, reason }| refused(name, reason))
                }
            })
            .collect()
    }

    /// Whether all of these are tools that were checked before.
    fn are_known(&self, tenant: &TenantId, capabilities: &[Capability]) -> bool {
        let known = |tool: &ToolDeclaration| {
            let tool = normalise(tool.clone());
            self.lock().catalogue.known(tenant, &tool.name, &tool.digest()).is_some()
        };
        capabilities.iter().all(|capability| matches!(capability, Capability::Tool(tool) if known(tool)))
    }

    /// Hosts reconnect with the tools that they had: those are known to be good.
    fn check_tool(&self, tenant: &TenantId, tool: ToolDeclaration) -> Result<Checked, Refused> {
        let tool = normalise(tool);
        let known = self.lock().catalogue.known(tenant, &tool.name, &tool.digest());
        known.map_or_else(|| check(tool), Ok)
    }

    /// Takes a stream in. What is to be sent comes out of the second value; [`Connection::run`] is to be run.
    ///
    /// # Errors
    /// When there are too many.
    pub fn accept(self: &Arc<Self>, tenant: TenantId) -> Result<(Connection, Sending), TooManyHosts> {
        let place = self.places.clone().try_acquire_owned();
        let place = place.map_err(|_| TooManyHosts { max: self.options().connections_max })?;
        let (sender, sending, ended) = outbound::channel();
        let id = self.next_connection();
        let line = sender.line();
        self.open(&tenant, id, sender);
        Ok((Connection { tools: self.clone(), tenant, id, ended, line, _place: place }, sending))
    }
}

impl Connection {
    /// Serves the host until its stream ends from either side, and what it answered is dealt with.
    pub async fn run<I: Into<Inbound>>(self, frames: impl Stream<Item = Result<I, FrameError>> + Send) {
        let frames = frames.map(|frame| frame.map(I::into));
        tokio::pin!(frames);
        if let Some(hello) = self.hello(&mut frames).await {
            let host = hello.host.clone();
            tracing::info!(host.id = %host, connection.id = %self.id, sdk = hello.sdk, "tool host connected");
            self.welcome(hello).await;
            self.serve(&mut frames).await;
            tracing::info!(host.id = %host, connection.id = %self.id, "tool host disconnected");
        }
    }

    /// The first frame, which is a hello in time.
    async fn hello(
        &self,
        frames: &mut (impl Stream<Item = Result<Inbound, FrameError>> + Unpin),
    ) -> Option<Hello> {
        let first = tokio::select! { biased;
            first = tokio::time::timeout(HELLO_TIMEOUT, frames.next()) => first,
            () = self.ended.cancelled() => return None,
        };
        match first {
            Ok(Some(Ok(Inbound::Frame(HostFrame::Hello(hello))))) => match self.fault(&hello) {
                None => return Some(*hello),
                Some((reason, message)) => self.refuse(reason, message),
            },
            Ok(Some(Ok(_))) => self.violation("the first frame must be a hello".to_owned(), None),
            Ok(Some(Err(FrameError::Malformed { message, call }))) => self.violation(message, call),
            Ok(Some(Err(FrameError::Broken)) | None) => {}
            Err(_late) => {
                self.violation(format!("no hello within {} s", HELLO_TIMEOUT.as_secs()), None);
            }
        }
        None
    }

    fn fault(&self, hello: &Hello) -> Option<(CloseReason, String)> {
        let version = hello.protocol_version;
        if version != PROTOCOL_VERSION {
            let message =
                format!("version {version} of the protocol is not spoken here; {PROTOCOL_VERSION} is");
            return Some((CloseReason::Version, message));
        }
        if hello.max_frame_bytes < FRAME_BYTES_MIN {
            let message = format!("max_frame_bytes is below {FRAME_BYTES_MIN}");
            return Some((CloseReason::Violation, message));
        }
        None
    }

    async fn welcome(&self, hello: Hello) {
        if self.tools.is_closing() {
            return self.go_away(CloseReason::ShuttingDown, "the server is shutting down");
        }
        let claims = tokio::select! { biased;
            claims = self.look_up(hello.calls_in_hand) => claims,
            () = self.ended.cancelled() => return,
        };
        let Ok(claims) = claims else {
            return self.go_away(CloseReason::Unavailable, "calls in hand cannot be looked up at the moment");
        };
        // What is larger than our own bound cannot be sent, whatever the host takes.
        let max_frame_bytes = hello.max_frame_bytes.min(self.tools.options().max_frame_bytes);
        let host = hello.host.clone();
        let extensions = extensions_of(&hello.capabilities);
        let mut offered = self.check(hello.capabilities).await;
        if self.ended.is_cancelled() {
            return;
        }
        self.offer_extensions(Some((host, max_frame_bytes)), extensions, &mut offered);
        let (id, open_runtimes) = (hello.host.clone(), hello.open_runtimes.clone());
        let joining = |tools| Joining {
            connection: self.id,
            host: hello.host,
            sdk: hello.sdk,
            labels: hello.labels,
            tools,
            credit: hello.initial_credit,
            max_frame_bytes,
            runtimes: hello.open_runtimes,
            claims,
        };
        let join = |tools| Input::Join(Box::new(joining(tools)));
        if !self.tools.join(&self.tenant, self.id, offered, join) {
            return self.go_away(CloseReason::ShuttingDown, "the server is shutting down");
        }
        // Nothing is sent before the welcome.
        self.tools.extensions().activate(self.id);
        self.close_unused(&id, open_runtimes).await;
    }

    /// Has the host close what no run uses any more. Whatever ends from here on is told by its run.
    async fn close_unused(&self, host: &HostId, open_runtimes: Vec<String>) {
        let look_up = |runtime: String| async move {
            let sink = self.tools.sink().ok_or(SinkUnavailable)?;
            let used = match RuntimeId::parse(&runtime) {
                Some(id) => sink.uses_runtime(&self.tenant, &id, host).await?,
                None => false,
            };
            Ok((!used).then_some(runtime))
        };
        let looked_up = stream::iter(open_runtimes).map(look_up).buffered(LOOKS_AT_ONCE_MAX);
        // What cannot be looked up now is closed when the host comes again.
        let unused: Vec<Result<Option<String>, SinkUnavailable>> = looked_up.collect().await;
        for runtime in unused.into_iter().flatten().flatten() {
            let host = host.clone();
            self.tools.input(&self.tenant, Input::CloseRuntime { host, runtime });
        }
    }

    /// Offers a host's extensions, and enters what is said of each among its verdicts.
    fn offer_extensions(
        &self,
        joining: Option<(HostId, usize)>,
        extensions: Vec<(usize, Offered)>,
        verdicts: &mut [Result<Checked, CapabilityVerdict>],
    ) {
        let wanted =
            |(at, _): &(usize, Offered)| matches!(&verdicts[*at], Err(said) if said.refused.is_none());
        let (places, offered): (Vec<usize>, Vec<Offered>) = extensions.into_iter().filter(wanted).unzip();
        let (tenant, connection, line) = (self.tenant.clone(), self.id, self.line.clone());
        let registry = self.tools.extensions();
        let said = match joining {
            Some((host, max_frame_bytes)) => {
                let joining = Offering { tenant, connection, host, max_frame_bytes, line };
                registry.offer(joining, &offered)
            }
            None => registry.replace(connection, &offered),
        };
        for (at, refused) in places.into_iter().zip(said) {
            if let Err(verdict) = &mut verdicts[at] {
                verdict.refused = refused;
            }
        }
    }

    /// What the owners of calls in hand say about them, in the host's order.
    async fn look_up(
        &self,
        calls: Vec<CallInHand>,
    ) -> Result<Vec<(CallInHand, Disposition)>, SinkUnavailable> {
        let mut by_run: BTreeMap<RunId, (Vec<usize>, Vec<CallInHand>)> = BTreeMap::new();
        for (place, claim) in calls.into_iter().enumerate() {
            let (places, claims) = by_run.entry(claim.call.call.run.clone()).or_default();
            places.push(place);
            claims.push(claim);
        }
        let look_up = |(run, (places, claims)): (RunId, (Vec<usize>, Vec<CallInHand>))| async move {
            let sink = self.tools.sink().ok_or(SinkUnavailable)?;
            let said = sink.dispositions(&self.tenant, &run, &claims).await?;
            Ok(places.into_iter().zip(claims.into_iter().zip(said)).collect::<Vec<_>>())
        };
        let looked_up = stream::iter(by_run).map(look_up).buffered(LOOKS_AT_ONCE_MAX);
        let mut said: Vec<_> = looked_up.try_concat().await?;
        said.sort_unstable_by_key(|(place, _)| *place);
        Ok(said.into_iter().map(|(_, said)| said).collect())
    }

    /// What of a host's offer is good, in its order. Compiling hundreds of schemas takes a while, so it is not done
    /// where other streams wait; a few tools that are known are not worth a thread.
    async fn check(&self, capabilities: Vec<Capability>) -> Vec<Result<Checked, CapabilityVerdict>> {
        if capabilities.len() <= KNOWN_AT_ONCE_MAX && self.tools.are_known(&self.tenant, &capabilities) {
            return self.tools.check(&self.tenant, capabilities);
        }
        let (tools, tenant) = (self.tools.clone(), self.tenant.clone());
        let checked = tokio::task::spawn_blocking(move || tools.check(&tenant, capabilities));
        checked.await.unwrap_or_else(|fault| {
            tracing::error!(connection.id = %self.id, %fault, "the tools of a host could not be checked");
            self.refuse(CloseReason::Violation, "the tools could not be checked".to_owned());
            Vec::new()
        })
    }

    async fn serve(&self, frames: &mut (impl Stream<Item = Result<Inbound, FrameError>> + Unpin)) {
        let mut answers = FuturesUnordered::new();
        let mut alive = tokio::time::interval(self.tools.options().heartbeat_interval.duration());
        loop {
            let full = answers.len() >= ANSWERS_AT_ONCE_MAX;
            tokio::select! {
                biased;
                () = self.ended.cancelled() => break,
                Some(()) = answers.next() => {}
                frame = frames.next(), if !full => match frame {
                    Some(Ok(Inbound::Frame(frame))) => {
                        answers.extend(self.frame(frame).await.into_iter().map(|answer| self.record(answer)));
                    }
                    Some(Ok(Inbound::Reply(reply))) => {
                        self.tools.input(&self.tenant, Input::Touch { connection: self.id });
                        self.tools.extensions().answered(self.id, *reply);
                    }
                    Some(Err(FrameError::Malformed { message, call })) => self.violation(message, call),
                    Some(Err(FrameError::Broken)) | None => break,
                },
                // That nothing is read from it is not the host's fault.
                _ = alive.tick(), if full => {
                    self.tools.input(&self.tenant, Input::Touch { connection: self.id });
                }
            }
        }
        self.tools.leave(&self.tenant, self.id);
        while let Some(()) = answers.next().await {}
    }

    async fn frame(&self, frame: HostFrame) -> Vec<Answered> {
        let connection = self.id;
        match frame {
            HostFrame::UpdateTools { capabilities } => {
                let extensions = extensions_of(&capabilities);
                let mut offered = self.check(capabilities).await;
                self.offer_extensions(None, extensions, &mut offered);
                self.tools.replace(&self.tenant, connection, offered, |tools| Input::ReplaceTools {
                    connection,
                    tools,
                });
                Vec::new()
            }
            frame => {
                if frame == HostFrame::Draining {
                    self.tools.extensions().drain(connection);
                }
                self.tools.input(&self.tenant, Input::Frame { connection, frame })
            }
        }
    }

    async fn record(&self, answered: Answered) {
        let call = answered.answer.call.clone();
        match self.tools.record(&self.tenant, answered).await {
            Ok(verdict) => self.acknowledge(call, verdict.for_host()),
            Err(SinkUnavailable) => {
                self.go_away(CloseReason::Unavailable, "results cannot be recorded at the moment")
            }
        }
    }

    fn acknowledge(&self, call: CallRef, verdict: ResultVerdict) {
        self.tools.send(self.id, ServerFrame::ResultAck { call, verdict });
    }

    /// Has the host connect again later; it keeps what it has.
    fn go_away(&self, reason: CloseReason, message: &str) {
        let reconnect_after = self.tools.options().reconnect_after;
        self.tools.send(self.id, ServerFrame::GoAway { reconnect_after, reason: message.to_owned() });
        self.tools.input(&self.tenant, Input::Drop { connection: self.id, reason });
    }

    fn refuse(&self, reason: CloseReason, message: String) {
        tracing::debug!(connection.id = %self.id, message, "tool host refused");
        self.tools.send(self.id, ServerFrame::ProtocolError { message, call: None });
        self.tools.input(&self.tenant, Input::Drop { connection: self.id, reason });
    }

    fn violation(&self, message: String, call: Option<CallId>) {
        tracing::debug!(connection.id = %self.id, message, "tool host broke the protocol");
        self.tools.input(&self.tenant, Input::Violation { connection: self.id, message, call });
    }
}

/// The extensions among what a host offers, each with its place.
fn extensions_of(capabilities: &[Capability]) -> Vec<(usize, Offered)> {
    let extension = |(at, capability): (usize, &Capability)| match capability {
        Capability::Extension { name, terms } => {
            Some((at, Offered { name: name.clone(), terms: terms.clone() }))
        }
        Capability::Tool(_) | Capability::Unreadable { .. } => None,
    };
    capabilities.iter().enumerate().filter_map(extension).collect()
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Drop for Connection {
    /// Also when its task is dropped half way.
    fn drop(&mut self) {
        self.tools.leave(&self.tenant, self.id);
    }
}
