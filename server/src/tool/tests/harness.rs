//! A real `RemoteTools` between a fake engine, which records its input, and fake hosts, which the test scripts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agentloop_core::host::CloseReason;
use agentloop_core::host::frame::{
    CallInHand, CallOutcome, CallRef, CallRequest, CallResult, Capability, Hello, HostFrame, ServerFrame,
    Welcome,
};
use agentloop_core::id::{Attempt, CallId, Epoch, HostId, RunId, RuntimeId, SessionId, TenantId};
use agentloop_core::run::effect::Offer;
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::tool::{Digest, EffectClass, ToolDeclaration};
use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::tool::{
    CallOrigin, CallSink, CallUpdate, Disposition, FrameError, HostIdentity, Outbound, OutboundFrames,
    RemoteTools, RemoteToolsOptions, ReportedResult, Seek, SinkUnavailable, Tools as _, Verdict,
};

pub(crate) const NOW: Timestamp = Timestamp(1_700_000_000_000);

/// A call of the sink, as the fake engine recorded it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Heard {
    Update(CallId, CallUpdate),
    Finished(CallId, ReportedResult),
}

pub(crate) struct FakeEngine {
    heard: Mutex<Vec<Heard>>,
    changed: Notify,
    /// True while its store answers.
    pub(crate) available: AtomicBool,
    /// One permit is used up by each result to record.
    pub(crate) recordings: Semaphore,
    /// One permit is held during each look-up of a run's calls, and of a runtime.
    pub(crate) looks: Semaphore,
    /// The runs that were looked up, in order.
    pub(crate) looked_at: Mutex<Vec<String>>,
    /// Notified of each look-up.
    pub(crate) looked: Notify,
    /// One permit is used up by each update.
    pub(crate) attention: Semaphore,
    /// Runs whose updates and results are never dealt with.
    stuck: Mutex<BTreeSet<RunId>>,
    verdicts: Mutex<HashMap<CallId, Verdict>>,
    dispositions: Mutex<HashMap<CallId, Disposition>>,
    unused: Mutex<BTreeSet<String>>,
}

impl Default for FakeEngine {
    fn default() -> Self {
        Self {
            heard: Mutex::default(),
            changed: Notify::new(),
            available: AtomicBool::new(true),
            recordings: Semaphore::new(Semaphore::MAX_PERMITS),
            looks: Semaphore::new(Semaphore::MAX_PERMITS),
            looked_at: Mutex::default(),
            looked: Notify::new(),
            attention: Semaphore::new(Semaphore::MAX_PERMITS),
            stuck: Mutex::default(),
            verdicts: Mutex::default(),
            dispositions: Mutex::default(),
            unused: Mutex::default(),
        }
    }
}

impl FakeEngine {
    pub(crate) fn verdict(&self, call: &str, verdict: Verdict) {
        self.verdicts.lock().insert(call_id(call), verdict);
    }

    pub(crate) fn disposition(&self, call: &str, disposition: Disposition) {
        self.dispositions.lock().insert(call_id(call), disposition);
    }

    /// The run does not use this runtime any more.
    pub(crate) fn leaves(&self, runtime: &str) {
        self.unused.lock().insert(runtime.to_owned());
    }

    /// From now on nothing of this run is dealt with, or all of it again.
    pub(crate) fn stick(&self, run: &str, is_stuck: bool) {
        let mut stuck = self.stuck.lock();
        if is_stuck {
            stuck.insert(run_id(run));
        } else {
            stuck.remove(&run_id(run));
        }
        self.changed.notify_waiters();
    }

    async fn unstuck(&self, run: &RunId) {
        loop {
            let changed = self.changed.notified();
            if !self.stuck.lock().contains(run) {
                return;
            }
            changed.await;
        }
    }

    /// Waits for this many calls of the sink, and returns all so far.
    pub(crate) async fn heard(&self, count: usize) -> Vec<Heard> {
        loop {
            let changed = self.changed.notified();
            let heard = self.heard.lock().clone();
            if heard.len() >= count {
                return heard;
            }
            changed.await;
        }
    }

    /// Waits for an update of a call for which `fits` is true.
    pub(crate) async fn update(&self, call: &str, fits: impl Fn(&CallUpdate) -> bool) -> CallUpdate {
        let id = call_id(call);
        loop {
            let changed = self.changed.notified();
            let found = self.heard.lock().iter().find_map(|heard| match heard {
                Heard::Update(of, update) if *of == id && fits(update) => Some(update.clone()),
                Heard::Update(..) | Heard::Finished(..) => None,
            });
            if let Some(update) = found {
                return update;
            }
            changed.await;
        }
    }

    pub(crate) fn all(&self) -> Vec<Heard> {
        self.heard.lock().clone()
    }

    fn hear(&self, heard: Heard) {
        self.heard.lock().push(heard);
        self.changed.notify_waiters();
    }
}

