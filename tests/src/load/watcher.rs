//! A subscriber that trusts nobody: it reads the stream itself, takes it up again after the last event that it saw, and
//! fails where an event is missing or comes twice.

use std::time::Duration;

use agentloop_client::v1 as wire;
use agentloop_client::{Client, Error};
use tonic::{Status, Streaming};
use wire::RunStatus;
use wire::run_event::Event;

use super::counts::Counts;
use super::dice::Dice;
use crate::process::PATIENCE;

/// Between two tries to reach a server.
const RETRY_WAIT: Duration = Duration::from_millis(20);

enum Messages {
    Run(Streaming<wire::RunStreamResponse>),
    Subscription(Streaming<wire::SubscribeResponse>),
}

impl Messages {
    async fn next(&mut self) -> Result<Option<wire::RunEvent>, Status> {
        Ok(match self {
            Self::Run(stream) => stream.message().await?.and_then(|message| message.event),
            Self::Subscription(stream) => stream.message().await?.and_then(|message| message.event),
        })
    }
}

fn is_over(status: RunStatus) -> bool {
    matches!(status, RunStatus::Completed | RunStatus::Failed | RunStatus::Aborted)
}

/// One subscriber of one run.
pub struct Watcher {
    client: Client,
    /// The run, also where its request came to another one.
    pub run_id: String,
    start: Option<wire::RunInput>,
    messages: Option<Messages>,
    /// Every durable event, in order.
    pub seen: Vec<wire::RunEvent>,
    counts: Counts,
    dice: Dice,
    /// The number of events, of a hundred, after which the stream is dropped.
    leaves: u64,
}

impl Watcher {
    /// Starts a run, and watches it.
    pub fn start(client: Client, input: wire::RunInput, counts: Counts, dice: Dice) -> Self {
        let run_id = input.run_id.clone().expect("a run has an id from the start");
        Self { client, run_id, start: Some(input), messages: None, seen: Vec::new(), counts, dice, leaves: 2 }
    }

    /// The input to start the run with, until its first event was seen.
    pub fn input(&self) -> Option<wire::RunInput> {
        self.start.clone()
    }

    /// True once the run's end was seen.
    pub fn is_over(&self) -> bool {
        matches!(self.seen.last().and_then(|event| event.event.as_ref()), Some(Event::RunFinished(_)))
    }

    /// The next durable event; none after the end.
    ///
    /// # Errors
    /// When the request is refused.
    ///
    /// # Panics
    /// When an event is missing or comes twice, or nothing comes for long.
    pub async fn next(&mut self) -> Result<Option<Event>, Status> {
        if self.is_over() {
            return Ok(None);
        }
        loop {
            let event = Box::pin(self.event());
            match tokio::time::timeout(PATIENCE, event).await {
                Ok(event) => return event.map(Some),
                Err(_) => self.may_wait().await,
            }
        }
    }

    async fn event(&mut self) -> Result<Event, Status> {
        loop {
            let Some(event) = self.message().await? else { continue };
            if event.seq > 0 {
                return Ok(self.keep(event));
            }
        }
    }

    /// Only a run that waits for its session may wait for long: as long as another run of it goes on.
    async fn may_wait(&self) {
        assert!(self.start.is_none(), "{}: no answer to its start for {PATIENCE:?}", self.run_id);
        let run = self.client.get_run(&self.run_id).await.expect("it was acknowledged");
        let queued = run.status() == RunStatus::Queued;
        let session_id = run.session_id.clone();
        let request = wire::ListRunsRequest { session_id, page_size: 500, ..Default::default() };
        let others = self.client.list_runs(request).await.expect("listed").runs;
        let goes_on = |other: &wire::Run| other.run_id != run.run_id && !is_over(other.status());
        let goes_on = others.iter().any(goes_on);
        assert!(
            queued && goes_on,
            "waited {PATIENCE:?} after {}: {run:?}, {:#?}",
            self.seen.len(),
            self.seen
        );
    }

    /// Reads to the end.
    ///
    /// # Errors
    /// When the request is refused.
    pub async fn rest(&mut self) -> Result<(), Status> {
        while self.next().await?.is_some() {}
        Ok(())
    }

    fn keep(&mut self, event: wire::RunEvent) -> Event {
        let wanted = self.seen.len() as u64 + 1;
        assert_eq!(event.seq, wanted, "{}: this event came in place of {wanted}: {event:?}", self.run_id);
        if self.start.take().is_some() {
            self.run_id.clone_from(&event.run_id);
        }
        assert_eq!(event.run_id, self.run_id, "an event of another run: {event:?}");
        self.counts.count("events seen by subscribers");
        let kind = event.event.clone().expect("an event says what happened");
        self.seen.push(event);
        if self.dice.percent(self.leaves) {
            self.messages = None;
            self.counts.count("subscriptions dropped and taken up again");
        }
        kind
    }

    async fn message(&mut self) -> Result<Option<wire::RunEvent>, Status> {
        if self.messages.is_none() {
            match self.open().await {
                Ok(messages) => self.messages = Some(messages),
                Err(status) => return self.lost(status).await,
            }
        }
        match self.messages.as_mut().expect("it was opened").next().await {
            Ok(Some(event)) => Ok(Some(event)),
            Ok(None) => self.lost(Status::unavailable("the stream ended before the run")).await,
            Err(status) => self.lost(status).await,
        }
    }

    async fn lost(&mut self, status: Status) -> Result<Option<wire::RunEvent>, Status> {
        let error = Error::from(status.clone());
        let too_slow = error.reason() == Some(wire::ErrorReason::SubscriberTooSlow);
        if !error.is_unreachable() && !too_slow {
            return Err(status);
        }
        self.messages = None;
        self.counts.count("streams lost and taken up again");
        tokio::time::sleep(RETRY_WAIT).await;
        Ok(None)
    }

    async fn open(&self) -> Result<Messages, Status> {
        let mut client = self.client.agent_loop();
        let after_seq = self.seen.len() as u64;
        match self.start.clone() {
            Some(input) => {
                let request = wire::RunStreamRequest { input: Some(input), after_seq };
                client.run_stream(request).await.map(|answer| Messages::Run(answer.into_inner()))
            }
            None => {
                let run_id = self.run_id.clone();
                let request = wire::SubscribeRequest { run_id, after_seq, durable_only: false };
                client.subscribe(request).await.map(|answer| Messages::Subscription(answer.into_inner()))
            }
        }
    }
}
