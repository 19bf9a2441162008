//! grpcurl: a client that knows of a server only what the server says of itself.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::{leave_out, may_install, on_path, soon, top};

/// The one that is built where there is none.
const MODULE: &str = "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4";

/// The program and the server that it talks to.
pub(crate) struct Grpcurl {
    program: PathBuf,
    address: String,
}

/// A call under way: messages go in, messages come out.
pub(crate) struct Streaming {
    child: Child,
    /// None where there is nothing more to be said.
    requests: Option<ChildStdin>,
    responses: ChildStdout,
    unread: Vec<u8>,
}

impl Grpcurl {
    /// Finds or builds it; `None` where it cannot be had and needs not be.
    pub(crate) async fn find(address: String) -> Option<Grpcurl> {
        let own = top().join(".work/bin/grpcurl");
        if !own.exists() && may_install() && on_path("grpcurl").is_none() && on_path("go").is_some() {
            build(&own).await;
        }
        let found = if own.exists() { Some(own) } else { on_path("grpcurl") };
        let Some(program) = found else {
            leave_out("grpcurl (tests/run builds it)");
            return None;
        };
        Some(Grpcurl { program, address })
    }

    /// The output of `list` or `describe`.
    pub(crate) async fn ask(&self, arguments: &[&str]) -> String {
        self.output(Command::new(&self.program).arg("-plaintext").arg(&self.address).args(arguments)).await
    }

    /// Makes a unary call.
    pub(crate) async fn call(&self, method: &str, request: &Value) -> Value {
        let mut command = Command::new(&self.program);
        command.args(["-plaintext", "-d", &request.to_string(), &self.address, method]);
        serde_json::from_str(&self.output(&mut command).await).expect("an answer in JSON")
    }

    /// Runs lines of a shell that call grpcurl at its default address, and returns what they print.
    pub(crate) async fn shell(&self, lines: &str) -> String {
        let program = self.program.to_str().expect("a name in UTF-8");
        let lines =
            lines.replace("127.0.0.1:50051", &self.address).replace("grpcurl ", &format!("{program} "));
        self.output(Command::new("bash").args(["-euo", "pipefail", "-c", &lines])).await
    }

    /// Begins a call that streams both ways.
    pub(crate) fn stream(&self, method: &str) -> Streaming {
        self.begin("@", method)
    }

    /// Begins a call with one request and many messages in answer.
    pub(crate) fn follow(&self, method: &str, request: &Value) -> Streaming {
        let mut streaming = self.begin(&request.to_string(), method);
        streaming.requests = None;
        streaming
    }

    fn begin(&self, data: &str, method: &str) -> Streaming {
        let mut child = Command::new(&self.program)
            .args(["-plaintext", "-d", data, &self.address, method])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("grpcurl starts");
        let requests = child.stdin.take();
        let responses = child.stdout.take().expect("it is piped");
        Streaming { child, requests, responses, unread: Vec::new() }
    }

    async fn output(&self, command: &mut Command) -> String {
        let output = soon("grpcurl", command.output()).await.expect("grpcurl starts");
        let (said, error) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{command:?}: {error}");
        said.into_owned()
    }
}

impl Streaming {
    /// Sends a message, given as JSON.
    pub(crate) async fn send(&mut self, message: &Value) {
        let requests = self.requests.as_mut().expect("this call takes more than one request");
        requests.write_all(message.to_string().as_bytes()).await.expect("grpcurl reads");
        requests.flush().await.expect("grpcurl reads");
    }

    /// The next message that has this field: its value.
    pub(crate) async fn next_with(&mut self, field: &str) -> Value {
        loop {
            let mut message = self.next().await.unwrap_or_else(|| panic!("the call ended before {field}"));
            println!("[grpcurl] {message}");
            if !message[field].is_null() {
                return message[field].take();
            }
        }
    }

    /// Sends no more, reads to the end, and expects the status OK.
    pub(crate) async fn ended(mut self) {
        drop(self.requests);
        let mut rest = Vec::new();
        soon("the rest", self.responses.read_to_end(&mut rest)).await.expect("grpcurl writes");
        let status = soon("the end of grpcurl", self.child.wait()).await.expect("it ran");
        assert!(status.success(), "{status}: {}", String::from_utf8_lossy(&rest));
    }

    async fn next(&mut self) -> Option<Value> {
        loop {
            let mut values = serde_json::Deserializer::from_slice(&self.unread).into_iter();
            match values.next() {
                Some(Ok(value)) => {
                    let read = values.byte_offset();
                    self.unread.drain(..read);
                    return Some(value);
                }
                Some(Err(error)) => assert!(error.is_eof(), "{error}"),
                None => {}
            }
            if soon("a message", self.responses.read_buf(&mut self.unread)).await.expect("it writes") == 0 {
                return None;
            }
        }
    }
}

async fn build(program: &Path) {
    let mut command = Command::new("go");
    command.args(["install", MODULE]).env("GOBIN", program.parent().expect("it is in a folder"));
    let built = command.status().await.expect("go starts");
    assert!(built.success() && program.exists(), "go install {MODULE} failed");
}
