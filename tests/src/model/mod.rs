//! A model over HTTP in OpenAI's streaming format, living in the test and reading like a script.
//!
//! Every request is checked: each tool call must be directly followed by its result, and no result may be without its
//! call. What is wrong fails the test when the model is dropped.

mod http;
mod pairing;
mod sse;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use crate::soon;

/// Chooses an answer when the script has none.
type Responder = dyn Fn(&Value) -> Answer + Send + Sync;

/// The model's answer to one request.
pub enum Answer {
    /// A text, then the end of the answer.
    Says(String),
    /// Calls of these tools.
    Asks(Vec<(String, Value)>),
    /// An HTTP status with this `Retry-After`, if any, and a message.
    Fails(u16, Option<u32>, String),
    /// An answer that the test gives piece by piece, through a [`Speech`].
    Speech(Live),
    /// These bytes as the whole of a stream.
    Raw(Vec<u8>),
    /// The beginning of a text, then the end of the connection.
    Cut(String),
    /// Text in pieces, with a wait before each.
    Slowly(Vec<String>, Duration),
    /// Another answer, after a wait.
    Later(Duration, Box<Answer>),
}

/// The connection's end of a [`Speech`].
pub struct Live {
    bytes: mpsc::UnboundedReceiver<Vec<u8>>,
    asked: watch::Sender<Option<Value>>,
    gone: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    script: VecDeque<Answer>,
    responder: Option<Box<Responder>>,
    requests: Vec<Value>,
    /// True to check requests without keeping them.
    forgets: bool,
    /// True to take the next request of a connection after an answer that is given whole.
    keeps_connections: bool,
    faults: Vec<String>,
}

/// A scripted model server, which runs inside the test.
pub struct Model {
    state: Arc<Mutex<State>>,
    base_url: String,
}

impl Model {
    /// Listens on a free port; says nothing yet.
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let state = Arc::new(Mutex::new(State::default()));
        let served = state.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(http::serve(stream, served.clone()));
            }
        });
        Self { state, base_url: format!("http://{address}/v1") }
    }

    /// For the server's configuration.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// The next request is answered with this text.
    pub fn says(&self, text: &str) -> &Self {
        self.then(Answer::Says(text.to_owned()))
    }

    /// The next request is answered with a call of this tool.
    pub fn asks(&self, tool: &str, arguments: Value) -> &Self {
        self.asks_all(&[(tool, arguments)])
    }

    /// The next request is answered with calls of these tools.
    pub fn asks_all(&self, calls: &[(&str, Value)]) -> &Self {
        let calls = calls.iter().map(|(tool, arguments)| ((*tool).to_owned(), arguments.clone()));
        self.then(Answer::Asks(calls.collect()))
    }

    /// The next request is answered with this HTTP status.
    pub fn fails(&self, status: u16) -> &Self {
        self.then(Answer::Fails(status, None, format!("failed with {status}")))
    }

    /// The next request is answered with this.
    pub fn then(&self, answer: Answer) -> &Self {
        self.state.lock().script.push_back(answer);
        self
    }

    /// The next request is answered as the test goes along.
    pub fn speaks(&self) -> Speech {
        let (sender, bytes) = mpsc::unbounded_channel();
        let (asked, was_asked) = watch::channel(None);
        let (gone, is_gone) = watch::channel(false);
        self.then(Answer::Speech(Live { bytes, asked, gone }));
        Speech { sender, asked: was_asked, gone: is_gone }
    }

    /// Sets a function that answers requests beyond the script.
    pub fn answers(&self, respond: impl Fn(&Value) -> Answer + Send + Sync + 'static) -> &Self {
        self.state.lock().responder = Some(Box::new(respond));
        self
    }

    /// From here on, checks requests without keeping them, for a test that makes very many.
    pub fn forgets(&self) -> &Self {
        self.state.lock().forgets = true;
        self
    }

    /// From here on, keeps connections after texts and calls that are given whole, as providers do. Otherwise, each has one
    /// request.
    pub fn keeps_connections(&self) -> &Self {
        self.state.lock().keeps_connections = true;
        self
    }

    /// The faults found in requests so far.
    pub fn faults(&self) -> Vec<String> {
        self.state.lock().faults.clone()
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<Value> {
        self.state.lock().requests.clone()
    }

    /// The request before now.
    ///
    /// # Panics
    /// When there was none.
    pub fn last_request(&self) -> Value {
        self.state.lock().requests.last().cloned().expect("the model was asked")
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let faults = std::mem::take(&mut self.state.lock().faults);
        if !std::thread::panicking() {
            assert!(faults.is_empty(), "the model was asked wrongly: {faults:#?}");
        }
    }
}

/// An answer that the test gives piece by piece. Dropped before its end, it is cut.
pub struct Speech {
    sender: mpsc::UnboundedSender<Vec<u8>>,
    asked: watch::Receiver<Option<Value>>,
    gone: watch::Receiver<bool>,
}

impl Speech {
    /// Waits for the server's request, and returns it.
    ///
    /// # Panics
    /// When it does not ask in time.
    pub async fn asked(&mut self) -> Value {
        let asked = soon(self.asked.wait_for(Option::is_some)).await;
        asked.ok().and_then(|asked| asked.clone()).expect("the server asks")
    }

    /// More of the text.
    pub fn say(&self, text: &str) {
        self.send(sse::text(text));
    }

    /// More of the reasoning.
    pub fn think(&self, text: &str) {
        self.send(sse::reasoning(text));
    }

    /// A tool is wanted.
    pub fn ask(&self, index: usize, tool: &str, arguments: &Value) {
        self.send(sse::call(index, tool, arguments));
    }

    /// The message is complete.
    pub fn end(self) {
        self.send(sse::end("stop"));
    }

    /// The message is complete and wants tools.
    pub fn end_with_calls(self) {
        self.send(sse::end("tool_calls"));
    }

    /// The message ends at the limit of output tokens.
    pub fn end_at_limit(self) {
        self.send(sse::end("length"));
    }

    /// Waits until the server closes the connection.
    ///
    /// # Panics
    /// When it does not in time.
    pub async fn hung_up(&mut self) {
        soon(self.gone.wait_for(|gone| *gone)).await.expect("the connection tells of its end");
    }

    fn send(&self, bytes: String) {
        // A server that hung up hears nothing, which tests want to see.
        let _heard = self.sender.send(bytes.into_bytes());
    }
}