#[async_trait]
impl CallSink for FakeEngine {
    async fn report_update(&self, _tenant: &TenantId, call: &CallId, update: CallUpdate) -> bool {
        self.unstuck(&call.run).await;
        self.attention.acquire().await.unwrap().forget();
        let is_told = self.available.load(Ordering::SeqCst);
        if is_told {
            self.hear(Heard::Update(call.clone(), update));
        }
        is_told
    }

    async fn finished(
        &self,
        _tenant: &TenantId,
        call: &CallId,
        result: ReportedResult,
    ) -> Result<Verdict, SinkUnavailable> {
        self.unstuck(&call.run).await;
        self.recordings.acquire().await.unwrap().forget();
        if !self.available.load(Ordering::SeqCst) {
            return Err(SinkUnavailable);
        }
        self.hear(Heard::Finished(call.clone(), result));
        Ok(self.verdicts.lock().get(call).copied().unwrap_or(Verdict::Recorded))
    }

    async fn dispositions(
        &self,
        _tenant: &TenantId,
        run: &RunId,
        calls: &[CallInHand],
    ) -> Result<Vec<Disposition>, SinkUnavailable> {
        self.looked_at.lock().push(run.to_string());
        self.looked.notify_one();
        let _looks = self.looks.acquire().await.unwrap();
        if !self.available.load(Ordering::SeqCst) {
            return Err(SinkUnavailable);
        }
        let said = self.dispositions.lock();
        let disposition = |claim: &CallInHand| said.get(&claim.call.call).copied();
        Ok(calls.iter().map(|claim| disposition(claim).unwrap_or(Disposition::Continue)).collect())
    }

    async fn uses_runtime(
        &self,
        _tenant: &TenantId,
        runtime: &RuntimeId,
        _host: &HostId,
    ) -> Result<bool, SinkUnavailable> {
        let _look = self.looks.acquire().await.unwrap();
        Ok(!self.unused.lock().contains(&runtime.to_string()))
    }
}

/// A running `RemoteTools` with a fake engine.
pub(crate) struct Harness {
    pub(crate) tools: Arc<RemoteTools>,
    pub(crate) engine: Arc<FakeEngine>,
}

impl Harness {
    pub(crate) fn new() -> Self {
        Self::with(RemoteToolsOptions::default())
    }

    pub(crate) fn with(options: RemoteToolsOptions) -> Self {
        let tools = RemoteTools::new(options, NOW, Vec::new());
        let engine = Arc::new(FakeEngine::default());
        tokio::spawn(tools.clone().drive(engine.clone()));
        Self { tools, engine }
    }

    /// Opens a stream. The host has sent nothing yet.
    pub(crate) fn dial(&self) -> FakeHost {
        self.dial_as(HostIdentity::default())
    }

    pub(crate) fn dial_as(&self, identity: HostIdentity) -> FakeHost {
        let accepted = self.tools.accept_as(tenant(), identity);
        let (connection, sending) = accepted.expect("the server accepts another host");
        let (frames, receiver) = mpsc::unbounded_channel();
        tokio::spawn(connection.run(UnboundedReceiverStream::new(receiver)));
        FakeHost { frames, sending }
    }

    /// Connects a host with these tools and credit for eight calls.
    pub(crate) async fn host(&self, name: &str, tools: &[&str]) -> FakeHost {
        // The driver has to have run once, or the host is sent away.
        tokio::task::yield_now().await;
        let mut host = self.dial();
        host.say(HostFrame::Hello(hello(name, tools)));
        let welcome = host.welcome().await;
        assert!(welcome.capabilities.iter().all(|verdict| verdict.refused.is_none()), "{welcome:?}");
        host
    }

    pub(crate) fn seek(&self, call: &str, tool: &str) -> Seek {
        self.tools.seek(&origin(), &call_id(call), tool, None)
    }

    /// Seeks a host, which must have room, and offers it the call.
    pub(crate) fn give(&self, call: &str, attempt: u32, tool: &str) {
        let Seek::Granted { host, .. } = self.seek(call, tool) else { panic!("there is room for {call}") };
        self.tools.offer(&origin(), &call_id(call), offer(call, attempt, &host, tool));
    }
}

pub(crate) struct FakeHost {
    pub(crate) frames: mpsc::UnboundedSender<Result<HostFrame, FrameError>>,
    pub(crate) sending: OutboundFrames,
}

impl FakeHost {
    pub(crate) fn say(&self, frame: HostFrame) {
        // A stream that the server ended takes nothing more, like a socket.
        let _ = self.frames.send(Ok(frame));
    }

    /// The next message from the server that is no ping.
    pub(crate) async fn next(&mut self) -> Outbound {
        loop {
            match self.sending.next().await.expect("the stream goes on") {
                Outbound::Frame(ServerFrame::Ping { .. }) => {}
                outbound => return outbound,
            }
        }
    }

    pub(crate) async fn frame(&mut self) -> ServerFrame {
        match self.next().await {
            Outbound::Frame(frame) => frame,
            other => panic!("no frame: {other:?}"),
        }
    }

