//! Joins pieces of a model's response that arrive together.

use std::future::poll_fn;
use std::task::Poll;

use agentloop_core::model::delta::Delta;
use futures_util::{Stream, StreamExt as _};

use crate::model::ModelError;

/// A piece of this size is shown at once, however fast the model writes.
const JOINED_BYTES: usize = 4 * 1024;

/// A model's response in the pieces that are shown. It never waits for more text to join.
pub(in crate::engine) struct DeltaCoalescer<S> {
    stream: S,
    /// A piece that was read and cannot be joined to the one before it.
    ahead: Option<Result<Delta, ModelError>>,
    /// True if the stream was pending when it was last polled, and will wake this task.
    polled: bool,
    over: bool,
}

impl<S: Stream<Item = Result<Delta, ModelError>> + Unpin> DeltaCoalescer<S> {
    pub(in crate::engine) fn new(stream: S) -> Self {
        Self { stream, ahead: None, polled: false, over: false }
    }

    /// The next piece. Must always be called by the same task.
    pub(in crate::engine) async fn next(&mut self) -> Option<Result<Delta, ModelError>> {
        let mut piece = match self.ahead.take() {
            Some(next) => next,
            None => self.wait().await?,
        };
        let mut yielded = false;
        while piece.as_ref().is_ok_and(has_room) {
            match self.at_hand().await {
                Poll::Ready(Some(next)) => {
                    yielded = false;
                    match join(piece, next) {
                        (joined, None) => piece = joined,
                        (before, ahead) => {
                            self.ahead = ahead;
                            return Some(before);
                        }
                    }
                }
                Poll::Ready(None) => {
                    self.over = true;
                    break;
                }
                // A connection hands over one piece at a time, so it gets to hand over the next.
                Poll::Pending if !yielded => {
                    yielded = true;
                    tokio::task::yield_now().await;
                }
                Poll::Pending => break,
            }
        }
        Some(piece)
    }

    /// Waits for the next piece.
    async fn wait(&mut self) -> Option<Result<Delta, ModelError>> {
        if self.over {
            return None;
        }
        let mut polled = std::mem::take(&mut self.polled);
        let stream = &mut self.stream;
        let next = poll_fn(|cx| match std::mem::take(&mut polled) {
            true => Poll::Pending,
            false => stream.poll_next_unpin(cx),
        });
        next.await
    }

    /// Polls the stream once.
    async fn at_hand(&mut self) -> Poll<Option<S::Item>> {
        let next = poll_fn(|cx| Poll::Ready(self.stream.poll_next_unpin(cx))).await;
        self.polled = next.is_pending();
        next
    }
}

/// True if more text may be joined to a piece.
fn has_room(delta: &Delta) -> bool {
    match delta {
        Delta::Text { text }
        | Delta::Reasoning { text }
        | Delta::ToolCallArguments { fragment: text, .. } => text.len() < JOINED_BYTES,
        Delta::ReasoningEnd { .. }
        | Delta::TextEnd { .. }
        | Delta::ToolCallStart { .. }
        | Delta::ToolCallState { .. }
        | Delta::Opaque(_)
        | Delta::Usage(_)
        | Delta::Finish { .. } => false,
    }
}

type Piece = Result<Delta, ModelError>;

