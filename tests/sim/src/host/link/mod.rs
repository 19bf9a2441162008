//! A host's process and its streams to the server.

mod received;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::host::frame::{
    CallInHand, CallOutcome, CallRef, CallResult, Capability, Hello, HostFrame,
};
use agentloop_core::id::{HostId, InstanceId};
use agentloop_server::extension::remote::{ExtensionRequest, ExtensionResponse};
use agentloop_server::tool::{FrameError, Inbound, Outbound, OutboundFrames};
use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::calls::{self, CallReport, HostCall, OpenQuestion};
use super::{extensions, tools};
use crate::random::Random;
use crate::world::{World, tenant};

/// Calls that a host takes at a time.
const ROOM: u64 = 4;

/// A host process with its connection.
pub(crate) struct Host {
    world: Arc<World>,
    name: String,
    random: Random,
    held: BTreeMap<CallRef, HostCall>,
    /// Acknowledged answers, to answer a call that is given a second time.
    memory: BTreeMap<CallRef, CallOutcome>,
    reports: mpsc::UnboundedReceiver<(CallRef, CallReport)>,
    tell: mpsc::UnboundedSender<(CallRef, CallReport)>,
    link: Option<Link>,
    /// Number of the process. `None` for a host of an older library, which does not name its process.
    process: Option<u64>,
    /// Calls that the process began and names no more.
    forgotten: u64,
    /// Number of streams that it has opened.
    connections: u64,
}

/// A stream that is open.
struct Link {
    frames: mpsc::UnboundedSender<Result<Inbound, FrameError>>,
    /// Calls that came on it, lost ones included: a stream between two real processes loses none.
    taken: u64,
    /// The credit that the host has given in all.
    granted: u64,
    /// Nothing gets through in either direction.
    dead: bool,
}

impl Host {
    pub(crate) fn new(world: Arc<World>, number: u64) -> Self {
        let (tell, reports) = mpsc::unbounded_channel();
        let name = format!("host-{number}");
        let random = world.random(&name);
        let (held, memory) = (BTreeMap::new(), BTreeMap::new());
        let process = (!number.is_multiple_of(3)).then_some(1);
        Self {
            world,
            name,
            random,
            held,
            memory,
            reports,
            tell,
            link: None,
            process,
            forgotten: 0,
            connections: 0,
        }
    }

    /// Lives until it is dropped.
    pub(crate) async fn run(mut self) {
        loop {
            self.connected().await;
            self.link = None;
            self.away().await;
        }
    }

    /// Between two streams: work goes on, or the process is killed and begins anew.
    async fn away(&mut self) {
        let fails = self.link_fails();
        let long = if self.random.chance(5 * fails) { 45_000 } else { 2_000 };
        let until = Instant::now() + Duration::from_millis(self.random.between(1, long));
        if self.random.chance(2 * fails) {
            self.world.fault("host kills");
            self.world.trace.line(&self.name, "is killed, and forgets everything");
            for (_, held) in std::mem::take(&mut self.held) {
                held.stop();
            }
            self.memory.clear();
            self.process = self.process.map(|process| process + 1);
            (self.tell, self.reports) = mpsc::unbounded_channel();
        }
        while let Ok(Some((call, report))) = tokio::time::timeout_at(until, self.reports.recv()).await {
            self.handle_report(&call, report);
        }
        if self.world.plan.answers_outside {
            self.answers_outside().await;
        }
    }

    /// Hands in what it has without a stream.
    async fn answers_outside(&mut self) {
        let finished = |(call, held): (&CallRef, &HostCall)| {
            let (call, lease, outcome) = (call.clone(), held.lease.clone(), held.outcome.clone()?);
            Some(CallResult { call, lease, outcome })
        };
        let answers: Vec<CallResult> = self.held.iter().filter_map(finished).collect();
        for answer in answers {
            let (call, world) = (answer.call.clone(), self.world.clone());
            let tenant = tenant();
            let completed = world
                .call(Some(Duration::from_secs(2)), |server| async move {
                    server.tools.complete(&tenant, answer).await
                })
                .await;
            if let Some(Ok(verdict)) = completed {
                self.world.trace.line(&self.name, &format!("{}: {verdict:?}, without a stream", call.call));
                self.acknowledged(&call, verdict.for_host());
            }
        }
    }