    pub(crate) async fn welcome(&mut self) -> Welcome {
        match self.frame().await {
            ServerFrame::Welcome(welcome) => *welcome,
            other => panic!("no welcome: {other:?}"),
        }
    }

    pub(crate) async fn call(&mut self) -> CallRequest {
        match self.frame().await {
            ServerFrame::CallRequest(request) => *request,
            other => panic!("no call: {other:?}"),
        }
    }

    pub(crate) async fn end(&mut self) -> CloseReason {
        match self.next().await {
            Outbound::End(reason) => reason,
            other => panic!("the stream goes on: {other:?}"),
        }
    }

    pub(crate) async fn protocol_error(&mut self) -> String {
        match self.frame().await {
            ServerFrame::ProtocolError { message, .. } => message,
            other => panic!("no protocol error: {other:?}"),
        }
    }

    /// Accepts the next call.
    pub(crate) async fn take(&mut self) -> CallRequest {
        let request = self.call().await;
        self.say(HostFrame::Accepted(request.call.clone()));
        request
    }

    pub(crate) fn send_result(&self, call: &str, attempt: u32) {
        self.say(result_frame(call, attempt));
    }
}

pub(crate) fn tenant() -> TenantId {
    TenantId::local()
}

pub(crate) fn origin() -> CallOrigin {
    CallOrigin {
        tenant: tenant(),
        session: SessionId::parse("s").unwrap(),
        agent: "a".to_owned(),
        caller: Some("ada".to_owned()),
        caller_groups: Arc::from(["sre".to_owned(), "on call".to_owned()]),
        traceparent: None,
        epoch: Epoch(1),
    }
}

pub(crate) fn call_id(text: &str) -> CallId {
    CallId::parse(text).unwrap()
}

pub(crate) fn call_ref(text: &str, attempt: u32) -> CallRef {
    CallRef { call: call_id(text), attempt: Attempt(attempt) }
}

pub(crate) fn run_id(text: &str) -> RunId {
    RunId::parse(text).unwrap()
}

pub(crate) fn lease(call: &str, attempt: u32) -> Digest {
    Digest::of(&[call.as_bytes(), &attempt.to_le_bytes()])
}

pub(crate) fn offer(call: &str, attempt: u32, host: &HostId, tool: &str) -> Offer {
    Offer {
        slot: call_id(call).slot,
        attempt: Attempt(attempt),
        host: host.clone(),
        instance: None,
        lease: lease(call, attempt),
        idempotency_key: format!("key of {call}"),
        tool: tool.to_owned(),
        arguments: r#"{"city":"Ulm"}"#.to_owned(),
        deadline: Timestamp(NOW.0 + 60_000),
        time_left: Millis::secs(60),
        checkpoint: None,
        resume_state: None,
        answers: Vec::new(),
        runtime: None,
    }
}

pub(crate) fn declaration(name: &str) -> ToolDeclaration {
    ToolDeclaration {
        name: name.to_owned(),
        description: format!("Does {name}."),
        input_schema: r#"{"type":"object","properties":{"city":{"type":"string"}}}"#.to_owned(),
        effect: EffectClass::Unsafe,
        requires_approval: false,
        requires_runtime: false,
        deadline_is_outcome: false,
        output_schema: String::new(),
        timeout: None,
        max_concurrency: None,
        streams_output: false,
        title: String::new(),
    }
}

pub(crate) fn capability(name: &str) -> Capability {
    Capability::Tool(Box::new(declaration(name)))
}

pub(crate) fn hello(name: &str, tools: &[&str]) -> Box<Hello> {
    Box::new(Hello {
        protocol_version: 1,
        host: HostId::parse(name).unwrap(),
        instance: None,
        connection_no: 0,
        sdk: "test/1".to_owned(),
        labels: BTreeMap::new(),
        capabilities: tools.iter().map(|name| capability(name)).collect(),
        max_frame_bytes: 4 * 1024 * 1024,
        calls_in_hand: Vec::new(),
        initial_credit: 8,
        open_runtimes: Vec::new(),
    })
}

pub(crate) fn in_hand(call: &str, attempt: u32, finished: bool) -> CallInHand {
    CallInHand { call: call_ref(call, attempt), lease: lease(call, attempt).as_str().to_owned(), finished }
}

pub(crate) fn result_frame(call: &str, attempt: u32) -> HostFrame {
    HostFrame::Result(Box::new(CallResult {
        call: call_ref(call, attempt),
        lease: lease(call, attempt).as_str().to_owned(),
        outcome: CallOutcome::Succeeded {
            output: "sunny".to_owned(),
            images: Vec::new(),
            attachments: Default::default(),
        },
    }))
}

pub(crate) fn output(call: &str, chunk_seq: u64, bytes: usize) -> HostFrame {
    HostFrame::Output { call: call_ref(call, 1), chunk_seq, stderr: false, data: vec![b'x'; bytes] }
}
