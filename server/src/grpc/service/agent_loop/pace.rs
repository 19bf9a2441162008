//! The pace at which work in progress is sent to another replica, for a caller there.
//!
//! The other replica reads and writes each message once more. This costs the same for one piece as for many. So the pieces of all
//! runs wait for the next tick of one clock, which comes every [`INTERVAL`], and leave together. The first piece after a pause goes
//! at once, and so does each durable event, with everything before it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::Stream;
use tokio::time::{Instant, Sleep, sleep};

use crate::engine::error::EngineError;
use crate::engine::feed::FeedItem;

/// Time between two ticks.
const INTERVAL: Duration = Duration::from_millis(25);
/// Items of a run that wait at most.
const WAITING_MAX: usize = 256;

/// The clock whose ticks all runs share. Copies tick together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    began: Instant,
}

impl Pace {
    /// A clock that ticks from now on.
    pub(super) fn new() -> Self {
        Self { began: Instant::now() }
    }

    /// The first tick after now.
    fn next_tick(self) -> Instant {
        let ticks = self.began.elapsed().as_millis() / INTERVAL.as_millis();
        self.began + INTERVAL * u32::try_from(ticks + 1).unwrap_or(u32::MAX)
    }
}

/// An item of a subscription, or the error that ends it.
type Item = Result<FeedItem, EngineError>;

/// The items of a subscription, in their order, at the pace of this module.
pub(super) struct Paced<S> {
    items: Pin<Box<S>>,
    pace: Pace,
    waiting: VecDeque<Item>,
    /// True while what waits is being sent.
    sends: bool,
    /// True after the last item.
    has_ended: bool,
    /// Elapses when work in progress may be sent again.
    pause: Pin<Box<Sleep>>,
}

impl<S> Paced<S> {
    pub(super) fn new(items: S, pace: Pace) -> Self {
        let (items, pause) = (Box::pin(items), Box::pin(sleep(Duration::ZERO)));
        Self { items, pace, waiting: VecDeque::new(), sends: false, has_ended: false, pause }
    }
}

impl<S: Stream<Item = Item>> Stream for Paced<S> {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        let this = &mut *self;
        loop {
            if this.sends {
                if let Some(item) = this.waiting.pop_front() {
                    return Poll::Ready(Some(item));
                }
                this.sends = false;
            }
            if this.has_ended {
                return Poll::Ready(None);
            }
            match this.items.as_mut().poll_next(cx) {
                Poll::Ready(Some(item)) => {
                    this.sends =
                        !matches!(item, Ok(FeedItem::Transient(_))) || this.waiting.len() >= WAITING_MAX;
                    this.waiting.push_back(item);
                }
                Poll::Ready(None) => (this.has_ended, this.sends) = (true, true),
                Poll::Pending if this.waiting.is_empty() => return Poll::Pending,
                Poll::Pending => {
                    ready!(this.pause.as_mut().poll(cx));
                    this.pause.as_mut().reset(this.pace.next_tick());
                    this.sends = true;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agentloop_core::id::{Attempt, Seq};
    use agentloop_core::run::event::Record;
    use agentloop_core::run::status::RunStatus;
    use agentloop_core::time::Timestamp;
    use futures_util::stream::{iter, pending};
    use futures_util::{FutureExt as _, StreamExt as _};
    use tokio::sync::mpsc;
    use tokio::time::advance;
    use tokio_stream::wrappers::UnboundedReceiverStream;

    use super::*;
    use crate::engine::feed::{LiveProgress, Transient};
    use crate::store::conformance::fixture::finished;

    type Sender = mpsc::UnboundedSender<Item>;

    fn paced() -> (Sender, Paced<UnboundedReceiverStream<Item>>) {
        let (sender, items) = mpsc::unbounded_channel();
        (sender, Paced::new(UnboundedReceiverStream::new(items), Pace::new()))
    }

    /// A piece of work in progress with this number.
    fn piece(number: u64) -> Item {
        let (slot, attempt) = ((1, 0).into(), Attempt(1));
        let what = LiveProgress::Output { slot, attempt, chunk_seq: number, stderr: false, data: Vec::new() };
        Ok(FeedItem::transient(Transient { at: Timestamp(0), what }))
    }

    /// A durable event with this number.
    fn event(number: u64) -> Item {
        let record =
            Record { seq: Seq(number), at: Timestamp(0), status: RunStatus::Completed, event: finished() };
        Ok(FeedItem::durable(Arc::new(record)))
    }

    /// The numbers of the items that come without a wait.
    fn ready(items: &mut (impl Stream<Item = Item> + Unpin)) -> Vec<u64> {
        std::iter::from_fn(|| items.next().now_or_never().flatten())
            .map(|item| match item.expect("no error") {
                FeedItem::Durable(record) => record.seq.0,
                FeedItem::Transient(transient) => match transient.what {
                    LiveProgress::Output { chunk_seq, .. } => chunk_seq,
                    ref other => panic!("not sent: {other:?}"),
                },
            })
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_piece_after_a_pause_goes_at_once_and_those_that_follow_go_together() {
        const STEP: Duration = INTERVAL.checked_div(5).unwrap();
        let (sender, mut items) = paced();
        for round in [0, 10] {
            sender.send(piece(round + 1)).unwrap();
            assert_eq!(ready(&mut items), [round + 1]);
            for number in [2, 3, 4] {
                sender.send(piece(round + number)).unwrap();
                advance(STEP).await;
                assert!(ready(&mut items).is_empty());
            }
            let began = Instant::now();
            let first = items.next().await.unwrap().unwrap();
            assert!(matches!(first, FeedItem::Transient(_)));
            assert_eq!(began.elapsed(), INTERVAL - 3 * STEP, "at the tick");
            assert_eq!(ready(&mut items), [round + 3, round + 4]);
            advance(INTERVAL).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_durable_event_goes_at_once_with_everything_before_it() {
        let (sender, mut items) = paced();
        sender.send(piece(1)).unwrap();
        assert_eq!(ready(&mut items), [1]);
        for item in [piece(2), piece(3), event(4), piece(5)] {
            sender.send(item).unwrap();
        }
        assert_eq!(ready(&mut items), [2, 3, 4]);
        drop(sender);
        assert_eq!(ready(&mut items), [5], "nothing waits when the stream has ended");
        assert!(items.next().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_does_not_wait() {
        let (sender, mut items) = paced();
        sender.send(piece(1)).unwrap();
        assert_eq!(ready(&mut items), [1]);
        sender.send(piece(2)).unwrap();
        sender.send(Err(EngineError::ShuttingDown)).unwrap();
        assert!(items.next().now_or_never().flatten().unwrap().is_ok());
        assert!(items.next().now_or_never().flatten().unwrap().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_bounded_number_of_pieces_waits() {
        let many = (0..).map(piece).take(3 * WAITING_MAX);
        let mut items = Paced::new(iter(many).chain(pending()), Pace::new());
        let sent = ready(&mut items).len();
        assert!(sent > 2 * WAITING_MAX && items.waiting.len() < WAITING_MAX, "{sent}");
    }
}
