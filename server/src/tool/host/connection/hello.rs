//! The start of a host's stream: its hello, the look-up of the calls and runtimes that it still has, and its welcome.

use std::collections::BTreeMap;
use std::time::Duration;

use agentloop_core::host::frame::{CallInHand, Disposition, Hello, HostFrame};
use agentloop_core::host::{CloseReason, FleetInput, HostJoin};
use agentloop_core::id::{HostId, RunId, RuntimeId};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};

use super::capabilities::extensions_of;
use super::{FrameError, HostStream, Inbound};
use crate::tool::SinkUnavailable;
use crate::tool::catalogue::terms::Declarer;
use crate::tool::host::remote::{CapabilityOffer, TakesHosts, UNARY};
use crate::tool::host::state::CheckedOffer;
use crate::tool::in_process::IN_PROCESS;

/// The only version of the tool-host protocol that the server accepts.
const PROTOCOL_VERSION: u32 = 1;
/// Time from the stream's start within which the hello must arrive.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for the store, which says whose id the host has.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(10);
/// The smallest `max_frame_bytes` that a host may declare. Below this hardly any call would fit.
const FRAME_BYTES_MIN: usize = 4 * 1024;
/// Runs looked up at a time for one host. Each look-up of a run that is not in memory reads its whole journal.
const RUN_LOOKUPS_AT_ONCE_MAX: usize = 2;

impl HostStream {
    /// Reads the first frame. Returns `None` and ends the stream unless it is a valid hello in time.
    pub(super) async fn hello(
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
        // In the journal these stand for no host: calls of a host with such an id would not be told from those.
        if [IN_PROCESS, UNARY].contains(&hello.host.as_str()) {
            let message = format!("the server itself has the host_id {}; use another one", hello.host);
            return Some((CloseReason::Violation, message));
        }
        None
    }

    /// Connects the host with the capabilities of its hello. If that cannot be, the connection is ended with the reason.
    pub(super) async fn handle_hello(&self, hello: Hello) {
        if !self.may_join().await {
            return;
        }
        if !self.claims_id(&hello.host).await {
            return;
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
        let offered = self.check(&hello.host, hello.capabilities).await;
        if self.ended.is_cancelled() {
            return;
        }
        let by = Declarer { host: hello.host.clone(), connection: self.id };
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
        let join = |tools| FleetInput::Join(Box::new(joining(tools)));
        let offer_extensions = |verdicts: &mut [CheckedOffer]| {
            self.offer_extensions(Some((host, max_frame_bytes)), extensions, verdicts);
        };
        let paused = self.pause.pause();
        let offer = CapabilityOffer { by, offered, input: join, offer_extensions };
        if !self.tools.join(&self.tenant, offer) {
            return self.go_away(CloseReason::ShuttingDown, "the server is shutting down");
        }
        // Extensions get requests only now, because the welcome must be the first frame that the host gets.
        self.tools.extensions().activate(self.id);
        self.mirrored().await;
        drop(paused);
    }

    /// True if this replica takes hosts. If not, the connection is ended with the reason, unless it has ended itself.
    async fn may_join(&self) -> bool {
        let takes_hosts = tokio::select! { biased;
            takes_hosts = self.tools.takes_hosts() => takes_hosts,
            () = self.ended.cancelled() => return false,
        };
        match takes_hosts {
            Some(TakesHosts::Yes) => return true,
            Some(TakesHosts::ShuttingDown) => {
                self.go_away(CloseReason::ShuttingDown, "the server is shutting down");
            }
            None => {
                let message = "this replica does not have the tool hosts: connect again";
                self.go_away(CloseReason::Unavailable, message);
            }
        }
        false
    }

    /// True if the host may have its id. If not, the connection is ended with the reason, unless it has ended itself.
    async fn claims_id(&self, host: &HostId) -> bool {
        let principal = self.identity.principal.as_deref();
        let claim = self.tools.claim_id(&self.tenant, host, principal);
        let claim = tokio::select! { biased;
            claim = tokio::time::timeout(CLAIM_TIMEOUT, claim) => claim,
            () = self.ended.cancelled() => return false,
        };
        match claim {
            Ok(Ok(true)) => return true,
            Ok(Ok(false)) => {
                let message = "a host of another principal has this host_id; use another one";
                self.note_refusal(host, "", message);
                self.refuse(CloseReason::Violation, message.to_owned());
            }
            Ok(Err(SinkUnavailable)) | Err(_) => {
                let message = "the store cannot say at the moment whose host_id this is";
                self.go_away(CloseReason::Unavailable, message);
            }
        }
        false
    }

    /// Tells the host to close runtimes that no run uses. For runs that end later, the run does this itself.
    pub(super) async fn close_unused(&self, host: &HostId, open_runtimes: Vec<String>) {
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
            self.tools.handle(&self.tenant, FleetInput::CloseRuntime { host, runtime });
        }
    }

    /// Learns from the engine what the host is to do with each call it still has. Keeps the host's order.
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
}
