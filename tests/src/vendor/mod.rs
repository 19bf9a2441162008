//! Model servers that refuse what the vendors refuse: Chat Completions, Responses, Messages and `generateContent`, in the
//! test's own process and read like a script.
//!
//! A [`Vendor`] gives out signatures and encrypted reasoning of its own. It checks every later request as the real vendor
//! does: state must come back unchanged, in its place, to the one that gave it. A request that it refuses fails the test
//! when the vendor is dropped, unless the test expects the refusal; so does an answer that nobody asked for.

mod answer;
mod chat;
mod gemini;
mod http;
mod issued;
mod messages;
mod openai;
mod piece;
mod refusal;
mod request;
mod responses;
mod schema;
mod stream;
#[cfg(test)]
mod testing;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;

pub use self::answer::Answer;
use self::http::Response;
use self::issued::Issued;
pub use self::piece::{Manner, Piece};
pub use self::refusal::Refusal;
pub use self::request::{Asked, Format};

/// In place of a signature, where Gemini is sent a call that it did not make.
pub const DUMMY_SIGNATURE: &str = "skip_thought_signature_validator";

struct State {
    script: VecDeque<Answer>,
    requests: Vec<Asked>,
    refusals: Vec<Refusal>,
    expected: usize,
    faults: Vec<String>,
    issued: Issued,
}

/// One vendor with an account of its own: what it issued is worth nothing at another.
pub struct Vendor {
    state: Arc<Mutex<State>>,
    url: String,
}

impl Vendor {
    /// Listens on a free port. The name decides what its signatures look like.
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn start(name: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let state = Arc::new(Mutex::new(State::new(name)));
        let served = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(http::serve(stream, Arc::clone(&served)));
            }
        });
        Self { state, url: format!("http://{address}") }
    }

    /// For the configuration of a provider of this format.
    pub fn base_url(&self, format: Format) -> String {
        format!("{}{}", self.url, format.base_path())
    }

    /// The next request is answered with this text.
    pub fn says(&self, text: &str) -> &Self {
        self.then(Answer::of([Piece::text(text)]))
    }

    /// The next request is answered with a thought and this text.
    pub fn thinks_and_says(&self, text: &str) -> &Self {
        self.then(Answer::of([Piece::thought(text), Piece::text(text)]))
    }

    /// The next request is answered with a call of this tool.
    pub fn asks(&self, tool: &str, arguments: Value) -> &Self {
        self.then(Answer::of([Piece::call(tool, arguments)]))
    }

    /// The next request is answered with a thought and a call of this tool.
    pub fn thinks_and_asks(&self, tool: &str, arguments: Value) -> &Self {
        self.thinks_and_asks_all(&[(tool, arguments)])
    }

    /// The next request is answered with a thought and calls of these tools, to be run together.
    pub fn thinks_and_asks_all(&self, calls: &[(&str, Value)]) -> &Self {
        let calls = calls.iter().map(|(tool, arguments)| Piece::call(tool, arguments.clone()));
        self.then(Answer::of([Piece::thought("which tools")].into_iter().chain(calls)))
    }

    /// The next request is answered with this HTTP status.
    pub fn fails(&self, status: u16) -> &Self {
        self.then(Answer::fails(status, &format!("failed with {status}")))
    }

    /// The next request is one too many, and may come again after this time.
    pub fn limits(&self, wait: Duration) -> &Self {
        self.then(Answer::limits(wait))
    }

    /// The next request is refused for the state in it, though nothing is wrong with it.
    pub fn refuses_state(&self) -> &Self {
        self.then(Answer::refuses_state())
    }

    /// The next request is answered with this.
    pub fn then(&self, answer: Answer) -> &Self {
        self.state.lock().script.push_back(answer);
        self
    }

    /// One request more may break a rule, and must.
    pub fn expects_refusal(&self) -> &Self {
        self.state.lock().expected += 1;
        self
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<Asked> {
        self.state.lock().requests.clone()
    }

    /// The request before now.
    ///
    /// # Panics
    /// When there was none.
    pub fn last_request(&self) -> Asked {
        self.state.lock().requests.last().cloned().expect("the vendor was asked")
    }

    /// Every request so far that broke a rule: what was answered.
    pub fn refusals(&self) -> Vec<Refusal> {
        self.state.lock().refusals.clone()
    }

    /// Every signature and encrypted thought so far: what the vendor wants back.
    pub fn states(&self) -> Vec<String> {
        self.state.lock().issued.states.clone()
    }

    /// The states and the ids of items so far: what nobody but the vendor has a use for.
    pub fn secrets(&self) -> Vec<String> {
        let state = self.state.lock();
        state.issued.states.iter().chain(&state.issued.item_ids).cloned().collect()
    }
}

impl Drop for Vendor {
    fn drop(&mut self) {
        let state = self.state.lock();
        let (refused, expected) = (state.refusals.len(), state.expected);
        let mut faults = state.faults.clone();
        if refused != expected {
            faults.push(format!("refused {refused} requests, expected {expected}: {:#?}", state.refusals));
        }
        if !state.script.is_empty() {
            faults.push(format!("nobody asked for {:#?}", state.script));
        }
        drop(state);
        if !std::thread::panicking() {
            assert!(faults.is_empty(), "the vendor was asked wrongly: {faults:#?}");
        }
    }
}

impl State {
    fn new(name: &str) -> Self {
        Self {
            script: VecDeque::new(),
            requests: Vec::new(),
            refusals: Vec::new(),
            expected: 0,
            faults: Vec::new(),
            issued: Issued::new(name),
        }
    }

    /// The whole HTTP answer to a request.
    fn answer(&mut self, asked: Asked) -> Response {
        let answer = match check(&asked, &self.issued) {
            Ok(()) => self.next(&asked),
            Err(refusal) => {
                let bytes = http::refusal(asked.format, &refusal);
                self.refusals.push(refusal);
                Response::whole(bytes)
            }
        };
        self.requests.push(asked);
        answer
    }

    fn next(&mut self, asked: &Asked) -> Response {
        if let Some(answer) = self.script.pop_front() {
            let bytes = answer::written(&answer, asked, &mut self.issued);
            return Response { bytes, is_held: answer.is_held() };
        }
        self.faults.push(format!("the script has no answer to {:#}", asked.body));
        Response::whole(http::refusal(asked.format, &Refusal::new(400, "the script is at its end")))
    }
}

/// Checks a request by the vendor's rules.
fn check(asked: &Asked, issued: &Issued) -> Result<(), Refusal> {
    match asked.format {
        Format::Chat => chat::check(asked, issued),
        Format::Responses => responses::check(asked, issued),
        Format::Messages => messages::check(asked, issued),
        Format::Gemini => gemini::check(asked, issued),
    }
}
