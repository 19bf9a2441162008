//! A tool host frame by frame, for what a well-behaved one never does.

use agentloop_client::v1 as wire;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};
use wire::connect_request::Frame;
use wire::connect_response::Frame as ServerFrame;
use wire::extension_response::Response;
use wire::tool_host_client::ToolHostClient;

pub use wire::capability::Capability as Offer;

use crate::server::TestServer;
use crate::soon;

/// One stream of `Connect`.
pub struct RawHost {
    frames: mpsc::UnboundedSender<wire::ConnectRequest>,
    answers: Streaming<wire::ConnectResponse>,
}

impl RawHost {
    /// Opens the stream; says nothing yet.
    ///
    /// # Panics
    /// When the server does not answer with headers.
    pub async fn open(server: &TestServer) -> Self {
        Self::over(server.channel()).await
    }

    /// Opens the stream over this connection; says nothing yet.
    ///
    /// # Panics
    /// When the server does not answer with headers.
    pub async fn over(channel: Channel) -> Self {
        let (frames, sent) = mpsc::unbounded_channel();
        let stream = UnboundedReceiverStream::new(sent);
        let answers = soon(ToolHostClient::new(channel).connect(stream)).await.expect("headers come at once");
        Self { frames, answers: answers.into_inner() }
    }

    /// Opens the stream and offers these tools.
    ///
    /// # Panics
    /// When the server does not welcome it.
    pub async fn welcomed(server: &TestServer, id: &str, tools: Vec<wire::ToolDeclaration>) -> Self {
        let mut host = Self::open(server).await;
        host.send(Frame::Hello(hello(id, tools)));
        host.wait_for(|frame| matches!(frame, ServerFrame::Welcome(_))).await;
        host
    }

    /// Opens the stream and offers these extensions.
    ///
    /// # Panics
    /// When the server does not take them all.
    pub async fn extending(server: &TestServer, id: &str, offered: Vec<Offer>) -> Self {
        let mut host = Self::open(server).await;
        let capability = |offer| wire::Capability { capability: Some(offer) };
        let capabilities = offered.into_iter().map(capability).collect();
        host.send(Frame::Hello(wire::Hello { capabilities, ..hello(id, Vec::new()) }));
        let welcome = host.wait_for(|frame| matches!(frame, ServerFrame::Welcome(_))).await;
        let ServerFrame::Welcome(welcome) = welcome else { unreachable!("it was waited for") };
        assert!(welcome.capabilities.iter().all(|verdict| verdict.accepted), "{welcome:?}");
        host
    }

    /// The next question for an extension.
    ///
    /// # Panics
    /// When there is none.
    pub async fn asked(&mut self) -> wire::ExtensionRequest {
        match self.wait_for(|frame| matches!(frame, ServerFrame::ExtensionRequest(_))).await {
            ServerFrame::ExtensionRequest(request) => request,
            _ => unreachable!("it was waited for"),
        }
    }

    /// Answers a question for an extension.
    pub fn answers(&self, asked: &wire::ExtensionRequest, response: Response) {
        self.send(Frame::ExtensionResponse(wire::ExtensionResponse {
            request_id: asked.request_id.clone(),
            response: Some(response),
        }));
    }

    /// Sends a frame. Does nothing once the stream has ended.
    pub fn send(&self, frame: Frame) {
        // A stream that is over takes nothing, which its answers tell.
        let _sent = self.frames.send(wire::ConnectRequest { frame: Some(frame) });
    }

    /// The next frame that is no ping; `None` at the end.
    ///
    /// # Errors
    /// The stream's.
    pub async fn next(&mut self) -> Result<Option<ServerFrame>, Status> {
        loop {
            match soon(self.answers.message()).await?.and_then(|message| message.frame) {
                Some(ServerFrame::Ping(ping)) => self.send(Frame::Pong(wire::Pong { nonce: ping.nonce })),
                frame => return Ok(frame),
            }
        }
    }

    /// The next ping, which is not answered.
    ///
    /// # Panics
    /// When there is none.
    pub async fn pinged(&mut self) -> wire::Ping {
        loop {
            let message = soon(self.answers.message()).await.expect("the stream goes on");
            if let Some(ServerFrame::Ping(ping)) = message.expect("the stream goes on").frame {
                return ping;
            }
        }
    }

