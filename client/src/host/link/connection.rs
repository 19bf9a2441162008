//! One connection: receives and sends frames until it ends.

use std::{collections::VecDeque, future::pending, time::Duration};

use agentloop_proto::v1::{
    Cancel, ConnectRequest, ConnectResponse, Credit as CreditFrame, Draining, Goodbye, Heartbeat, Pong,
    ProtocolError, Welcome, connect_request::Frame, connect_response::Frame as ServerFrame,
};
use tokio::{
    sync::mpsc,
    time::{Instant, Interval, MissedTickBehavior, interval, sleep_until, timeout},
};
use tonic::{Code, Status, Streaming};

use crate::host::{
    call::{credit::Credit, key::CallKey, task::TaskEvent},
    error::HostError,
    link::{
        drain::Stage,
        end::{ConnectionEnd, GoingAway, STOP_GRACE, duration},
        handshake::{WelcomedConnection, refusal, report_protocol_error},
        state::HostState,
    },
};

/// Bound on frames that wait to be sent. At this bound the host reads no more task events. At four times the bound it
/// reads no more frames either: the server does not read.
const PENDING_MAX: usize = 256;
/// Output is buffered for this long, so that it goes in fewer and larger frames.
const OUTPUT_DELAY: Duration = Duration::from_millis(10);
/// Bounds on the interval of this host's heartbeats.
const HEARTBEAT_MIN: Duration = Duration::from_millis(100);
const HEARTBEAT_MAX: Duration = Duration::from_secs(60);
/// Heartbeat intervals without a frame, after which the server counts as gone.
const SILENT_INTERVALS: u32 = 2;
/// Time that the server may take to end the stream after `goodbye`.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// One connection of a host, after its handshake.
pub(crate) struct Connection<'a> {
    state: &'a mut HostState,
    incoming: Streaming<ConnectResponse>,
    outgoing: mpsc::Sender<ConnectRequest>,
    pending: VecDeque<Frame>,
    credit: Credit,
    heartbeat: Interval,
    /// The time that a server which sends pings may be silent.
    silence: Duration,
    /// The time at which the server counts as gone. Set by its first ping: an older server may send none.
    silent_at: Option<Instant>,
    /// The time to send buffered output.
    flush_at: Option<Instant>,
    /// Set by a `go_away`. The connection is used until the server ends it, or until the time to connect again.
    going_away: Option<GoingAway>,
}

impl<'a> Connection<'a> {
    pub(crate) fn new(state: &'a mut HostState, welcomed: WelcomedConnection) -> Self {
        let WelcomedConnection { incoming, outgoing, welcome, free } = welcomed;
        let pending = state.calls.apply_verdicts(&welcome.calls, STOP_GRACE).into();
        Connection {
            state,
            incoming,
            outgoing,
            pending,
            credit: Credit::new(free),
            heartbeat: heartbeat(&welcome),
            silence: silence(&welcome),
            silent_at: None,
            flush_at: None,
            going_away: None,
        }
    }

    /// Serves until the connection is lost or the host has shut down.
    pub(crate) async fn serve(mut self) -> ConnectionEnd {
        if self.state.drain.has_begun() {
            self.push(draining());
        }
        loop {
            self.grant_credit();
            if self.is_done() {
                return self.say_goodbye().await;
            }
            if let Some(ended) = self.next_event().await {
                return self.after_go_away(ended);
            }
        }
    }

    /// The end of the connection. A server that told the host to go away ends it right after that: the wait still counts.
    fn after_go_away(&mut self, ended: ConnectionEnd) -> ConnectionEnd {
        match (ended, self.going_away.take()) {
            (ConnectionEnd::Lost(_), Some(away)) => ConnectionEnd::GoAway(away),
            (ended, _) => ended,
        }
    }