    /// One stream, from its hello to its end.
    async fn connected(&mut self) {
        let server = self.world.up().await;
        let Ok((connection, sending)) = server.tools.accept(tenant()) else { return };
        let (frames, receiver) = mpsc::unbounded_channel();
        let running = connection.run(UnboundedReceiverStream::new(receiver));
        drop(server.tasks.spawn("host", async move {
            let _host = running.await;
        }));
        self.world.trace.line(&self.name, &format!("connects to {}", server.number));
        self.connections += 1;
        let hello = self.hello();
        self.link = Some(Link { frames, taken: 0, granted: hello.initial_credit, dead: false });
        self.send_surely(HostFrame::Hello(Box::new(hello)));
        let stopped = server.tasks.hard().clone();
        let served = stopped.run_until_cancelled(self.serve(sending)).await;
        if served.is_none() {
            self.world.trace.line(&self.name, "sees its stream break");
        }
    }

    async fn serve(&mut self, mut sending: OutboundFrames) {
        let mut heartbeat = tokio::time::interval(Duration::from_secs(5));
        let mut dead_until: Option<Instant> = None;
        let (say, mut said) = mpsc::unbounded_channel();
        loop {
            let silence = async {
                match dead_until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! { biased;
                () = silence => return,
                Some((call, report)) = self.reports.recv() => self.handle_report(&call, report),
                Some(reply) = said.recv() => self.replies(reply),
                next = sending.next() => match next {
                    Some(Outbound::Frame(frame)) => {
                        if dead_until.is_none() && !self.receives(frame) {
                            return;
                        }
                    }
                    Some(Outbound::ExtensionRequest(request)) => {
                        if dead_until.is_none() {
                            self.ask_extension(&request, &say);
                        }
                    }
                    // There is one server, so nobody passes requests on.
                    Some(Outbound::Forward(_)) => {}
                    Some(Outbound::End(_)) | None => return,
                },
                _ = heartbeat.tick() => self.beats(),
            }
            if dead_until.is_none() && self.breaks() {
                self.world.fault("streams broken");
                let wait = self.random.pick(&[0, 0, 3_000, 20_000]);
                self.world
                    .trace
                    .line(&self.name, &format!("loses its stream, which is noticed in {wait} ms"));
                dead_until = Some(Instant::now() + Duration::from_millis(wait));
                self.link.iter_mut().for_each(|link| link.dead = true);
            }
        }
    }

    fn link_fails(&self) -> u64 {
        if self.world.is_calm() { 0 } else { self.world.plan.link_fails }
    }

    fn breaks(&mut self) -> bool {
        let fails = self.link_fails();
        self.random.chance(fails)
    }

    fn hello(&self) -> Hello {
        let in_hand = |(call, held): (&CallRef, &HostCall)| CallInHand {
            call: call.clone(),
            lease: held.lease.clone(),
            finished: held.outcome.is_some(),
        };
        Hello {
            protocol_version: 1,
            host: HostId::parse(self.name.clone()).expect("a good id"),
            instance: self.process.map(|process| {
                InstanceId::parse(format!("{process}.{}", self.forgotten)).expect("a good name")
            }),
            connection_no: self.connections,
            sdk: "sim/1".to_owned(),
            labels: BTreeMap::new(),
            capabilities: tools()
                .into_iter()
                .map(|tool| Capability::Tool(Box::new(tool)))
                .chain(self.world.plan.extensions.then(extensions::offered).into_iter().flatten())
                .collect(),
            max_frame_bytes: 4 * 1024 * 1024,
            calls_in_hand: self.held.iter().map(in_hand).collect(),
            initial_credit: ROOM.saturating_sub(self.running()),
            open_runtimes: Vec::new(),
        }
    }

    fn running(&self) -> u64 {
        self.held.values().filter(|held| held.outcome.is_none()).count() as u64
    }

    /// A frame on its way: lost, once, or twice.
    fn send(&mut self, frame: HostFrame) {
        let fails = self.link_fails();
        let times = if self.random.chance(fails / 2) {
            self.world.fault("frames lost");
            self.world.trace.line(&self.name, &format!("a frame is lost: {}", name_of(&frame)));
            0
        } else if self.random.chance(fails) {
            self.world.fault("frames repeated");
            self.world.trace.line(&self.name, &format!("a frame comes twice: {}", name_of(&frame)));
            2
        } else {
            1
        };
        for _ in 0..times {
            self.send_surely(frame.clone());
        }
    }

    fn send_surely(&mut self, frame: HostFrame) {
        if let Some(link) = self.link.as_ref().filter(|link| !link.dead) {
            // A stream that the server ended takes nothing more, like a socket.
            let _gone = link.frames.send(Ok(frame.into()));
        }
    }

    /// One of its extensions is asked, and answers by the channel when it has thought.
    fn ask_extension(&mut self, ask: &ExtensionRequest, say: &mpsc::UnboundedSender<ExtensionResponse>) {
        let fails = if self.world.is_calm() { 0 } else { self.world.plan.extensions_fail };
        let Some((thinks, reply)) = extensions::answer(&self.world, &mut self.random, ask, fails) else {
            return self.world.trace.line(&self.name, &format!("never answers for {}", ask.name));
        };
        let (say, name) = (say.clone(), ask.name.clone());
        let (world, host) = (self.world.clone(), self.name.clone());
        tokio::spawn(async move {
            tokio::time::sleep(thinks).await;
            world.trace.line(&host, &format!("{name}: {:?}", reply.result));
            // The stream that it was asked on may be over.
            let _gone = say.send(reply);
        });
    }

    fn replies(&mut self, reply: ExtensionResponse) {
        let fails = self.link_fails();
        if self.random.chance(fails / 2) {
            return self.world.fault("frames lost");
        }
        if let Some(link) = self.link.as_ref().filter(|link| !link.dead) {
            let _gone = link.frames.send(Ok(Inbound::Reply(Box::new(reply))));
        }
    }

    /// Gives credit for the calls that there is room for, if it has not yet.
    fn credit(&mut self) {
        let free = ROOM.saturating_sub(self.running());
        let Some(link) = &mut self.link else { return };
        let total = link.taken + free;
        if total > link.granted {
            link.granted = total;
            self.send_surely(HostFrame::Credit { total });
        }
    }

    fn beats(&mut self) {
        let running = self.held.iter().filter(|(_, held)| held.outcome.is_none());
        let calls = running.map(|(call, _)| call.clone()).collect();
        self.send(HostFrame::Heartbeat { calls, status: String::new() });
    }

    /// Passes the report of a running call on to the server.
    fn handle_report(&mut self, call: &CallRef, report: CallReport) {
        let Some(held) = self.held.get_mut(call) else { return };
        let call = call.clone();
        match report {
            CallReport::Checkpoint(checkpoint) => {
                let (message, checkpoint) = ("half way".to_owned(), Some(checkpoint));
                self.send(HostFrame::Progress {
                    call,
                    message,
                    fraction: Some(0.5),
                    checkpoint,
                    resumable: None,
                });
            }
            CallReport::Output(chunk_seq) => {
                self.send(HostFrame::Output { call, chunk_seq, stderr: false, data: b"out".to_vec() });
            }
            CallReport::Asks { leaves } => {
                held.asks = Some(OpenQuestion { leaves });
                self.asks(call);
            }
            CallReport::Done(outcome) => {
                held.outcome = Some(outcome);
                self.answers(&call);
                self.credit();
            }
        }
    }

    fn asks(&mut self, call: CallRef) {
        let Some(OpenQuestion { leaves }) = self.held.get(&call).and_then(|held| held.asks) else { return };
        let resume_state = leaves.then(|| calls::LEFT.to_vec());
        self.send(HostFrame::NeedInput { call, question: calls::question(), timeout: None, resume_state });
    }

    fn answers(&mut self, call: &CallRef) {
        let Some(held) = self.held.get(call) else { return };
        if let Some(outcome) = held.outcome.clone() {
            let (call, lease) = (call.clone(), held.lease.clone());
            self.send(HostFrame::Result(Box::new(CallResult { call, lease, outcome })));
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.held.values().for_each(|held| held.stop());
    }
}

fn name_of(frame: &HostFrame) -> &'static str {
    match frame {
        HostFrame::Hello(_) => "hello",
        HostFrame::UpdateTools { .. } => "update_tools",
        HostFrame::Credit { .. } => "credit",
        HostFrame::Accepted(_) => "accepted",
        HostFrame::Rejected { .. } => "rejected",
        HostFrame::Heartbeat { .. } => "heartbeat",
        HostFrame::Progress { .. } => "progress",
        HostFrame::Output { .. } => "output",
        HostFrame::Result(_) => "answer",
        HostFrame::NeedInput { .. } => "need_input",
        HostFrame::CancelAck { .. } => "cancel_ack",
        HostFrame::Draining => "draining",
        HostFrame::Goodbye => "goodbye",
        HostFrame::Pong => "pong",
        HostFrame::Unknown => "unknown",
    }
}
