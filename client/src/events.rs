//! A run's events as one stream, however often the connection breaks.

use std::time::Duration;

use agentloop_proto::v1::{
    ErrorReason, RunEvent, RunInput, RunStreamRequest, RunStreamResponse, SubscribeRequest,
    SubscribeResponse, run_event::Event,
};
use futures_util::Stream;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::{Status, Streaming};

use crate::{Backoff, Client, Error, ids, retry::Retries};

/// How long the server may take to answer the opening of a stream. Events may take as long as they like.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// A run's events, in order, to its end.
///
/// When the connection is lost, the server restarts or it ends the stream of a reader that was too slow, the stream is
/// taken up again after the last durable event seen. Every durable event comes exactly once. Transient events may be
/// missing; those that were seen before are left out, except that a `partial_message` repeats the text so far.
#[derive(Debug)]
pub struct EventStream {
    client: Client,
    run_id: String,
    /// Starts the run. Kept until the first event proves that the run exists.
    start: Option<RunInput>,
    last_seq: u64,
    messages: Option<Messages>,
    retries: Retries,
    /// When the next try is due; set while there is no stream.
    wake_at: Option<Instant>,
    deltas: DeltaFilter,
    over: bool,
}

/// What comes next of a stream whose connection may break.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// An event.
    Event(Box<RunEvent>),
    /// The connection was lost; the stream is about to be taken up again.
    Lost,
    /// The stream was taken up again; nothing durable is missing.
    Resumed,
}

#[derive(Debug)]
enum Messages {
    Run(Streaming<RunStreamResponse>),
    Subscription(Streaming<SubscribeResponse>),
}

impl EventStream {
    pub(crate) async fn run(client: Client, mut input: RunInput) -> Result<Self, Error> {
        let run_id = ids::ensure(&mut input.run_id);
        EventStream::opened(client, run_id, Some(input), 0).await
    }

    pub(crate) async fn subscribe(client: Client, run_id: String, after_seq: u64) -> Result<Self, Error> {
        EventStream::opened(client, run_id, None, after_seq).await
    }

    async fn opened(
        client: Client,
        run_id: String,
        start: Option<RunInput>,
        last_seq: u64,
    ) -> Result<Self, Error> {
        let retries = client.retries();
        let mut stream = EventStream {
            client,
            run_id,
            start,
            last_seq,
            messages: None,
            retries,
            wake_at: None,
            deltas: DeltaFilter::default(),
            over: false,
        };
        stream.reopen().await?;
        Ok(stream)
    }

