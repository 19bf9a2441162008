//! A model server in the OpenAI format that says nothing until the test does.

use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::server::Setting;
use super::soon;

/// The model server. It outlives the server that calls it.
pub struct Model {
    address: SocketAddr,
    calls: mpsc::UnboundedReceiver<Call>,
    /// Taken while another call was looked for.
    passed_over: VecDeque<Call>,
}

/// One call of the model, which waits for what the test makes it answer.
pub struct Call {
    /// The body of the request.
    pub request: Value,
    connection: TcpStream,
}

impl Model {
    /// Listens on a free port.
    pub async fn start() -> Model {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (sender, calls) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let sender = sender.clone();
                tokio::spawn(async move {
                    if let Some(call) = read(connection).await {
                        // A call that comes after the test's end interests nobody.
                        let _late = sender.send(call);
                    }
                });
            }
        });
        Model { address, calls, passed_over: VecDeque::new() }
    }

    /// A server that calls this model.
    pub fn setting(&self) -> Setting {
        Setting {
            provider: format!("kind = \"openai\"\nbase_url = \"http://{}/v1\"\n", self.address),
            ..Setting::default()
        }
    }

    /// Waits for the next call.
    pub async fn call(&mut self) -> Call {
        match self.passed_over.pop_front() {
            Some(call) => call,
            None => self.arrives().await,
        }
    }

    /// The next call whose conversation contains `text`.
    pub async fn call_about(&mut self, text: &str) -> Call {
        if let Some(found) = self.passed_over.iter().position(|call| call.is_about(text)) {
            return self.passed_over.remove(found).expect("it was found there");
        }
        loop {
            let call = self.arrives().await;
            if call.is_about(text) {
                return call;
            }
            self.passed_over.push_back(call);
        }
    }

    /// True if a call came that the test has not taken.
    pub fn was_called(&mut self) -> bool {
        !self.passed_over.is_empty() || self.calls.try_recv().is_ok()
    }

    /// From here on whoever asks is given this tool call, and this text once the tool has been used. Calls of a server
    /// that was killed meanwhile are answered, too, to nobody.
    pub fn answers(self, tool: &'static str, arguments: Value, text: &'static str) {
        self.answers_by(move |call| {
            let arguments = arguments.clone();
            async move {
                if call.last_message().contains("\"role\":\"tool\"") {
                    call.say(text).await;
                } else {
                    call.use_tool(tool, arguments).await;
                }
            }
        });
    }

    /// From here on every call is answered like this.
    pub fn answers_by<F>(mut self, answer: impl Fn(Call) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        tokio::spawn(async move {
            for call in self.passed_over {
                answer(call).await;
            }
            while let Some(call) = self.calls.recv().await {
                answer(call).await;
            }
        });
    }

    async fn arrives(&mut self) -> Call {
        soon("a model call", self.calls.recv()).await.expect("the model listens")
    }
}

impl Call {
    fn is_about(&self, text: &str) -> bool {
        self.request["messages"].to_string().contains(text)
    }

    /// The last message of the conversation as text.
    pub fn last_message(&self) -> String {
        let messages = self.request["messages"].as_array().expect("a conversation");
        messages.last().expect("something was said").to_string()
    }

    /// Answers with a text, and ends.
    pub async fn say(mut self, text: &str) {
        self.begin(text).await;
        self.end("stop").await;
    }

    /// Answers with this text so many times, a piece each, and ends.
    pub async fn say_in_pieces(mut self, text: &str, pieces: usize) {
        self.begin(text).await;
        for _ in 1..pieces {
            self.chunk(json!({ "delta": { "content": text } })).await;
        }
        self.end("stop").await;
    }

    /// Begins to answer, and leaves it at that.
    pub async fn begin(&mut self, text: &str) {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        self.write(head).await;
        self.chunk(json!({ "delta": { "role": "assistant", "content": text } })).await;
    }

    /// True if the conversation contains this text.
    pub fn mentions(&self, text: &str) -> bool {
        self.is_about(text)
    }

    /// The connection, to answer on as one likes.
    pub fn into_connection(self) -> TcpStream {
        self.connection
    }

    /// Answers with tool calls: names and arguments.
    pub async fn use_tools(mut self, calls: &[(&str, Value)]) {
        self.begin("").await;
        for (index, (name, arguments)) in calls.iter().enumerate() {
            let function = json!({ "name": name, "arguments": arguments.to_string() });
            let call = json!({ "index": index, "id": format!("call_{index}"), "type": "function", "function": function });
            self.chunk(json!({ "delta": { "tool_calls": [call] } })).await;
        }
        self.end("tool_calls").await;
    }

    /// Answers with one tool call.
    pub async fn use_tool(self, name: &str, arguments: Value) {
        self.use_tools(&[(name, arguments)]).await;
    }

    async fn end(&mut self, reason: &str) {
        self.chunk(json!({ "delta": {}, "finish_reason": reason })).await;
        self.write("data: [DONE]\n\n").await;
        let _killed = self.connection.shutdown().await;
    }

    async fn chunk(&mut self, mut choice: Value) {
        choice["index"] = json!(0);
        let chunk =
            json!({ "id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice] });
        self.write(&format!("data: {chunk}\n\n")).await;
    }

    /// A server that was killed meanwhile does not hear it, and will call again.
    async fn write(&mut self, text: &str) {
        let _killed = self.connection.write_all(text.as_bytes()).await;
    }
}

/// Reads one request; none where the caller goes away first.
async fn read(connection: TcpStream) -> Option<Call> {
    connection.set_nodelay(true).ok()?;
    let mut reader = BufReader::new(connection);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await.ok()?;
    let request = serde_json::from_slice(&body).ok()?;
    Some(Call { request, connection: reader.into_inner() })
}