    /// Waits for one event and handles it. Frames of the server come before task events, so that a cancel is not delayed.
    async fn next_event(&mut self) -> Option<ConnectionEnd> {
        let waiting = self.pending.len();
        tokio::select! {
            biased;
            _ = self.heartbeat.tick() => self.send_heartbeat(),
            message = self.incoming.message(), if waiting < 4 * PENDING_MAX => {
                return self.handle_message(message).await;
            }
            () = sleep_until_set(self.silent_at) => {
                let silence = self.silence;
                return Some(ConnectionEnd::Lost(format!("the server sent nothing for {silence:?}")));
            }
            open = has_room(&self.outgoing), if waiting > 0 => {
                if !open {
                    return Some(self.read_last_frame().await);
                }
                self.send();
            }
            () = sleep_until_set(self.flush_at) => self.flush(),
            () = sleep_until_set(self.going_away.as_ref().map(|away| away.until)) => {
                return Some(ConnectionEnd::Lost("the time to connect again has come".into()));
            }
            stage = self.state.drain.next_stage() => return self.drain(stage),
            Some(event) = self.state.events.recv(), if waiting < PENDING_MAX => self.handle_task_event(event),
        }
        None
    }

    /// Sends as many frames as the channel has room for.
    fn send(&mut self) {
        while self.outgoing.capacity() > 0
            && let Some(frame) = self.pending.pop_front()
        {
            // It cannot fail: there is room, and nobody else sends.
            self.outgoing.try_send(ConnectRequest { frame: Some(frame) }).ok();
        }
    }

    async fn handle_message(
        &mut self,
        message: Result<Option<ConnectResponse>, Status>,
    ) -> Option<ConnectionEnd> {
        match message {
            Ok(Some(_)) if self.stood_still() => {
                let silence = self.silence;
                let reason =
                    format!("no frame was read for {silence:?}; the server may have given the host up");
                Some(ConnectionEnd::Lost(reason))
            }
            Ok(Some(ConnectResponse { frame: Some(ServerFrame::ProtocolError(error)) })) => {
                Some(self.protocol_error(&error).await)
            }
            Ok(Some(message)) => {
                message.frame.into_iter().for_each(|frame| self.handle_frame(frame));
                self.silent_at = self.silent_at.map(|_| Instant::now() + self.silence);
                None
            }
            Ok(None) => Some(ConnectionEnd::Lost("the server ended the stream".into())),
            Err(status) => Some(self.stream_end(status)),
        }
    }

    /// True if the silence was over before the frame that waits was read. After a standstill of this process, the server may
    /// have given the stream up since it sent that frame. The clock itself stands still while a machine with Linux or macOS
    /// sleeps.
    fn stood_still(&self) -> bool {
        self.silent_at.is_some_and(|silent_at| silent_at < Instant::now())
    }

    fn handle_frame(&mut self, frame: ServerFrame) {
        match frame {
            ServerFrame::CallRequest(request) => {
                self.credit.spend();
                let frames = self.state.handle_call_request(request);
                self.pending.extend(frames);
            }
            ServerFrame::Cancel(cancel) => self.cancel(&cancel),
            ServerFrame::ResultAck(ack) => {
                self.state.calls.acknowledge(&CallKey::new(&ack.call_id, ack.attempt));
            }
            ServerFrame::LeaseLost(lost) => {
                self.state.calls.abandon(&CallKey::new(&lost.call_id, lost.attempt), STOP_GRACE);
            }
            ServerFrame::Ping(ping) => {
                self.silent_at = Some(Instant::now() + self.silence);
                self.push(Frame::Pong(Pong { nonce: ping.nonce }));
            }
            ServerFrame::GoAway(go_away) => self.going_away = Some(GoingAway::new(go_away)),
            ServerFrame::ExtensionRequest(request) => self.state.call_extension(request),
            ServerFrame::OpenRuntime(request) => self.state.open_runtime(request),
            ServerFrame::CloseRuntime(closed) => self.state.close_runtime(&closed.runtime_id),
            ServerFrame::InputResponse(response) => self.state.calls.answer_question(&response),
            ServerFrame::ProgressAck(ack) => self.state.calls.state_recorded(&ack),
            // A second welcome, and answers to requests that this host never sends, are ignored. A protocol error ends the
            // stream before it comes here.
            ServerFrame::Welcome(_) | ServerFrame::ToolsUpdated(_) | ServerFrame::ProtocolError(_) => {}
        }
    }

    fn cancel(&mut self, cancel: &Cancel) {
        let key = CallKey::new(&cancel.call_id, cancel.attempt);
        let grace = duration(cancel.grace_period.as_ref()).unwrap_or(STOP_GRACE);
        let answer = self.state.calls.cancel(&key, grace);
        self.pending.extend(answer);
    }

