//! Fuzz targets for the bytes that callers and tool hosts send.

use std::sync::{Arc, OnceLock, Weak};

use agentloop_core::agent::RunSpec;
use agentloop_core::host::HostHealth;
use agentloop_core::id::{Attempt, CallId, Epoch, HostId, RunId, SessionId, TenantId};
use agentloop_core::limits::GRPC_MESSAGE_BYTES_MAX;
use agentloop_core::run::effect::Offer;
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::tool::Digest;
use agentloop_proto::v1::{ConnectRequest, RunInput};
use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use prost::Message as _;
use tokio::runtime::{Builder, Runtime};
use tonic::Code;

use crate::grpc::convert::run_input::input::{RequestIdentity, start_request};
use crate::grpc::service::tool_host::{Responses, inbound};
use crate::model::ProviderRegistry;
use crate::tool::{
    CallInHand, CallOrigin, CallSink, CallUpdate, Disposition, FrameError, RemoteTools, RemoteToolsOptions,
    ReportedResult, Seek, SinkUnavailable, Tools as _, Verdict,
};

/// Calls of the tool `t` that wait for a host, with their leases.
const CALLS: [(&str, &str); 3] = [("r/1.0", "lease-0"), ("r/1.1", "lease-1"), ("s/1.0", "lease-2")];
const NOW: Timestamp = Timestamp(1_700_000_000_000);

/// Decodes a `RunInput`. It must become a request, or an error that names the invalid field.
pub(crate) fn run_input(data: &[u8]) {
    let Ok(input) = RunInput::decode(data) else { return };
    let agent = RunSpec { model: "p/m".to_owned(), ..RunSpec::default() };
    let models = ProviderRegistry::default();
    let start = |input| {
        let identity = RequestIdentity::of(&input);
        start_request(TenantId::local(), &agent, &models, input, identity)
    };
    match start(input.clone()) {
        Ok(request) => {
            let again = start(input).expect("it was taken before");
            assert_eq!((again.digest, again.spec), (request.digest, request.spec), "the same is the same");
        }
        Err(error) => {
            assert_eq!(error.code(), Code::InvalidArgument, "{error}");
            assert!(!error.details().is_empty(), "{error}");
        }
    }
}

/// Plays arbitrary frames of a host to a fleet that has calls for it. Every response must fit into a frame. After the
/// stream's end no host may be left connected.
pub(crate) fn frames(data: &[u8]) {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let build = || Builder::new_current_thread().enable_time().build().expect("a runtime starts");
    RUNTIME.get_or_init(build).block_on(session(data));
}

#[expect(clippy::disallowed_methods, reason = "each input of the fuzzer ends its own task")]
async fn session(data: &[u8]) {
    let tools = RemoteTools::new(RemoteToolsOptions::default(), NOW, Vec::new());
    let engine = Arc::new(OfferingEngine { tools: Arc::downgrade(&tools), attempts: Mutex::default() });
    let driver = tokio::spawn(tools.clone().drive(engine.clone()));
    // The driver must have run once, or hosts that reconnect with calls are sent away.
    tokio::task::yield_now().await;
    let (connection, sending) = tools.accept(TenantId::local()).expect("the first host is accepted");
    let frames = stream::iter(messages(data)).then(async |bytes| {
        // Lets the other tasks run, as they would between two frames from a socket.
        tokio::task::yield_now().await;
        engine.offer_all();
        match ConnectRequest::decode(bytes) {
            Ok(frame) => inbound(Ok(frame), GRPC_MESSAGE_BYTES_MAX),
            Err(error) => Err(FrameError::Malformed { message: error.to_string(), call: None }),
        }
    });
    let mut responses = Responses::default();
    let answered =
        sending.flat_map(move |outbound| stream::iter(responses.next(outbound))).for_each(async |answer| {
            let bytes = answer.map_or(0, |frame| frame.encoded_len());
            assert!(bytes <= GRPC_MESSAGE_BYTES_MAX, "a frame of {bytes} bytes");
        });
    tokio::join!(connection.run(frames), answered);
    for host in tools.hosts_snapshot(&TenantId::local()) {
        assert_eq!(host.health, HostHealth::Lost, "{host:?}");
    }
    driver.abort();
}

/// Splits the data into messages, each preceded by its length in two bytes. The last one may be cut short.
fn messages(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = data.split_first_chunk()?;
        let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
        let (message, rest) = rest.split_at(length);
        data = rest;
        Some(message)
    })
}

/// An engine that offers each call again whenever a host has room for it.
struct OfferingEngine {
    /// Weak, because the tools own this engine. [`session`] keeps them alive.
    tools: Weak<RemoteTools>,
    /// The latest attempt number of each call.
    attempts: Mutex<[u32; CALLS.len()]>,
}

impl OfferingEngine {
    fn origin() -> CallOrigin {
        let session = SessionId::parse("s").expect("it is a valid id");
        CallOrigin {
            tenant: TenantId::local(),
            session,
            agent: String::new(),
            caller: None,
            caller_groups: Arc::default(),
            traceparent: None,
            epoch: Epoch(1),
        }
    }

    fn tools(&self) -> Arc<RemoteTools> {
        self.tools.upgrade().expect("the session keeps them")
    }

    fn offer_all(&self) {
        for (place, (call, _)) in CALLS.iter().enumerate() {
            let call = CallId::parse(call).expect("it is a valid id");
            if let Seek::Granted { host, .. } = self.tools().seek(&Self::origin(), &call, "t", None) {
                self.offer(place, &call, host);
            }
        }
    }

    fn offer(&self, place: usize, call: &CallId, host: HostId) {
        let mut attempts = self.attempts.lock();
        attempts[place] += 1;
        let offer = Offer {
            slot: call.slot,
            attempt: Attempt(attempts[place]),
            host,
            instance: None,
            lease: Digest::claimed(CALLS[place].1),
            idempotency_key: "key".to_owned(),
            tool: "t".to_owned(),
            arguments: "{}".to_owned(),
            deadline: Timestamp(NOW.0 + 60_000),
            time_left: Millis::secs(60),
            checkpoint: None,
            resume_state: None,
            answers: Vec::new(),
            runtime: None,
        };
        drop(attempts);
        self.tools().offer(&Self::origin(), call, offer);
    }
}

#[async_trait]
impl CallSink for OfferingEngine {
    async fn report_update(&self, _tenant: &TenantId, call: &CallId, update: CallUpdate) -> bool {
        let place = CALLS.iter().position(|(known, _)| *known == call.to_string());
        if let (Some(place), CallUpdate::Granted { host, .. }) = (place, update) {
            self.offer(place, call, host);
        }
        true
    }

    async fn finished(
        &self,
        _tenant: &TenantId,
        call: &CallId,
        result: ReportedResult,
    ) -> Result<Verdict, SinkUnavailable> {
        let known = CALLS.iter().find(|(known, _)| *known == call.to_string());
        Ok(match known {
            Some((_, lease)) if *lease == result.lease => Verdict::Recorded,
            Some(_) => Verdict::Stale,
            None => Verdict::Unknown,
        })
    }

    async fn dispositions(
        &self,
        _tenant: &TenantId,
        _run: &RunId,
        calls: &[CallInHand],
    ) -> Result<Vec<Disposition>, SinkUnavailable> {
        let is_known = |claim: &CallInHand| {
            let call = claim.call.call.to_string();
            CALLS.iter().any(|known| known.0 == call && known.1 == claim.lease)
        };
        let disposition = |known| if known { Disposition::Continue } else { Disposition::Stop };
        Ok(calls.iter().map(|claim| disposition(is_known(claim))).collect())
    }
}
