//! One connection: frames in, frames out, until it ends.

use std::{collections::VecDeque, future::pending, time::Duration};

use agentloop_proto::v1::{
    Cancel, ConnectRequest, ConnectResponse, Credit as CreditFrame, Draining, GoAway, Goodbye, Heartbeat,
    Pong, ProtocolError, Welcome, connect_request::Frame, connect_response::Frame as ServerFrame,
};
use tokio::{
    sync::mpsc,
    time::{Instant, Interval, MissedTickBehavior, interval, sleep_until, timeout},
};
use tonic::{Status, Streaming};

use crate::host::{
    call::calls::CallKey,
    call::credit::Credit,
    call::task::TaskEvent,
    link::drain::Stage,
    link::handshake::{Connection, complain, turned_away},
    link::runtime::{Ended, Runtime, STOP_GRACE},
};

/// Frames that wait to be sent. With this many, running calls are not listened to; with four times as many, neither
/// is the server: it does not read.
const PENDING_MAX: usize = 256;
/// Output is held back this long, to be sent in fewer and larger frames.
const OUTPUT_DELAY: Duration = Duration::from_millis(10);
/// Bounds on what the server may ask for.
const HEARTBEAT_MIN: Duration = Duration::from_millis(100);
const HEARTBEAT_MAX: Duration = Duration::from_secs(60);
const GO_AWAY_MAX: Duration = Duration::from_secs(60);
/// How long the server may take to end the stream after `goodbye`.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// One connection of a host.
pub(crate) struct Session<'a> {
    runtime: &'a mut Runtime,
    incoming: Streaming<ConnectResponse>,
    outgoing: mpsc::Sender<ConnectRequest>,
    pending: VecDeque<Frame>,
    credit: Credit,
    heartbeat: Interval,
    /// When held-back output is due.
    flush_at: Option<Instant>,
    /// When to connect again, after a `go_away`.
    leave_at: Option<Instant>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(runtime: &'a mut Runtime, connection: Connection) -> Self {
        let Connection { incoming, outgoing, welcome, free } = connection;
        let pending = runtime.calls.resume(&welcome.calls, STOP_GRACE).into();
        Session {
            runtime,
            incoming,
            outgoing,
            pending,
            credit: Credit::new(free),
            heartbeat: heartbeat(&welcome),
            flush_at: None,
            leave_at: None,
        }
    }

    /// Serves until the connection is lost or the host is done.
    pub(crate) async fn serve(mut self) -> Ended {
        if self.runtime.drain.has_begun() {
            self.push(draining());
        }
        loop {
            self.grant();
            if self.is_done() {
                return self.leave().await;
            }
            if let Some(ended) = self.turn().await {
                return ended;
            }
        }
    }

    /// One thing that happens. The server is listened to first, so that a cancel is never behind.
    async fn turn(&mut self) -> Option<Ended> {
        let waiting = self.pending.len();
        tokio::select! {
            biased;
            _ = self.heartbeat.tick() => self.beat(),
            message = self.incoming.message(), if waiting < 4 * PENDING_MAX => return self.received(message),
            open = has_room(&self.outgoing), if waiting > 0 => {
                if !open {
                    return Some(self.hung_up().await);
                }
                self.send();
            }
            () = at(self.flush_at) => self.flush(),
            () = at(self.leave_at) => return Some(Ended::GoAway),
            stage = self.runtime.drain.next() => return self.drain(stage),
            Some(event) = self.runtime.events.recv(), if waiting < PENDING_MAX => self.happened(event),
        }
        None
    }

    /// Sends what there is room for.
    fn send(&mut self) {
        while self.outgoing.capacity() > 0
            && let Some(frame) = self.pending.pop_front()
        {
            // There is room, and nobody else sends.
            self.outgoing.try_send(ConnectRequest { frame: Some(frame) }).ok();
        }
    }

    fn received(&mut self, message: Result<Option<ConnectResponse>, Status>) -> Option<Ended> {
        match message {
            Ok(Some(message)) => message.frame.and_then(|frame| self.frame(frame)),
            Ok(None) => Some(Ended::Lost("the server ended the stream".into())),
            Err(status) => Some(broken(status)),
        }
    }

    fn frame(&mut self, frame: ServerFrame) -> Option<Ended> {
        match frame {
            ServerFrame::CallRequest(request) => {
                self.credit.spend();
                let frames = self.runtime.offered(request);
                self.pending.extend(frames);
            }
            ServerFrame::Cancel(cancel) => self.cancel(&cancel),
            ServerFrame::ResultAck(ack) => {
                self.runtime.calls.acknowledge(&CallKey::new(&ack.call_id, ack.attempt));
            }
            ServerFrame::LeaseLost(lost) => {
                self.runtime.calls.forget(&CallKey::new(&lost.call_id, lost.attempt), STOP_GRACE);
            }
            ServerFrame::Ping(ping) => self.push(Frame::Pong(Pong { nonce: ping.nonce })),
            ServerFrame::GoAway(go_away) => self.go_away(&go_away),
            ServerFrame::ProtocolError(error) => return Some(self.protocol_error(&error)),
            ServerFrame::ExtensionRequest(question) => self.runtime.asked(question),
            ServerFrame::OpenRuntime(request) => self.runtime.open_runtime(request),
            ServerFrame::CloseRuntime(closed) => self.runtime.close_runtime(&closed.runtime_id),
            ServerFrame::InputResponse(response) => self.runtime.calls.answered(&response),
            // A second welcome and answers to what this runtime never asks mean nothing to it.
            ServerFrame::Welcome(_) | ServerFrame::ToolsUpdated(_) => {}
        }
        None
    }

    fn cancel(&mut self, cancel: &Cancel) {
        let key = CallKey::new(&cancel.call_id, cancel.attempt);
        let grace = duration(cancel.grace_period.as_ref()).unwrap_or(STOP_GRACE);
        let answer = self.runtime.calls.cancel(&key, grace);
        self.pending.extend(answer);
    }

    fn go_away(&mut self, go_away: &GoAway) {
        let after = duration(go_away.reconnect_after.as_ref()).unwrap_or_default().min(GO_AWAY_MAX);
        self.leave_at = Some(Instant::now() + after);
    }

    fn protocol_error(&mut self, error: &ProtocolError) -> Ended {
        complain(&self.runtime.host, error);
        self.runtime.calls.refused(&error.call_id, &error.message);
        Ended::Lost(format!("the server reports a broken protocol: {}", error.message))
    }

    fn happened(&mut self, event: TaskEvent) {
        let output = matches!(event, TaskEvent::Output(..));
        let frames = self.runtime.happened(event);
        self.pending.extend(frames);
        if output && self.flush_at.is_none() {
            self.flush_at = Some(Instant::now() + OUTPUT_DELAY);
        }
    }

    fn flush(&mut self) {
        self.flush_at = None;
        let frames = self.runtime.calls.flush();
        self.pending.extend(frames);
    }

    fn beat(&mut self) {
        self.push(Frame::Heartbeat(Heartbeat { calls: self.runtime.calls.alive() }));
    }

    fn drain(&mut self, stage: Stage) -> Option<Ended> {
        if stage == Stage::Draining {
            self.push(draining());
        }
        self.runtime.drained(stage).then_some(Ended::Drained)
    }

    fn grant(&mut self) {
        if let Some(total) = self.credit.grow(self.runtime.free()) {
            self.push(Frame::Credit(CreditFrame { total }));
        }
    }

    fn push(&mut self, frame: Frame) {
        self.pending.push_back(frame);
    }

    /// Nothing runs, nothing waits to be acknowledged, and the server was told that nothing new is wanted.
    fn is_done(&self) -> bool {
        self.runtime.drain.has_begun() && self.pending.is_empty() && self.runtime.calls.is_idle()
    }

    /// Says goodbye and lets the server end the stream. Nothing depends on it: the server has all results.
    async fn leave(self) -> Ended {
        let Session { mut incoming, outgoing, .. } = self;
        let goodbye = Frame::Goodbye(Goodbye { reason: "shut down".into() });
        let ending = async {
            outgoing.send(ConnectRequest { frame: Some(goodbye) }).await.ok();
            drop(outgoing);
            while let Ok(Some(_)) = incoming.message().await {}
        };
        timeout(GOODBYE_TIMEOUT, ending).await.ok();
        Ended::Drained
    }

    /// The request side is gone; the response side says why.
    async fn hung_up(&mut self) -> Ended {
        loop {
            let last = timeout(GOODBYE_TIMEOUT, self.incoming.message()).await;
            match last {
                Ok(Ok(Some(ConnectResponse { frame: Some(ServerFrame::ProtocolError(error)) }))) => {
                    return self.protocol_error(&error);
                }
                Ok(Ok(Some(_))) => {}
                Ok(Ok(None)) | Err(_) => return Ended::Lost("the server ended the stream".into()),
                Ok(Err(status)) => return broken(status),
            }
        }
    }
}

/// A status that ends a stream which was welcomed. Whatever it says, the host was good enough before: only a
/// credential that does not count any more is final.
fn broken(status: Status) -> Ended {
    match status.code() {
        tonic::Code::Unauthenticated | tonic::Code::PermissionDenied => turned_away(status),
        _ => Ended::Lost(crate::Error::from(status).to_string()),
    }
}

fn draining() -> Frame {
    Frame::Draining(Draining { reason: "shutting down".into() })
}

fn heartbeat(welcome: &Welcome) -> Interval {
    let period = duration(welcome.heartbeat_interval.as_ref()).unwrap_or(HEARTBEAT_MAX);
    let mut heartbeat = interval(period.clamp(HEARTBEAT_MIN, HEARTBEAT_MAX));
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    heartbeat
}

/// A duration of the contract; `None` where it is absent or negative.
fn duration(given: Option<&prost_types::Duration>) -> Option<Duration> {
    given.and_then(|duration| Duration::try_from(*duration).ok())
}

/// Waits for room for a frame. Returns whether the connection still takes any.
async fn has_room(outgoing: &mpsc::Sender<ConnectRequest>) -> bool {
    outgoing.reserve().await.is_ok()
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => pending().await,
    }
}