    /// Gives up what the server would refuse again. The status that follows tells if another connection would end the same
    /// way.
    async fn protocol_error(&mut self, error: &ProtocolError) -> ConnectionEnd {
        report_protocol_error(&self.state.config, error);
        self.state.calls.give_up_refused(&error.call_id, &error.message);
        let status = timeout(GOODBYE_TIMEOUT, async {
            loop {
                match self.incoming.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => return None,
                    Err(status) => return Some(status),
                }
            }
        });
        match status.await.ok().flatten().map(|status| self.stream_end(status)) {
            Some(ConnectionEnd::Fatal(error)) => ConnectionEnd::Fatal(error),
            _ => ConnectionEnd::Lost(format!("the server reports a broken protocol: {}", error.message)),
        }
    }

    /// Classifies a status that ends a stream after its `welcome`. The server accepted the host before, so only a credential
    /// that is no longer valid is final, and another host with this host's id. It is of another process: this one reads no
    /// stream any more when it connects again.
    fn stream_end(&self, status: Status) -> ConnectionEnd {
        match status.code() {
            Code::Unauthenticated | Code::PermissionDenied => refusal(status),
            Code::FailedPrecondition => {
                let id = &self.state.config.host_id;
                let reason = format!("another host took the id `{id}`; give each host its own id");
                ConnectionEnd::Fatal(HostError::Refused(reason))
            }
            _ => ConnectionEnd::Lost(crate::Error::from(status).to_string()),
        }
    }

    fn handle_task_event(&mut self, event: TaskEvent) {
        let output = matches!(event, TaskEvent::Output { .. });
        let frames = self.state.handle_task_event(event);
        self.pending.extend(frames);
        if output && self.flush_at.is_none() {
            self.flush_at = Some(Instant::now() + OUTPUT_DELAY);
        }
    }

    fn flush(&mut self) {
        self.flush_at = None;
        let frames = self.state.calls.flush();
        self.pending.extend(frames);
    }

    fn send_heartbeat(&mut self) {
        let status_text = self.state.config.status.text();
        self.push(Frame::Heartbeat(Heartbeat { calls: self.state.calls.refs(), status_text }));
    }

    fn drain(&mut self, stage: Stage) -> Option<ConnectionEnd> {
        if stage == Stage::Draining {
            self.push(draining());
        }
        self.state.enter_stage(stage).then_some(ConnectionEnd::Drained)
    }

    fn grant_credit(&mut self) {
        if let Some(total) = self.credit.grow(self.state.free()) {
            self.push(Frame::Credit(CreditFrame { total }));
        }
    }

    fn push(&mut self, frame: Frame) {
        self.pending.push_back(frame);
    }

    /// True once the server was told of the drain, nothing runs, and no result waits for its acknowledgement.
    fn is_done(&self) -> bool {
        self.state.drain.has_begun() && self.pending.is_empty() && self.state.calls.is_idle()
    }

    /// Sends `goodbye` and waits briefly for the server to end the stream. Nothing depends on it: all results are
    /// acknowledged.
    async fn say_goodbye(self) -> ConnectionEnd {
        let Connection { mut incoming, outgoing, .. } = self;
        let goodbye = Frame::Goodbye(Goodbye { reason: "shut down".into() });
        let ending = async {
            outgoing.send(ConnectRequest { frame: Some(goodbye) }).await.ok();
            drop(outgoing);
            while let Ok(Some(_)) = incoming.message().await {}
        };
        timeout(GOODBYE_TIMEOUT, ending).await.ok();
        ConnectionEnd::Drained
    }

    /// Finds the reason for a closed request stream in the last frames of the response stream.
    async fn read_last_frame(&mut self) -> ConnectionEnd {
        loop {
            let last = timeout(GOODBYE_TIMEOUT, self.incoming.message()).await;
            match last {
                Ok(Ok(Some(ConnectResponse { frame: Some(ServerFrame::ProtocolError(error)) }))) => {
                    return self.protocol_error(&error).await;
                }
                Ok(Ok(Some(ConnectResponse { frame: Some(ServerFrame::GoAway(go_away)) }))) => {
                    self.going_away = Some(GoingAway::new(go_away));
                }
                Ok(Ok(Some(_))) => {}
                Ok(Ok(None)) | Err(_) => return ConnectionEnd::Lost("the server ended the stream".into()),
                Ok(Err(status)) => return self.stream_end(status),
            }
        }
    }
}

fn draining() -> Frame {
    Frame::Draining(Draining { reason: "shutting down".into() })
}

