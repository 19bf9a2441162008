//! A run's events, collected as a caller sees them.

use std::pin::Pin;

use agentloop_client::v1 as wire;
use futures_util::{Stream, StreamExt as _};
use tonic::{Response, Status, Streaming};
use wire::run_event::Event;

use crate::PATIENCE;

/// A stream of events and what came of it so far.
pub struct Events {
    stream: Pin<Box<dyn Stream<Item = Result<wire::RunEvent, Status>> + Send>>,
    /// Everything that came so far.
    pub seen: Vec<wire::RunEvent>,
}

impl Events {
    /// The events of `RunStream`.
    pub fn of_run(response: Response<Streaming<wire::RunStreamResponse>>) -> Self {
        let stream = response.into_inner();
        Self::of(stream.map(|item| item.map(|response| response.event.expect("an event"))))
    }

    /// The events of `Subscribe`.
    pub fn of_subscription(response: Response<Streaming<wire::SubscribeResponse>>) -> Self {
        let stream = response.into_inner();
        Self::of(stream.map(|item| item.map(|response| response.event.expect("an event"))))
    }

    fn of(stream: impl Stream<Item = Result<wire::RunEvent, Status>> + Send + 'static) -> Self {
        Self { stream: Box::pin(stream), seen: Vec::new() }
    }

    /// The next event; `None` at the end.
    ///
    /// # Errors
    /// The stream's.
    ///
    /// # Panics
    /// When nothing comes in [`PATIENCE`].
    pub async fn event(&mut self) -> Result<Option<wire::RunEvent>, Status> {
        let next = tokio::time::timeout(PATIENCE, self.stream.next()).await;
        let next = next.unwrap_or_else(|_| panic!("nothing comes after {:?}", names(&self.seen)));
        let Some(event) = next.transpose()? else { return Ok(None) };
        self.seen.push(event.clone());
        Ok(Some(event))
    }

    /// Reads up to the first event for which this holds.
    ///
    /// # Panics
    /// When there is none.
    pub async fn wait_for(&mut self, what: impl Fn(&wire::RunEvent) -> bool) -> wire::RunEvent {
        loop {
            let event = self.event().await.expect("the stream goes on");
            let event = event.unwrap_or_else(|| panic!("the stream ended after {:?}", names(&self.seen)));
            if what(&event) {
                return event;
            }
        }
    }

    /// Reads up to the first event of this [`name`].
    ///
    /// # Panics
    /// When there is none.
    pub async fn wait_for_name(&mut self, wanted: &str) -> wire::RunEvent {
        self.wait_for(|event| name(event) == wanted).await
    }

    /// Reads up to the first word of the model: as a delta, or in the snapshot that one who came a little late gets.
    ///
    /// # Panics
    /// When there is none.
    pub async fn wait_for_speech(&mut self) -> wire::RunEvent {
        self.wait_for(|event| matches!(name(event), "model_delta" | "partial_message")).await
    }

    /// Reads to the end, which must be OK; everything that was seen.
    ///
    /// # Panics
    /// When the stream fails.
    pub async fn rest(mut self) -> Vec<wire::RunEvent> {
        while self.event().await.expect("the stream ends well").is_some() {}
        self.seen
    }

    /// Reads to the end, which must be an error.
    ///
    /// # Panics
    /// When the stream ends well.
    pub async fn failure(&mut self) -> Status {
        loop {
            match self.event().await {
                Err(status) => return status,
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended well after {:?}", names(&self.seen)),
            }
        }
    }
}

/// The name of the event's kind in the contract.
///
/// # Panics
/// When it is none.
pub fn name(event: &wire::RunEvent) -> &'static str {
    match event.event.as_ref().expect("an event says what happened") {
        Event::RunStarted(_) => "run_started",
        Event::InputMessage(_) => "input_message",
        Event::ModelCallStarted(_) => "model_call_started",
        Event::ModelCallFailed(_) => "model_call_failed",
        Event::AssistantMessage(_) => "assistant_message",
        Event::ToolCallProposed(_) => "tool_call_proposed",
        Event::ToolCallOffered(_) => "tool_call_offered",
        Event::ToolCallAccepted(_) => "tool_call_accepted",
        Event::ToolCallAttemptFailed(_) => "tool_call_attempt_failed",
        Event::ToolCallResult(_) => "tool_call_result",
        Event::HumanRequested(_) => "human_requested",
        Event::HumanApproved(_) => "human_approved",
        Event::HumanResolved(_) => "human_resolved",
        Event::RunPaused(_) => "run_paused",
        Event::RunResumed(_) => "run_resumed",
        Event::ContextCompacted(_) => "context_compacted",
        Event::ExtensionApplied(_) => "extension_applied",
        Event::RunFinished(_) => "run_finished",
        Event::ToolCallCheckpoint(_) => "tool_call_checkpoint",
        Event::InstructionPlanned(_) => "instruction_planned",
        Event::InputEntered(_) => "input_entered",
        Event::SessionEntered(_) => "session_entered",
        Event::ContextAdded(_) => "context_added",
        Event::TodosUpdated(_) => "todos_updated",
        Event::CompactionStarted(_) => "compaction_started",
        Event::CompactionFailed(_) => "compaction_failed",
        Event::ModelDelta(_) => "model_delta",
        Event::PartialMessage(_) => "partial_message",
        Event::ToolCallProgress(_) => "tool_call_progress",
        Event::ToolCallOutput(_) => "tool_call_output",
    }
}

/// The kinds of these events.
pub fn names(events: &[wire::RunEvent]) -> Vec<&'static str> {
    events.iter().map(name).collect()
}

/// The durable ones of these events.
pub fn durable(events: &[wire::RunEvent]) -> Vec<wire::RunEvent> {
    events.iter().filter(|event| event.seq > 0).cloned().collect()
}

/// Asserts that the durable events are complete from this number on, each once.
///
/// # Panics
/// When they are not.
#[track_caller]
pub fn assert_dense(events: &[wire::RunEvent], first: u64) {
    let found: Vec<u64> = events.iter().map(|event| event.seq).filter(|seq| *seq > 0).collect();
    let wanted: Vec<u64> = (first..).take(found.len()).collect();
    assert_eq!(found, wanted, "{:?}", names(events));
}

/// The text of a message, without its other parts.
pub fn text(message: &wire::Message) -> String {
    let part = |part: &wire::Part| match &part.content {
        Some(wire::part::Content::Text(text)) => Some(text.clone()),
        _ => None,
    };
    message.parts.iter().filter_map(part).collect()
}

/// The results of tool calls among these events, in order.
pub fn results(events: &[wire::RunEvent]) -> Vec<wire::ToolResult> {
    let result = |event: &wire::RunEvent| match &event.event {
        Some(Event::ToolCallResult(result)) => result.result.clone(),
        _ => None,
    };
    events.iter().filter_map(result).collect()
}