    /// The run, also when its id was made up here. Where the input steered a live run, it is that one from the first
    /// event on.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// The last durable event that was returned, or what the subscription began after.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// From here on the stream is taken up again by this backoff, in place of the client's.
    pub fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.retries = Retries::new(backoff);
        self
    }

    /// The next event; `None` after `run_finished`. Dropping the future loses nothing.
    ///
    /// # Errors
    /// When the stream cannot be taken up again; it is over then.
    pub async fn next(&mut self) -> Option<Result<RunEvent, Error>> {
        loop {
            match self.next_progress().await? {
                Ok(Progress::Event(event)) => return Some(Ok(*event)),
                Ok(Progress::Lost | Progress::Resumed) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// As [`EventStream::next`], for whoever shows a person that the connection is lost and that it is back.
    ///
    /// # Errors
    /// When the stream cannot be taken up again; it is over then.
    pub async fn next_progress(&mut self) -> Option<Result<Progress, Error>> {
        while !self.over {
            let was_connected = self.messages.is_some();
            let advanced = self.advance().await;
            match (advanced, was_connected, self.messages.is_some()) {
                (Ok(Some(event)), ..) => return Some(Ok(Progress::Event(Box::new(event)))),
                (Ok(None), true, false) => return Some(Ok(Progress::Lost)),
                (Ok(None), false, true) => return Some(Ok(Progress::Resumed)),
                (Ok(None), ..) => {}
                (Err(error), ..) => {
                    self.over = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }

    /// The same as a [`Stream`], for combinators.
    pub fn into_stream(self) -> impl Stream<Item = Result<RunEvent, Error>> + Send {
        futures_util::stream::unfold(self, |mut events| async move {
            let event = events.next().await?;
            Some((event, events))
        })
    }

    /// One message, or one reconnect.
    async fn advance(&mut self) -> Result<Option<RunEvent>, Error> {
        let Some(messages) = &mut self.messages else {
            self.reopen().await?;
            return Ok(None);
        };
        match messages.next().await {
            Ok(Some(event)) => self.accept(event),
            // A server that goes away may end the stream without a status, before the run's end.
            Ok(None) => self.lost(Error::Unreachable("the stream ended before the run".into())),
            Err(status) => self.lost(Error::from(status)),
        }
    }

    /// Lets an event through unless it was seen before.
    fn accept(&mut self, event: RunEvent) -> Result<Option<RunEvent>, Error> {
        if event.seq == 0 {
            return Ok(self.deltas.is_new(&event).then_some(event));
        }
        if event.seq <= self.last_seq {
            return Ok(None);
        }
        if event.seq != self.last_seq + 1 {
            let gap = format!("event {} came after event {}", event.seq, self.last_seq);
            return self.lost(Error::Unreachable(gap));
        }
        self.last_seq = event.seq;
        if self.start.take().is_some() && !event.run_id.is_empty() {
            // What was said to a live run is shown as that run.
            self.run_id.clone_from(&event.run_id);
        }
        self.retries.reset();
        self.over = matches!(event.event, Some(Event::RunFinished(_)));
        Ok(Some(event))
    }

    /// Whatever goes on here counts as a retry, so that a server which never gets it right is given up.
    fn lost(&mut self, error: Error) -> Result<Option<RunEvent>, Error> {
        let too_slow = error.reason() == Some(ErrorReason::SubscriberTooSlow);
        let wait = if too_slow { self.retries.next(error.retry_after()) } else { self.retries.after(&error) };
        let Some(wait) = wait else { return Err(error) };
        tracing::debug!(run_id = %self.run_id, %error, ?wait, "taking up the stream again");
        self.messages = None;
        self.wake_at = Some(Instant::now() + wait);
        Ok(None)
    }

    /// Opens the stream, with as many tries as the backoff allows.
    async fn reopen(&mut self) -> Result<(), Error> {
        loop {
            if let Some(wake_at) = self.wake_at {
                sleep_until(wake_at).await;
            }
            match self.open().await {
                Ok(messages) => {
                    self.messages = Some(messages);
                    self.wake_at = None;
                    return Ok(());
                }
                Err(error) => self.lost(error)?,
            };
        }
    }

    async fn open(&self) -> Result<Messages, Error> {
        let mut client = self.client.agent_loop();
        let opening = async {
            match self.start.clone() {
                Some(input) => {
                    let request = RunStreamRequest { input: Some(input), after_seq: 0 };
                    client.run_stream(request).await.map(|r| Messages::Run(r.into_inner()))
                }
                None => {
                    let run_id = self.run_id.clone();
                    let request = SubscribeRequest { run_id, after_seq: self.last_seq, durable_only: false };
                    client.subscribe(request).await.map(|r| Messages::Subscription(r.into_inner()))
                }
            }
        };
        match timeout(OPEN_TIMEOUT, opening).await {
            Ok(messages) => Ok(messages?),
            Err(_) => Err(Error::Unreachable(format!("no answer within {OPEN_TIMEOUT:?}"))),
        }
    }
}

impl Messages {
    /// The next event; `None` at the end of the stream. A message without an event is passed over.
    async fn next(&mut self) -> Result<Option<RunEvent>, Status> {
        loop {
            let event = match self {
                Messages::Run(stream) => stream.message().await?.map(|message| message.event),
                Messages::Subscription(stream) => stream.message().await?.map(|message| message.event),
            };
            match event {
                Some(Some(event)) => return Ok(Some(event)),
                Some(None) => {}
                None => return Ok(None),
            }
        }
    }
}

/// Leaves out deltas that were seen before, which a stream that is taken up again repeats.
#[derive(Debug, Default)]
struct DeltaFilter {
    /// Model call, try, and position within it.
    last: (u32, u32, u64),
}

impl DeltaFilter {
    fn is_new(&mut self, event: &RunEvent) -> bool {
        match &event.event {
            Some(Event::ModelDelta(delta)) => {
                let position = (delta.model_call, delta.attempt, delta.delta_seq);
                let new = position > self.last;
                self.last = self.last.max(position);
                new
            }
            Some(Event::PartialMessage(partial)) => {
                let position = (partial.model_call, partial.attempt, partial.delta_seq);
                self.last = self.last.max(position);
                true
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use agentloop_proto::v1::{ModelDelta, PartialMessage, ToolCallProgress};

    use super::*;

    fn event(event: Event) -> RunEvent {
        RunEvent { event: Some(event), ..RunEvent::default() }
    }

    fn delta(model_call: u32, attempt: u32, delta_seq: u64) -> RunEvent {
        event(Event::ModelDelta(ModelDelta { model_call, attempt, delta_seq, delta: None }))
    }

    #[test]
    fn repeated_deltas_are_left_out() {
        let mut filter = DeltaFilter::default();
        assert!(filter.is_new(&delta(1, 1, 1)));
        assert!(!filter.is_new(&delta(1, 1, 1)));
        let partial = PartialMessage { model_call: 1, attempt: 1, delta_seq: 5, message: None };
        assert!(filter.is_new(&event(Event::PartialMessage(partial))));
        assert!(!filter.is_new(&delta(1, 1, 5)));
        assert!(filter.is_new(&delta(1, 1, 6)));
        assert!(filter.is_new(&delta(1, 2, 1)), "a new try begins anew");
        assert!(!filter.is_new(&delta(1, 1, 9)), "the old try is void");
    }

    #[test]
    fn other_transient_events_pass() {
        let mut filter = DeltaFilter::default();
        assert!(filter.is_new(&event(Event::ToolCallProgress(ToolCallProgress::default()))));
        assert!(filter.is_new(&event(Event::ToolCallProgress(ToolCallProgress::default()))));
    }
}