    /// The next frame for which this holds.
    ///
    /// # Panics
    /// When there is none.
    pub async fn wait_for(&mut self, what: impl Fn(&ServerFrame) -> bool) -> ServerFrame {
        loop {
            let frame = self.next().await.expect("the stream goes on").expect("the stream goes on");
            if what(&frame) {
                return frame;
            }
        }
    }

    /// The next call, which is accepted.
    ///
    /// # Panics
    /// When there is none.
    pub async fn take_call(&mut self) -> wire::CallRequest {
        let ServerFrame::CallRequest(call) =
            self.wait_for(|frame| matches!(frame, ServerFrame::CallRequest(_))).await
        else {
            unreachable!("it was waited for")
        };
        self.send(Frame::CallAccepted(wire::CallAccepted {
            call_id: call.call_id.clone(),
            attempt: call.attempt,
        }));
        call
    }

    /// Closes the host's side, and reads to the end of the stream.
    ///
    /// # Errors
    /// The stream's.
    pub async fn close(self) -> Result<(), Status> {
        let Self { frames, mut answers } = self;
        drop(frames);
        while soon(answers.message()).await?.is_some() {}
        Ok(())
    }

    /// Reads to the end of the stream: the error that was told inside it, and the stream's.
    ///
    /// # Panics
    /// When it ends well.
    pub async fn failure(&mut self) -> (Option<wire::ProtocolError>, Status) {
        let mut told = None;
        loop {
            match self.next().await {
                Err(status) => return (told, status),
                Ok(Some(ServerFrame::ProtocolError(error))) => told = Some(error),
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended well"),
            }
        }
    }
}

/// A hello of a host with room for a hundred calls.
pub fn hello(id: &str, tools: Vec<wire::ToolDeclaration>) -> wire::Hello {
    let capability = |tool| wire::Capability { capability: Some(wire::capability::Capability::Tool(tool)) };
    wire::Hello {
        protocol_version: 1,
        host_id: id.to_owned(),
        sdk: "test/1".to_owned(),
        capabilities: tools.into_iter().map(capability).collect(),
        initial_credit: 100,
        ..Default::default()
    }
}

/// A hook at these points, with five seconds to answer.
pub fn hook(name: &str, points: &[wire::HookPoint], required: bool) -> Offer {
    Offer::Hook(wire::HookDeclaration {
        name: name.to_owned(),
        description: format!("The hook {name}"),
        points: points.iter().map(|point| i32::from(*point)).collect(),
        required,
        timeout: None,
    })
}

/// A context source with this many milliseconds to answer.
pub fn source(name: &str, millis: i32) -> Offer {
    Offer::ContextSource(wire::ContextSourceDeclaration {
        name: name.to_owned(),
        description: format!("The source {name}"),
        timeout: Some(prost_types::Duration { seconds: 0, nanos: millis * 1_000_000 }),
        remembers: false,
    })
}

/// A context source that is handed finished runs.
pub fn memory(name: &str) -> Offer {
    Offer::ContextSource(wire::ContextSourceDeclaration {
        name: name.to_owned(),
        remembers: true,
        ..Default::default()
    })
}

/// An answer of a context source, with these texts.
pub fn context(items: &[(&str, &str)]) -> Response {
    let item = |(text, origin): &(&str, &str)| wire::ContextItem {
        text: (*text).to_owned(),
        origin: (*origin).to_owned(),
    };
    Response::Context(wire::ContextItems { items: items.iter().map(item).collect() })
}

/// An answer that reports a failure.
pub fn failure(message: &str, retryable: bool) -> Response {
    Response::Failure(wire::ExtensionFailure { message: message.to_owned(), retryable })
}

/// A tool without arguments.
pub fn declared(name: &str, effect: wire::EffectClass) -> wire::ToolDeclaration {
    wire::ToolDeclaration {
        name: name.to_owned(),
        description: format!("The tool {name}"),
        effect: effect.into(),
        ..Default::default()
    }
}

/// The result of a call.
pub fn result_of(call: &wire::CallRequest, output: &str) -> wire::CallResult {
    wire::CallResult {
        call_id: call.call_id.clone(),
        attempt: call.attempt,
        lease_token: call.lease_token.clone(),
        output: output.to_owned(),
        ..Default::default()
    }
}
