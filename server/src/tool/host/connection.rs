//! One host's stream: checks the hello, then handles frames until the stream ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::host::frame::{
    CallInHand, CallRef, Capability, CapabilityVerdict, Disposition, Hello, HostFrame, RefusalKind,
    ResultVerdict, ServerFrame,
};
use agentloop_core::host::{CloseReason, ConnectionId, HostJoin, Input};
use agentloop_core::id::{CallId, HostId, RunId, RuntimeId, TenantId};
use agentloop_core::tool::ToolDeclaration;
use futures_util::stream::FuturesUnordered;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::audit::{self, Act};
use crate::extension::remote::{ExtensionOffer, ExtensionResponse, NewConnection, RequestSender};
use crate::tool::SinkUnavailable;
use crate::tool::catalogue::registry::{CheckedTool, RefusedTool, check, normalise};
use crate::tool::catalogue::terms::Declarer;
use crate::tool::host::deliver::HostAnswer;
use crate::tool::host::identity::HostIdentity;
use crate::tool::host::outbound::{self, OutboundFrames};
use crate::tool::host::remote::RemoteTools;

/// The only version of the tool-host protocol that the server accepts.
const PROTOCOL_VERSION: u32 = 1;
/// Time from the stream's start within which the hello must arrive.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// The smallest `max_frame_bytes` that a host may declare. Below this hardly any call would fit.
const FRAME_BYTES_MIN: usize = 4 * 1024;
/// Results of one host recorded at a time. At the limit its stream is not read.
const RESULTS_AT_ONCE_MAX: usize = 64;
/// Known tools that are checked on the stream's own task. More go to a blocking thread.
const KNOWN_TOOLS_INLINE_MAX: usize = 16;
/// Runs looked up at a time for one host. Each look-up of a run that is not in memory reads its whole journal.
const RUN_LOOKUPS_AT_ONCE_MAX: usize = 2;

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
    /// The answer of one of its extensions to a question.
    Reply(Box<ExtensionResponse>),
}

impl From<HostFrame> for Inbound {
    fn from(frame: HostFrame) -> Self {
        Self::Frame(frame)
    }
}

/// The server's side of one host's stream.
pub struct Connection {
    tools: Arc<RemoteTools>,
    tenant: TenantId,
    identity: HostIdentity,
    /// The call as the audit log names it, if there is one.
    act: Option<Arc<Act>>,
    id: ConnectionId,
    /// Cancelled when the host is gone or the server ended the stream.
    ended: CancellationToken,
    /// Sends questions to the host's extensions.
    line: Arc<dyn RequestSender>,
    _slot: OwnedSemaphorePermit,
}

impl RemoteTools {
    fn check(
        &self,
        tenant: &TenantId,
        capabilities: Vec<Capability>,
    ) -> Vec<Result<CheckedTool, CapabilityVerdict>> {
        let mut names = BTreeSet::new();
        let mut extensions = BTreeSet::new();
        let refused = |name, reason: String| CapabilityVerdict {
            name,
            refused: Some(RefusalKind::Invalid.because(reason)),
        };
        capabilities
            .into_iter()
            .map(|capability| match capability {
                Capability::Unreadable { name, reason } => Err(refused(name, reason)),
                Capability::Extension { name, declaration }
                    if !extensions.insert((declaration.kind(), name.clone())) =>
                {
                    Err(refused(name, "declared twice".to_owned()))
                }
                // `offer_extensions` asks the registry of extensions for the verdict.
                Capability::Extension { name, .. } => Err(CapabilityVerdict { name, refused: None }),
                Capability::Tool(tool) if !names.insert(tool.name.clone()) => {
                    Err(refused(tool.name, "declared twice".to_owned()))
                }
                Capability::Tool(tool) => self
                    .check_tool(tenant, *tool)
                    .map_err(|RefusedTool { name, reason }| refused(name, reason)),
            })
            .collect()
    }

    /// True if every tool among these was checked before. Extensions have no schema that takes time to compile.
    fn are_known(&self, tenant: &TenantId, capabilities: &[Capability]) -> bool {
        let known = |tool: &ToolDeclaration| {
            let tool = normalise(tool.clone());
            self.lock().catalogue.known(tenant, &tool.name, &tool.digest()).is_some()
        };
        capabilities.iter().all(|capability| match capability {
            Capability::Tool(tool) => known(tool),
            Capability::Extension { .. } | Capability::Unreadable { .. } => true,
        })
    }

