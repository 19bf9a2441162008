//! The events of a run as one stream that survives lost connections.

use std::time::Duration;

use agentloop_proto::v1::{
    DisconnectPolicy, ErrorReason, ModelDelta, PartialMessage, RunEvent, RunInput, RunStreamRequest,
    RunStreamResponse, SubscribeRequest, SubscribeResponse, run_event::Event,
};
use futures_util::Stream;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::{Status, Streaming};

use crate::{Backoff, Client, Error, ids, retry::Retries};

/// Longest wait for the end of a stream after the run's.
const END_WAIT: Duration = Duration::from_secs(1);
/// Time that the server may take to open a stream. There is no timeout between events.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// The events of a run, in order, to its end.
///
/// The stream is reopened after the last durable event seen, when the connection is lost, the server restarts, or the
/// server ends the stream of a slow reader. Every durable event comes exactly once. Transient events may be missing, and
/// come at most once, except that a `partial_message` repeats the text so far.
///
/// A run that was started here with `on_disconnect` CANCEL ends when the stream is dropped, also after it was reopened.
///
/// Read it to `None`, if the run's end is of interest. A stream that is dropped sooner is reset, and a connection whose streams are
/// reset by the thousand is given up.
#[derive(Debug)]
pub struct EventStream {
    client: Client,
    run_id: String,
    /// The input that starts the run. Dropped when the first event proves that the run exists.
    start: Option<RunInput>,
    /// True if the run was started by this stream and is to end with it, so that a reopened stream has to join it.
    ends_with_stream: bool,
    last_seq: u64,
    open: Option<OpenStream>,
    retries: Retries,
    /// The time of the next attempt to open the stream; set while there is none.
    reopen_at: Option<Instant>,
    deltas: DeltaFilter,
    ended: bool,
}

/// The next item of a stream, for callers that show the state of the connection.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamUpdate {
    /// An event of the run.
    Event(Box<RunEvent>),
    /// The connection was lost; the stream will be reopened.
    Lost,
    /// The stream was reopened; no durable event is missing.
    Resumed,
}

#[derive(Debug)]
enum OpenStream {
    Run(Streaming<RunStreamResponse>),
    Subscription(Streaming<SubscribeResponse>),
}

impl Client {
    /// Starts a run and follows it from its first event to its end. If a run with this `run_id` and the same input
    /// exists, it follows that run.
    pub async fn run_stream(&self, input: RunInput) -> Result<EventStream, Error> {
        EventStream::run(self.clone(), input).await
    }

    /// Follows a run from the event after `after_seq` (0: from the first) to its end.
    pub async fn subscribe(&self, run_id: impl Into<String>, after_seq: u64) -> Result<EventStream, Error> {
        EventStream::subscribe(self.clone(), run_id.into(), after_seq).await
    }
}

impl EventStream {
    async fn run(client: Client, mut input: RunInput) -> Result<Self, Error> {
        let run_id = ids::fill_in(&mut input.run_id);
        EventStream::opened(client, run_id, Some(input), 0).await
    }

    async fn subscribe(client: Client, run_id: String, after_seq: u64) -> Result<Self, Error> {
        EventStream::opened(client, run_id, None, after_seq).await
    }

    async fn opened(
        client: Client,
        run_id: String,
        start: Option<RunInput>,
        last_seq: u64,
    ) -> Result<Self, Error> {
        let retries = client.retries();
        let ends_with_stream =
            start.as_ref().is_some_and(|input| input.on_disconnect() == DisconnectPolicy::Cancel);
        let mut stream = EventStream {
            client,
            run_id,
            start,
            ends_with_stream,
            last_seq,
            open: None,
            retries,
            reopen_at: None,
            deltas: DeltaFilter::default(),
            ended: false,
        };
        stream.reopen().await?;
        Ok(stream)
    }