/// The interval at which the server sends pings, and expects heartbeats.
fn server_interval(welcome: &Welcome) -> Duration {
    duration(welcome.heartbeat_interval.as_ref()).unwrap_or(HEARTBEAT_MAX).max(HEARTBEAT_MIN)
}

/// The time that a server which sends pings may be silent. The host's own heartbeats may come more often than its pings.
fn silence(welcome: &Welcome) -> Duration {
    server_interval(welcome).saturating_mul(SILENT_INTERVALS)
}

fn heartbeat(welcome: &Welcome) -> Interval {
    let mut heartbeat = interval(server_interval(welcome).min(HEARTBEAT_MAX));
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    heartbeat
}

/// Waits for room for a frame. Returns false if the connection is closed.
async fn has_room(outgoing: &mpsc::Sender<ConnectRequest>) -> bool {
    outgoing.reserve().await.is_ok()
}

/// Sleeps until a time; for ever if there is none.
async fn sleep_until_set(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use agentloop_proto::v1::{CallRequest, Ping};
    use tonic::codec::{DecodeBuf, Decoder};
    use tonic::codegen::http::StatusCode;

    use super::*;
    use crate::host::{NoArguments, Tool, ToolError, ToolHost};

    /// Frames that a server has sent. All of them wait in the host's buffer.
    struct Waiting(VecDeque<ServerFrame>);

    impl Decoder for Waiting {
        type Item = ConnectResponse;
        type Error = Status;

        fn decode(&mut self, _: &mut DecodeBuf<'_>) -> Result<Option<ConnectResponse>, Status> {
            Ok(self.0.pop_front().map(|frame| ConnectResponse { frame: Some(frame) }))
        }
    }

    impl Waiting {
        fn stream(self) -> Streaming<ConnectResponse> {
            // A gRPC message is a flag, its length in four bytes, and here nothing: the frames come from the decoder.
            let messages = "\0\0\0\0\0".repeat(self.0.len());
            Streaming::new_response(self, messages, StatusCode::OK, None, None)
        }
    }

    /// The state of a host with a tool `wait`, which never returns.
    fn waiting_host() -> HostState {
        let wait = Tool::new("wait", "Waits.")
            .read_only()
            .handler(|NoArguments {}, _| pending::<Result<(), ToolError>>());
        let host = ToolHost::builder("http://127.0.0.1:1").tool(wait).build();
        HostState::new(host.expect("a good host").config).expect("a good address")
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_stood_still_leaves_before_it_handles_a_frame_that_waited() {
        let call =
            CallRequest { call_id: "c1".into(), attempt: 1, tool: "wait".into(), ..CallRequest::default() };
        let waiting = [ServerFrame::Ping(Ping { nonce: 7 }), ServerFrame::CallRequest(call)];
        let (outgoing, _requests) = mpsc::channel(PENDING_MAX);
        let welcome = Welcome {
            heartbeat_interval: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
            ..Welcome::default()
        };
        let incoming = Waiting(waiting.into()).stream();
        let mut state = waiting_host();
        let welcomed = WelcomedConnection { incoming, outgoing, welcome, free: 1 };
        let mut connection = Connection::new(&mut state, welcomed);
        while connection.silent_at.is_none() {
            assert!(connection.next_event().await.is_none(), "it is connected");
        }

        tokio::time::advance(Duration::from_secs(121)).await;
        let end = loop {
            if let Some(end) = connection.next_event().await {
                break end;
            }
        };
        let expected = "no frame was read for 120s; the server may have given the host up";
        assert!(matches!(&end, ConnectionEnd::Lost(reason) if reason == expected), "{end:?}");
        assert_eq!(state.calls.in_hand(), []);
    }

    #[test]
    fn a_server_may_be_silent_for_two_of_its_own_intervals() {
        for (seconds, beats_each, silent_for) in [(0, 0.1, 0.2), (5, 5.0, 10.0), (3600, 60.0, 7200.0)] {
            let heartbeat_interval = Some(prost_types::Duration { seconds, nanos: 0 });
            let welcome = Welcome { heartbeat_interval, ..Welcome::default() };
            let beat = server_interval(&welcome).min(HEARTBEAT_MAX);
            assert_eq!((beat.as_secs_f64(), silence(&welcome).as_secs_f64()), (beats_each, silent_for));
        }
    }
}