    /// Checks a declaration, unless the catalogue has exactly this one: hosts reconnect with the same tools.
    fn check_tool(&self, tenant: &TenantId, tool: ToolDeclaration) -> Result<CheckedTool, RefusedTool> {
        let tool = normalise(tool);
        let known = self.lock().catalogue.known(tenant, &tool.name, &tool.digest());
        known.map_or_else(|| check(tool), Ok)
    }

    /// Accepts a host's stream. Run [`Connection::run`], and send the host what comes out of [`OutboundFrames`].
    ///
    /// # Errors
    /// [`NotAccepted`]: there is no room, or the shutdown has begun.
    pub fn accept(self: &Arc<Self>, tenant: TenantId) -> Result<(Connection, OutboundFrames), NotAccepted> {
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
    ) -> Result<(Connection, OutboundFrames), NotAccepted> {
        if self.is_closing() {
            return Err(NotAccepted::ShuttingDown);
        }
        let slot = self.connection_slots.clone().try_acquire_owned();
        let slot = slot.map_err(|_| NotAccepted::TooManyHosts { max: self.options().connections_max })?;
        let (sender, sending, ended) = outbound::channel();
        let id = self.next_connection();
        let line = sender.line();
        self.open(&tenant, id, sender);
        let act = audit::current();
        Ok((Connection { tools: self.clone(), tenant, identity, act, id, ended, line, _slot: slot }, sending))
    }
}

impl Connection {
    /// Serves the host until the stream ends from either side and its results are recorded.
    pub async fn run<I: Into<Inbound>>(self, frames: impl Stream<Item = Result<I, FrameError>> + Send) {
        let frames = frames.map(|frame| frame.map(I::into));
        tokio::pin!(frames);
        if let Some(hello) = self.hello(&mut frames).await {
            let host = hello.host.clone();
            tracing::info!(host.id = %host, connection.id = %self.id, sdk = hello.sdk, "tool host connected");
            self.welcome(hello).await;
            self.serve(&host, &mut frames).await;
            tracing::info!(host.id = %host, connection.id = %self.id, "tool host disconnected");
        }
    }

