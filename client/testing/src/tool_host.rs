//! A scripted `ToolHost` service: the test receives and sends the frames of each connection.

use std::sync::Arc;

use agentloop_client::v1::{
    CallRequest, CompleteCallRequest, CompleteCallResponse, ConnectRequest, ConnectResponse, Heartbeat,
    Hello, ResultAck, ResultVerdict, Welcome, connect_request::Frame, connect_response::Frame as ServerFrame,
    tool_host_server::ToolHost,
};
use tokio::sync::{Mutex, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::timeout::soon;

/// The service. It passes every connection to the test.
#[derive(Clone)]
pub struct Hosts {
    sender: mpsc::Sender<Connection>,
    connections: Arc<Mutex<mpsc::Receiver<Connection>>>,
}

/// One connection of a host, with the server's end in the test.
pub struct Connection {
    incoming: Streaming<ConnectRequest>,
    outgoing: mpsc::Sender<Result<ConnectResponse, Status>>,
    /// Heartbeats that came so far.
    pub heartbeats: Vec<Heartbeat>,
}

impl Default for Hosts {
    fn default() -> Self {
        let (sender, connections) = mpsc::channel(16);
        Hosts { sender, connections: Arc::new(Mutex::new(connections)) }
    }
}

impl Hosts {
    /// Waits for the next connection, and returns it with its `hello`.
    pub async fn accept(&self) -> (Connection, Hello) {
        let mut connection = soon(async { self.connections.lock().await.recv().await }).await.expect("open");
        match connection.next().await {
            Some(Frame::Hello(hello)) => (connection, hello),
            other => panic!("a host says hello first, not {other:?}"),
        }
    }

    /// Waits for the next connection, and sends a `welcome` without verdicts on calls.
    pub async fn welcome(&self) -> Connection {
        let (connection, _) = self.accept().await;
        connection.send(ServerFrame::Welcome(welcome())).await;
        connection
    }
}

/// A welcome without verdicts, with a heartbeat interval of a minute.
pub fn welcome() -> Welcome {
    let heartbeat_interval = prost_types::Duration { seconds: 60, nanos: 0 };
    Welcome { protocol_version: 1, heartbeat_interval: Some(heartbeat_interval), ..Welcome::default() }
}

/// The first attempt of a call of a tool.
pub fn call(call_id: &str, tool: &str, arguments_json: &str) -> CallRequest {
    CallRequest {
        call_id: call_id.into(),
        attempt: 1,
        lease_token: format!("lease-{call_id}"),
        idempotency_key: format!("key-{call_id}"),
        tool: tool.into(),
        arguments_json: arguments_json.into(),
        ..CallRequest::default()
    }
}

impl Connection {
    /// The next frame that is no heartbeat; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            match soon(self.incoming.message()).await.ok()??.frame.expect("a frame") {
                Frame::Heartbeat(heartbeat) => self.heartbeats.push(heartbeat),
                frame => return Some(frame),
            }
        }
    }

    /// Waits for this many heartbeats, and for nothing else but credit.
    pub async fn beats(&mut self, count: usize) {
        for _ in 0..count {
            let frame = loop {
                let message = soon(self.incoming.message()).await.expect("connected").expect("connected");
                match message.frame.expect("a frame") {
                    Frame::Credit(_) => {}
                    frame => break frame,
                }
            };
            match frame {
                Frame::Heartbeat(heartbeat) => self.heartbeats.push(heartbeat),
                frame => panic!("{frame:?}"),
            }
        }
    }

    /// The next frame that is neither heartbeat nor credit.
    pub async fn reply(&mut self) -> Frame {
        loop {
            match self.next().await.expect("the host is connected") {
                Frame::Credit(_) => {}
                frame => return frame,
            }
        }
    }

    pub async fn send(&self, frame: ServerFrame) {
        self.outgoing.send(Ok(ConnectResponse { frame: Some(frame) })).await.expect("the host listens");
    }

    /// Sends a call, which the host must accept at once.
    pub async fn send_call(&mut self, request: CallRequest) {
        let (call_id, attempt) = (request.call_id.clone(), request.attempt);
        self.send(ServerFrame::CallRequest(request)).await;
        match self.reply().await {
            Frame::CallAccepted(accepted) => {
                assert_eq!((accepted.call_id, accepted.attempt), (call_id, attempt));
            }
            other => panic!("not accepted: {other:?}"),
        }
    }

    pub async fn acknowledge(&self, call_id: &str) {
        let verdict = ResultVerdict::Recorded.into();
        self.send(ServerFrame::ResultAck(ResultAck { call_id: call_id.into(), attempt: 1, verdict })).await;
    }

    /// Ends the stream with an error.
    pub async fn fail(self, status: Status) {
        self.outgoing.send(Err(status)).await.expect("the host listens");
    }
}

#[tonic::async_trait]
impl ToolHost for Hosts {
    type ConnectStream = ReceiverStream<Result<ConnectResponse, Status>>;

    async fn connect(
        &self,
        request: Request<Streaming<ConnectRequest>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let (outgoing, responses) = mpsc::channel(64);
        let connection = Connection { incoming: request.into_inner(), outgoing, heartbeats: Vec::new() };
        self.sender.send(connection).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ReceiverStream::new(responses)))
    }

    async fn complete_call(
        &self,
        _: Request<CompleteCallRequest>,
    ) -> Result<Response<CompleteCallResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }
}