/// Joins two pieces of the same kind. Returns the second one if they differ.
fn join(mut before: Piece, next: Piece) -> (Piece, Option<Piece>) {
    let place = match (&mut before, &next) {
        (Ok(Delta::Text { text }), Ok(Delta::Text { text: more }))
        | (Ok(Delta::Reasoning { text }), Ok(Delta::Reasoning { text: more })) => Some((text, more)),
        (
            Ok(Delta::ToolCallArguments { index, fragment }),
            Ok(Delta::ToolCallArguments { index: same, fragment: more }),
        ) if index == same => Some((fragment, more)),
        _ => None,
    };
    let Some((text, more)) = place else { return (before, Some(next)) };
    text.push_str(more);
    (before, None)
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Wake, Waker};
    use std::time::Duration;

    use futures_util::stream;
    use tokio::sync::mpsc;

    use super::*;
    use crate::model::ModelErrorKind;

    fn text(text: &str) -> Delta {
        Delta::Text { text: text.to_owned() }
    }

    fn arguments(index: u32, fragment: &str) -> Delta {
        Delta::ToolCallArguments { index, fragment: fragment.to_owned() }
    }

    async fn all(deltas: Vec<Piece>) -> Vec<Piece> {
        let mut joined = DeltaCoalescer::new(stream::iter(deltas));
        let mut pieces = Vec::new();
        while let Some(piece) = joined.next().await {
            pieces.push(piece);
        }
        assert_eq!(joined.next().await, None);
        pieces
    }

    #[tokio::test]
    async fn what_is_of_one_kind_is_one_piece() {
        let thought = |text: &str| Delta::Reasoning { text: text.to_owned() };
        let start = Delta::ToolCallStart { index: 0, provider_id: None, name: "f".to_owned() };
        let broken = ModelError::new(ModelErrorKind::Connection, "gone");
        let deltas = [thought("a"), thought("b"), text("c"), text("d"), start.clone(), start.clone()];
        let more = [arguments(0, "{"), arguments(0, "}"), arguments(1, "{"), text("e")];
        let given = deltas.into_iter().chain(more).map(Ok).chain([Err(broken.clone())]).collect();
        let expected = [
            Ok(thought("ab")),
            Ok(text("cd")),
            Ok(start.clone()),
            Ok(start),
            Ok(arguments(0, "{}")),
            Ok(arguments(1, "{")),
            Ok(text("e")),
            Err(broken),
        ];
        assert_eq!(all(given).await, expected);
        assert_eq!(all(Vec::new()).await, []);
    }

    #[tokio::test]
    async fn a_piece_grows_to_its_bound() {
        let half = "x".repeat(JOINED_BYTES / 2);
        let pieces = all(vec![Ok(text(&half)); 5]).await;
        let sizes: Vec<usize> = pieces.into_iter().map(|piece| piece.unwrap().size()).collect();
        assert_eq!(sizes, [JOINED_BYTES, JOINED_BYTES, JOINED_BYTES / 2]);
    }

    /// A stream that gets its pieces one by one, as from a connection with room for one.
    fn fed() -> (mpsc::Sender<Piece>, impl Stream<Item = Piece> + Unpin) {
        let (sender, receiver) = mpsc::channel(1);
        (sender, tokio_stream::wrappers::ReceiverStream::new(receiver))
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_connection_hands_over_one_by_one_is_one_piece() {
        let (sender, stream) = fed();
        let feed = async move {
            for part in ["a", "b", "c", "d"] {
                sender.send(Ok(text(part))).await.unwrap();
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            sender.send(Ok(text("e"))).await.unwrap();
        };
        let read = async move {
            let mut joined = DeltaCoalescer::new(stream);
            assert_eq!(joined.next().await, Some(Ok(text("abcd"))));
            assert_eq!(joined.next().await, Some(Ok(text("e"))));
            assert_eq!(joined.next().await, None);
        };
        tokio::join!(biased; feed, read);
    }

    #[derive(Default)]
    struct Wakeup(AtomicBool);

    impl Wake for Wakeup {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn pieces_that_come_slowly_are_shown_as_they_come() {
        let (sender, stream) = fed();
        let shown = Arc::new(Mutex::new(Vec::new()));
        let show = Arc::clone(&shown);
        let mut reader = Box::pin(async move {
            let mut joined = DeltaCoalescer::new(stream);
            while let Some(piece) = joined.next().await {
                show.lock().push(piece.unwrap());
            }
        });
        let woken = Arc::new(Wakeup::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut poll = || reader.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(poll().is_pending());
        for round in 1..=3 {
            woken.0.store(false, Ordering::SeqCst);
            sender.try_send(Ok(text(&round.to_string()))).unwrap();
            assert!(woken.0.load(Ordering::SeqCst), "it is told of the next piece");
            assert!(poll().is_pending());
            assert_eq!(shown.lock().len(), round - 1, "the connection may hand over more");
            tokio::task::yield_now().await;
            assert!(poll().is_pending());
            assert_eq!(shown.lock().last(), Some(&text(&round.to_string())));
        }
        drop(sender);
        assert!(poll().is_ready());
    }
}
