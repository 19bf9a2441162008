//! The pace at which items that may wait are sent to another replica.
//!
//! Each message costs a replica a call of the system to write, and the other one a call to read. This costs the same for one item
//! as for many. So items that nobody waits for wait for the next tick of a clock, which comes every [`INTERVAL`], and leave
//! together. The first of them after a pause goes at once, and so does each item that may not wait, with everything before it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::Stream;
use tokio::time::{Instant, Sleep, sleep};

/// Time between two ticks.
const INTERVAL: Duration = Duration::from_millis(25);
/// Items of a stream that wait at most.
const WAITING_MAX: usize = 256;

/// A clock whose ticks several streams share. Copies tick together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    began: Instant,
}

impl Pace {
    /// A clock that ticks from now on.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self { began: Instant::now() }
    }

    /// The first tick after now.
    fn next_tick(self) -> Instant {
        let ticks = self.began.elapsed().as_millis() / INTERVAL.as_millis();
        self.began + INTERVAL * u32::try_from(ticks + 1).unwrap_or(u32::MAX)
    }
}

/// The items of a stream, in their order, at the pace of this module.
#[derive(Debug)]
pub(crate) struct Paced<S: Stream> {
    items: Pin<Box<S>>,
    pace: Pace,
    may_wait: fn(&S::Item) -> bool,
    waiting: VecDeque<S::Item>,
    /// True while what waits is being sent.
    sends: bool,
    /// True after the last item.
    has_ended: bool,
    /// Elapses when items that may wait may be sent again.
    pause: Pin<Box<Sleep>>,
}

impl<S: Stream> Paced<S> {
    /// The items of this stream. Those that `may_wait` leave at ticks of this clock.
    pub(crate) fn new(items: S, pace: Pace, may_wait: fn(&S::Item) -> bool) -> Self {
        let (items, pause) = (Box::pin(items), Box::pin(sleep(Duration::ZERO)));
        Self { items, pace, may_wait, waiting: VecDeque::new(), sends: false, has_ended: false, pause }
    }
}

// Items are moved, and never pinned.
impl<S: Stream> Unpin for Paced<S> {}

impl<S: Stream> Stream for Paced<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
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
                    this.sends = !(this.may_wait)(&item) || this.waiting.len() >= WAITING_MAX;
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
    use futures_util::stream::{iter, pending};
    use futures_util::{FutureExt as _, StreamExt as _};
    use tokio::sync::mpsc;
    use tokio::time::advance;
    use tokio_stream::wrappers::UnboundedReceiverStream;

    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Item {
        /// May wait.
        Piece(u64),
        Urgent(u64),
    }
    use Item::{Piece, Urgent};

    fn may_wait(item: &Item) -> bool {
        matches!(item, Piece(_))
    }

    fn paced() -> (mpsc::UnboundedSender<Item>, Paced<UnboundedReceiverStream<Item>>) {
        let (sender, items) = mpsc::unbounded_channel();
        (sender, Paced::new(UnboundedReceiverStream::new(items), Pace::new(), may_wait))
    }

    /// The items that come without a wait.
    fn ready(items: &mut (impl Stream<Item = Item> + Unpin)) -> Vec<Item> {
        std::iter::from_fn(|| items.next().now_or_never().flatten()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_piece_after_a_pause_goes_at_once_and_those_that_follow_go_together() {
        const STEP: Duration = INTERVAL.checked_div(5).unwrap();
        let (sender, mut items) = paced();
        for round in [0, 10] {
            sender.send(Piece(round + 1)).unwrap();
            assert_eq!(ready(&mut items), [Piece(round + 1)]);
            for number in [2, 3, 4] {
                sender.send(Piece(round + number)).unwrap();
                advance(STEP).await;
                assert!(ready(&mut items).is_empty());
            }
            let began = Instant::now();
            assert_eq!(items.next().await, Some(Piece(round + 2)));
            assert_eq!(began.elapsed(), INTERVAL - 3 * STEP, "at the tick");
            assert_eq!(ready(&mut items), [3, 4].map(|number| Piece(round + number)));
            advance(INTERVAL).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_not_wait_goes_at_once_with_everything_before_it() {
        let (sender, mut items) = paced();
        sender.send(Piece(1)).unwrap();
        assert_eq!(ready(&mut items), [Piece(1)]);
        for item in [Piece(2), Piece(3), Urgent(4), Piece(5)] {
            sender.send(item).unwrap();
        }
        assert_eq!(ready(&mut items), [Piece(2), Piece(3), Urgent(4)]);
        drop(sender);
        assert_eq!(ready(&mut items), [Piece(5)], "nothing waits when the stream has ended");
        assert!(items.next().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_bounded_number_of_pieces_waits() {
        let many = (0..).map(Piece).take(3 * WAITING_MAX);
        let mut items = Paced::new(iter(many).chain(pending()), Pace::new(), may_wait);
        let sent = ready(&mut items).len();
        assert!(sent > 2 * WAITING_MAX && items.waiting.len() < WAITING_MAX, "{sent}");
    }
}