    /// The id of the run, also if the client chose it. If the input steered a live run, it is the id of that run, from
    /// the first event on.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// The number of the last durable event that was returned. Before the first, the number that the subscription began
    /// after.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Sets the backoff of this stream, in place of the client's.
    pub fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.retries = Retries::new(backoff);
        self
    }

    /// The next event; `None` after `run_finished`. Dropping the future loses nothing.
    ///
    /// # Errors
    /// When the stream cannot be reopened. There are no more events then.
    pub async fn next(&mut self) -> Option<Result<RunEvent, Error>> {
        loop {
            match self.next_update().await? {
                Ok(StreamUpdate::Event(event)) => return Some(Ok(*event)),
                Ok(StreamUpdate::Lost | StreamUpdate::Resumed) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// As [`EventStream::next`], but also reports that the connection was lost and that it is back.
    ///
    /// # Errors
    /// When the stream cannot be reopened. There are no more events then.
    pub async fn next_update(&mut self) -> Option<Result<StreamUpdate, Error>> {
        while !self.ended {
            let was_connected = self.open.is_some();
            let advanced = self.advance().await;
            match (advanced, was_connected, self.open.is_some()) {
                (Ok(Some(event)), ..) => return Some(Ok(StreamUpdate::Event(Box::new(event)))),
                (Ok(None), true, false) => return Some(Ok(StreamUpdate::Lost)),
                (Ok(None), false, true) => return Some(Ok(StreamUpdate::Resumed)),
                (Ok(None), ..) => {}
                (Err(error), ..) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        self.read_end().await;
        None
    }

    /// Reads the end of the stream, which follows the last event. The transport would take it for an error of the server if the
    /// stream was reset before, and gives a connection up after 1,024 of them.
    async fn read_end(&mut self) {
        if let Some(stream) = &mut self.open {
            let to_the_end = async { while let Ok(Some(_)) = stream.next().await {} };
            // The run is over, whatever the stream says.
            let _ended = timeout(END_WAIT, to_the_end).await;
        }
        self.open = None;
    }

    /// Converts into a [`Stream`] of the same events, for combinators.
    pub fn into_stream(self) -> impl Stream<Item = Result<RunEvent, Error>> + Send {
        futures_util::stream::unfold(self, |mut events| async move {
            let event = events.next().await?;
            Some((event, events))
        })
    }

    /// Reads one event, or reopens the stream once.
    async fn advance(&mut self) -> Result<Option<RunEvent>, Error> {
        let Some(stream) = &mut self.open else {
            self.reopen().await?;
            return Ok(None);
        };
        match stream.next().await {
            Ok(Some(event)) => self.accept(event),
            // A server that shuts down may end the stream without a status, before the run's end.
            Ok(None) => self.schedule_reopen(Error::Unreachable("the stream ended before the run".into())),
            Err(status) => self.schedule_reopen(Error::from(status)),
        }
    }

    /// Returns the event unless it was seen before. A gap in the numbers counts as a lost connection.
    fn accept(&mut self, event: RunEvent) -> Result<Option<RunEvent>, Error> {
        if event.seq == 0 {
            return Ok(self.deltas.is_new(&event).then_some(event));
        }
        if event.seq <= self.last_seq {
            return Ok(None);
        }
        if event.seq != self.last_seq + 1 {
            let gap = format!("event {} came after event {}", event.seq, self.last_seq);
            return self.schedule_reopen(Error::Unreachable(gap));
        }
        self.last_seq = event.seq;
        if self.start.take().is_some() && !event.run_id.is_empty() && event.run_id != self.run_id {
            // The input steered a live run: the events are of that run, which keeps its own `on_disconnect`.
            self.run_id.clone_from(&event.run_id);
            self.ends_with_stream = false;
        }
        self.retries.reset();
        self.ended = matches!(event.event, Some(Event::RunFinished(_)));
        Ok(Some(event))
    }

    /// Uses up a retry for each error, so that the stream gives up on a server that fails again and again.
    fn schedule_reopen(&mut self, error: Error) -> Result<Option<RunEvent>, Error> {
        let too_slow = error.reason() == Some(ErrorReason::SubscriberTooSlow);
        let wait = if too_slow { self.retries.next(error.retry_after()) } else { self.retries.after(&error) };
        let Some(wait) = wait else { return Err(error) };
        tracing::debug!(run_id = %self.run_id, %error, ?wait, "event stream lost; reopening it");
        self.open = None;
        self.reopen_at = Some(Instant::now() + wait);
        Ok(None)
    }

    /// Opens the stream, with as many attempts as the backoff allows.
    async fn reopen(&mut self) -> Result<(), Error> {
        loop {
            if let Some(reopen_at) = self.reopen_at {
                sleep_until(reopen_at).await;
            }
            match self.open().await {
                Ok(stream) => {
                    self.open = Some(stream);
                    self.reopen_at = None;
                    return Ok(());
                }
                Err(error) => self.schedule_reopen(error)?,
            };
        }
    }

    /// The input that starts the run, or joins it if it is to end when its caller goes away.
    fn run_input(&self) -> Option<RunInput> {
        let joining = || RunInput {
            run_id: Some(self.run_id.clone()),
            on_disconnect: DisconnectPolicy::Cancel.into(),
            ..RunInput::default()
        };
        self.start.clone().or_else(|| self.ends_with_stream.then(joining))
    }

    async fn open(&self) -> Result<OpenStream, Error> {
        let mut client = self.client.agent_loop();
        let after_seq = self.last_seq;
        let opening = async {
            match self.run_input() {
                Some(input) => {
                    let request = RunStreamRequest { input: Some(input), after_seq };
                    client.run_stream(request).await.map(|r| OpenStream::Run(r.into_inner()))
                }
                None => {
                    let run_id = self.run_id.clone();
                    let request = SubscribeRequest { run_id, after_seq, durable_only: false };
                    client.subscribe(request).await.map(|r| OpenStream::Subscription(r.into_inner()))
                }
            }
        };
        // In a box, because an input is large and the futures of all callers would hold it.
        match timeout(OPEN_TIMEOUT, Box::pin(opening)).await {
            Ok(stream) => Ok(stream?),
            Err(_) => Err(Error::Unreachable(format!("no answer within {OPEN_TIMEOUT:?}"))),
        }
    }
}

impl OpenStream {
    /// The next event; `None` at the end of the stream. A message without an event is skipped.
    async fn next(&mut self) -> Result<Option<RunEvent>, Status> {
        loop {
            let event = match self {
                OpenStream::Run(stream) => stream.message().await?.map(|message| message.event),
                OpenStream::Subscription(stream) => stream.message().await?.map(|message| message.event),
            };
            match event {
                Some(Some(event)) => return Ok(Some(event)),
                Some(None) => {}
                None => return Ok(None),
            }
        }
    }
}

/// Drops deltas that were seen before, which a reopened stream repeats.
#[derive(Debug, Default)]
struct DeltaFilter {
    last: DeltaPosition,
}

/// The position of a delta in its run. The order of the fields is the order of deltas.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct DeltaPosition {
    model_call: u32,
    attempt: u32,
    delta_seq: u64,
}

impl DeltaFilter {
    fn is_new(&mut self, event: &RunEvent) -> bool {
        match &event.event {
            Some(Event::ModelDelta(delta)) => {
                let ModelDelta { model_call, attempt, delta_seq, .. } = *delta;
                let position = DeltaPosition { model_call, attempt, delta_seq };
                let new = position > self.last;
                self.last = self.last.max(position);
                new
            }
            Some(Event::PartialMessage(partial)) => {
                let PartialMessage { model_call, attempt, delta_seq, .. } = *partial;
                let position = DeltaPosition { model_call, attempt, delta_seq };
                self.last = self.last.max(position);
                true
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use agentloop_proto::v1::ToolCallProgress;

    use super::*;

    fn event(event: Event) -> RunEvent {
        RunEvent { event: Some(event), ..RunEvent::default() }
    }

    fn delta(model_call: u32, attempt: u32, delta_seq: u64) -> RunEvent {
        event(Event::ModelDelta(ModelDelta { model_call, attempt, delta_seq, delta: None }))
    }

    #[test]
    fn repeated_deltas_are_dropped() {
        let mut filter = DeltaFilter::default();
        assert!(filter.is_new(&delta(1, 1, 1)));
        assert!(!filter.is_new(&delta(1, 1, 1)));
        let partial = PartialMessage { model_call: 1, attempt: 1, delta_seq: 5, message: None };
        assert!(filter.is_new(&event(Event::PartialMessage(partial))));
        assert!(!filter.is_new(&delta(1, 1, 5)));
        assert!(filter.is_new(&delta(1, 1, 6)));
        assert!(filter.is_new(&delta(1, 2, 1)), "a new attempt starts again");
        assert!(!filter.is_new(&delta(1, 1, 9)), "the old attempt is void");
    }

    #[test]
    fn other_transient_events_pass() {
        let mut filter = DeltaFilter::default();
        assert!(filter.is_new(&event(Event::ToolCallProgress(ToolCallProgress::default()))));
        assert!(filter.is_new(&event(Event::ToolCallProgress(ToolCallProgress::default()))));
    }
}
