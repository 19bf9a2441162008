//! Follows a run's events across lost connections, and checks the rules that hold for every run.

use agentloop_client::v1::run_event::Event;
use agentloop_client::v1::{
    Decision, Entry, HumanRequest, ListEntriesRequest, Message, RunEvent, RunFinished, RunInput, RunStatus,
    SubmitApprovalRequest, ToolCallResult, ToolStatus, decision, part,
};
use agentloop_client::{Client, EventStream};

use super::server::Server;
use super::soon;

/// A subscriber that keeps every durable event that it saw, across lost connections.
pub struct Follower {
    client: Client,
    stream: EventStream,
    /// The durable events so far.
    pub seen: Vec<RunEvent>,
}

impl Follower {
    /// Starts a run and follows it.
    pub async fn start(server: &Server, input: RunInput) -> Follower {
        Follower::with(server.client(), input).await
    }

    /// Starts a run and follows it with this client.
    pub async fn with(client: Client, input: RunInput) -> Follower {
        let stream = soon("a run", client.run_stream(input)).await.expect("started");
        Follower { client, stream, seen: Vec::new() }
    }

    /// The id of the run.
    pub fn run_id(&self) -> &str {
        self.stream.run_id()
    }

    /// Reads on to the first event for which there is an answer.
    pub async fn until<T>(&mut self, what: &str, wanted: impl Fn(&Event) -> Option<T>) -> T {
        loop {
            let event = soon(what, self.stream.next()).await;
            let event = event.unwrap_or_else(|| panic!("the run ended before {what}: {:?}", self.seen));
            let event = event.expect("the stream is taken up again");
            println!("[{}] {event:?}", self.run_id());
            let found = event.event.as_ref().and_then(&wanted);
            if event.seq > 0 {
                self.seen.push(event);
            }
            if let Some(found) = found {
                return found;
            }
        }
    }

    /// Reads on to the durable event with this number; none where the run ends before it.
    pub async fn event(&mut self, seq: u64) -> Option<Event> {
        while self.stream.last_seq() < seq {
            let event = soon("an event", self.stream.next()).await?.expect("the stream is taken up again");
            if event.seq > 0 {
                self.seen.push(event);
            }
        }
        self.seen.get(seq as usize - 1)?.event.clone()
    }

    /// Reads on to the next request to a human.
    pub async fn question(&mut self) -> HumanRequest {
        let asked = self.until("a question", |event| match event {
            Event::HumanRequested(asked) => Some(asked.clone()),
            _ => None,
        });
        asked.await.request.expect("a question")
    }

    /// The next tool result.
    pub async fn result(&mut self) -> ToolCallResult {
        let result = self.until("a tool result", |event| match event {
            Event::ToolCallResult(result) => Some(result.clone()),
            _ => None,
        });
        result.await
    }

    /// The only tool result among the events so far.
    ///
    /// # Panics
    /// When there is none, or another one.
    pub fn result_seen(&self) -> ToolCallResult {
        let results = self.seen.iter().filter_map(|event| match &event.event {
            Some(Event::ToolCallResult(result)) => Some(result.clone()),
            _ => None,
        });
        let [result] = results.collect::<Vec<_>>().try_into().expect("one result");
        result
    }

    /// Reads to the end and checks what holds for every run. This subscriber saw each durable event exactly once, as does one
    /// that comes later. Every tool call has exactly one result.
    pub async fn finished(&mut self) -> RunFinished {
        let end = |event: &Event| match event {
            Event::RunFinished(finished) => Some(finished.clone()),
            _ => None,
        };
        let seen = self.seen.last().and_then(|last| last.event.as_ref()).and_then(end);
        let finished = match seen {
            Some(finished) => finished,
            None => self.until("the end", end).await,
        };
        let seqs: Vec<u64> = self.seen.iter().map(|event| event.seq).collect();
        let dense: Vec<u64> = (1..=seqs.len() as u64).collect();
        assert_eq!(seqs, dense);
        assert_eq!(self.read_again(0).await, self.seen);
        let middle = self.seen.len() / 2;
        assert_eq!(self.read_again(middle as u64).await, self.seen[middle..]);
        let mut proposed = self.ids(|event| match event {
            Event::ToolCallProposed(call) => Some(call.call_id.clone()),
            _ => None,
        });
        let mut settled = self.ids(|event| match event {
            Event::ToolCallResult(result) => Some(result.result.clone().expect("a result").call_id),
            _ => None,
        });
        proposed.sort();
        settled.sort();
        assert_eq!(settled, proposed);
        finished
    }

    /// As [`Follower::finished`], for a run that has an answer: its text.
    pub async fn answer(&mut self) -> String {
        let finished = self.finished().await;
        assert_eq!(finished.status(), RunStatus::Completed, "{:?}", finished.error);
        let mut answers = self.seen.iter().filter_map(|event| match &event.event {
            Some(Event::AssistantMessage(said)) => said.message.as_ref(),
            _ => None,
        });
        text(answers.next_back().expect("an answer"))
    }

    /// Counts the durable events for which `is` is true.
    pub fn count(&self, such: impl Fn(&Event) -> bool) -> usize {
        self.seen.iter().filter_map(|event| event.event.as_ref()).filter(|event| such(event)).count()
    }

    /// All entries of the session, in order.
    pub async fn entries(&self) -> Vec<Entry> {
        let session_id = self.seen.first().expect("an event").session_id.clone();
        let request = ListEntriesRequest { session_id, ..ListEntriesRequest::default() };
        self.client.list_entries(request).await.expect("listed").entries
    }

    /// Answers a question with this decision.
    pub async fn decide(&self, question: &HumanRequest, decision: decision::Decision) {
        decide(&self.client, question, decision).await;
    }

    fn ids(&self, id: impl Fn(&Event) -> Option<String>) -> Vec<String> {
        self.seen.iter().filter_map(|event| event.event.as_ref().and_then(&id)).collect()
    }

    async fn read_again(&self, after_seq: u64) -> Vec<RunEvent> {
        let mut stream = self.client.subscribe(self.run_id(), after_seq).await.expect("subscribed");
        let mut events = Vec::new();
        while let Some(event) = soon("the events again", stream.next()).await {
            events.push(event.expect("the stream holds"));
        }
        events
    }
}

/// Answers a question with this decision.
pub async fn decide(client: &Client, question: &HumanRequest, decision: decision::Decision) {
    let request = SubmitApprovalRequest {
        request_id: question.request_id.clone(),
        decision: Some(Decision { decision: Some(decision) }),
        digest: question.digest.clone(),
        decided_by: "a test".to_owned(),
        ..SubmitApprovalRequest::default()
    };
    client.submit_approval(request).await.expect("answered");
}

/// The text of a message.
pub fn text(message: &Message) -> String {
    let texts = message.parts.iter().filter_map(|part| match &part.content {
        Some(part::Content::Text(text)) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// The status and output of a tool result.
pub fn outcome(result: &ToolCallResult) -> (ToolStatus, &str) {
    let result = result.result.as_ref().expect("a result");
    (result.status(), &result.output)
}