    /// Reads the first frame. Returns `None` and ends the stream unless it is a valid hello in time.
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
                format!("protocol version {version} is not supported; use version {PROTOCOL_VERSION}");
            return Some((CloseReason::Version, message));
        }
        if hello.max_frame_bytes < FRAME_BYTES_MIN {
            let message =
                format!("max_frame_bytes is {}; use at least {FRAME_BYTES_MIN}", hello.max_frame_bytes);
            return Some((CloseReason::Violation, message));
        }
        None
    }

    async fn welcome(&self, hello: Hello) {
        if self.tools.is_closing() {
            return self.go_away(CloseReason::ShuttingDown, "the server is shutting down");
        }
        if !self.tools.claim_host_id(&self.tenant, &hello.host, self.identity.principal.as_deref()) {
            let message = "a host of another principal has this host_id; use another one";
            self.note_refusal(&hello.host, "", message);
            return self.refuse(CloseReason::Violation, message.to_owned());
        }
        let claims = tokio::select! { biased;
            claims = self.look_up(hello.calls_in_hand) => claims,
            () = self.ended.cancelled() => return,
        };
        let Ok(claims) = claims else {
            return self.go_away(CloseReason::Unavailable, "calls in hand cannot be looked up at the moment");
        };
        // The server cannot send frames above its own limit, even if the host accepts larger ones.
        let max_frame_bytes = hello.max_frame_bytes.min(self.tools.options().max_frame_bytes);
        let host = hello.host.clone();
        let extensions = extensions_of(&hello.capabilities);
        let mut offered = self.check(&hello.host, hello.capabilities).await;
        if self.ended.is_cancelled() {
            return;
        }
        self.offer_extensions(Some((host, max_frame_bytes)), extensions, &mut offered);
        let (id, open_runtimes) = (hello.host.clone(), hello.open_runtimes.clone());
        let joining = |tools| HostJoin {
            connection: self.id,
            host: hello.host,
            instance: hello.instance,
            connection_no: hello.connection_no,
            sdk: hello.sdk,
            labels: hello.labels,
            tools,
            credit: hello.initial_credit,
            max_frame_bytes,
            runtimes: hello.open_runtimes,
            claims,
        };
        let join = |tools| Input::Join(Box::new(joining(tools)));
        let by = Declarer { host: id.clone(), connection: self.id };
        if !self.tools.join(&self.tenant, by, offered, join) {
            return self.go_away(CloseReason::ShuttingDown, "the server is shutting down");
        }
        // Extensions are asked only now, because the welcome must be the first frame that the host gets.
        self.tools.extensions().activate(self.id);
        self.close_unused(&id, open_runtimes).await;
    }

    /// Tells the host to close runtimes that no run uses. For runs that end later, the run does this itself.
    async fn close_unused(&self, host: &HostId, open_runtimes: Vec<String>) {
        let look_up = |runtime: String| async move {
            let sink = self.tools.sink().ok_or(SinkUnavailable)?;
            let used = match RuntimeId::parse(&runtime) {
                Some(id) => sink.uses_runtime(&self.tenant, &id, host).await?,
                None => false,
            };
            Ok((!used).then_some(runtime))
        };
        let looked_up = stream::iter(open_runtimes).map(look_up).buffered(RUN_LOOKUPS_AT_ONCE_MAX);
        // If a look-up fails, the runtime is closed when the host connects again.
        let unused: Vec<Result<Option<String>, SinkUnavailable>> = looked_up.collect().await;
        for runtime in unused.into_iter().flatten().flatten() {
            let host = host.clone();
            self.tools.input(&self.tenant, Input::CloseRuntime { host, runtime });
        }
    }

    /// Registers a host's extensions, and writes the registry's verdicts into `verdicts`.
    fn offer_extensions(
        &self,
        joining: Option<(HostId, usize)>,
        extensions: Vec<(usize, ExtensionOffer)>,
        verdicts: &mut [Result<CheckedTool, CapabilityVerdict>],
    ) {
        let wanted =
            |(at, _): &(usize, ExtensionOffer)| matches!(&verdicts[*at], Err(said) if said.refused.is_none());
        let (places, offered): (Vec<usize>, Vec<ExtensionOffer>) =
            extensions.into_iter().filter(wanted).unzip();
        let (tenant, connection, line) = (self.tenant.clone(), self.id, self.line.clone());
        let registry = self.tools.extensions();
        let said = match joining {
            Some((host, max_frame_bytes)) => {
                let joining = NewConnection { tenant, connection, host, max_frame_bytes, sender: line };
                registry.offer(joining, &offered)
            }
            None => registry.replace(connection, &offered),
        };
        for (at, refused) in places.into_iter().zip(said) {
            if let Err(verdict) = &mut verdicts[at] {
                verdict.refused = refused.map(|reason| RefusalKind::Other.because(reason));
            }
        }
    }

    /// Asks the engine what the host is to do with each call it still has. Keeps the host's order.
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
        let looked_up = stream::iter(by_run).map(look_up).buffered(RUN_LOOKUPS_AT_ONCE_MAX);
        let mut said: Vec<_> = looked_up.try_concat().await?;
        said.sort_unstable_by_key(|(place, _)| *place);
        Ok(said.into_iter().map(|(_, said)| said).collect())
    }

    /// Checks a host's offer, in its order. Compiling hundreds of schemas takes a while, so that runs on a blocking
    /// thread; for a few known tools a thread costs more than the check.
    async fn check(
        &self,
        host: &HostId,
        mut capabilities: Vec<Capability>,
    ) -> Vec<Result<CheckedTool, CapabilityVerdict>> {
        let refused = self.identity.bound(&self.tenant, &mut capabilities, &self.tools.options().reserved);
        let mut checked = self.check_declarations(capabilities).await;
        for (verdict, refused) in checked.iter_mut().zip(refused) {
            if let Some(refused) = refused {
                let why = refused.refused.as_ref().map(|refused| refused.reason.as_str()).unwrap_or_default();
                self.note_refusal(host, &refused.name, why);
                *verdict = Err(refused);
            }
        }
        checked
    }

    /// Has the audit log told that the host, or its tool of this name, is refused.
    fn note_refusal(&self, host: &HostId, tool: &str, why: &str) {
        if let Some(act) = &self.act {
            act.refused_on_stream(host.as_str(), tool, why);
        }
    }

    async fn check_declarations(
        &self,
        capabilities: Vec<Capability>,
    ) -> Vec<Result<CheckedTool, CapabilityVerdict>> {
        if capabilities.len() <= KNOWN_TOOLS_INLINE_MAX && self.tools.are_known(&self.tenant, &capabilities) {
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

    async fn serve(
        &self,
        host: &HostId,
        frames: &mut (impl Stream<Item = Result<Inbound, FrameError>> + Unpin),
    ) {
        let mut answers = FuturesUnordered::new();
        let mut alive = tokio::time::interval(self.tools.options().heartbeat_interval.duration());
        let mut pings = 0;
        loop {
            let full = answers.len() >= RESULTS_AT_ONCE_MAX;
            tokio::select! {
                biased;
                () = self.ended.cancelled() => break,
                _ = alive.tick() => {
                    pings += 1;
                    self.show_life(pings, full);
                }
                Some(()) = answers.next() => {}
                frame = frames.next(), if !full => match frame {
                    Some(Ok(Inbound::Frame(frame))) => {
                        answers.extend(self.frame(host, frame).await.into_iter().map(|answer| self.record(answer)));
                    }
                    Some(Ok(Inbound::Reply(reply))) => {
                        self.tools.input(&self.tenant, Input::Touch { connection: self.id });
                        self.tools.extensions().respond(self.id, *reply);
                    }
                    Some(Err(FrameError::Malformed { message, call })) => self.violation(message, call),
                    Some(Err(FrameError::Broken)) | None => break,
                },
            }
        }
        self.tools.leave(&self.tenant, self.id);
        while let Some(()) = answers.next().await {}
    }

    /// Shows the host that the server is alive, as often as the host shows it. While the stream is not read, the host
    /// cannot show that, so its lease is renewed here.
    fn show_life(&self, nonce: u64, is_unread: bool) {
        if is_unread {
            self.tools.input(&self.tenant, Input::Touch { connection: self.id });
        }
        self.tools.send(self.id, ServerFrame::Ping { nonce });
    }

    async fn frame(&self, host: &HostId, frame: HostFrame) -> Vec<HostAnswer> {
        let connection = self.id;
        match frame {
            HostFrame::UpdateTools { capabilities } => {
                let extensions = extensions_of(&capabilities);
                let mut offered = self.check(host, capabilities).await;
                self.offer_extensions(None, extensions, &mut offered);
                let by = Declarer { host: host.clone(), connection };
                self.tools
                    .replace(&self.tenant, by, offered, |tools| Input::ReplaceTools { connection, tools });
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

    async fn record(&self, answered: HostAnswer) {
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

    /// Asks the host to connect again later. It keeps its calls and results until then.
    fn go_away(&self, reason: CloseReason, message: &str) {
        let reconnect_after = self.tools.options().reconnect_after;
        self.tools.send(self.id, ServerFrame::GoAway { reconnect_after, reason: message.to_owned() });
        self.tools.input(&self.tenant, Input::CloseStream { connection: self.id, reason });
    }

    fn refuse(&self, reason: CloseReason, message: String) {
        tracing::debug!(connection.id = %self.id, message, "tool host refused");
        self.tools.send(self.id, ServerFrame::ProtocolError { message, call: None });
        self.tools.input(&self.tenant, Input::CloseStream { connection: self.id, reason });
    }

    fn violation(&self, message: String, call: Option<CallId>) {
        tracing::debug!(connection.id = %self.id, message, "tool host broke the protocol");
        self.tools.input(&self.tenant, Input::Violation { connection: self.id, message, call });
    }
}

/// The extensions in a host's offer, each with its index there.
fn extensions_of(capabilities: &[Capability]) -> Vec<(usize, ExtensionOffer)> {
    let extension = |(at, capability): (usize, &Capability)| match capability {
        Capability::Extension { name, declaration } => {
            Some((at, ExtensionOffer { name: name.clone(), declaration: declaration.clone() }))
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
    /// Removes the host also when the task is dropped before its end.
    fn drop(&mut self) {
        self.tools.leave(&self.tenant, self.id);
    }
}
