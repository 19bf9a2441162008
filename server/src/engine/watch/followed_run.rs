//! The runs whose events a subscriber of a session gets, and the order of their events.

use std::pin::Pin;
use std::task::Poll;

use agentloop_core::id::{RunId, Seq};
use futures_util::Stream;

use crate::engine::error::EngineError;
use crate::engine::feed::FeedItem;

type Events = Pin<Box<dyn Stream<Item = Result<FeedItem, EngineError>> + Send>>;

/// A run whose events are told.
pub(super) struct FollowedRun {
    pub(super) run: RunId,
    /// The last event that was told.
    pub(super) seq: Seq,
    /// The last event that was durable at the begin.
    pub(super) target: Seq,
    /// True once an event was told after which the run does not wait for its session.
    pub(super) has_entered: bool,
    /// The next item, if it came before those of other runs that are to be told first.
    pub(super) next: Option<FeedItem>,
    pub(super) events: Events,
}

/// The next event of any run, and the place of that run: the earliest one. Of events of the same time, those of the run that has
/// entered the session come first, so that its end comes before the start of the next run. Then those of older runs come first.
pub(super) async fn next_event(runs: &mut [FollowedRun]) -> (usize, Option<Result<FeedItem, EngineError>>) {
    std::future::poll_fn(|context| {
        let mut may_be_earlier = false;
        for (at, run) in runs.iter_mut().enumerate().filter(|(_, run)| run.next.is_none()) {
            match run.events.as_mut().poll_next(context) {
                Poll::Ready(Some(Ok(item))) => run.next = Some(item),
                Poll::Ready(end_or_error) => return Poll::Ready((at, end_or_error)),
                // Something durable is still to come from the store.
                Poll::Pending => may_be_earlier |= run.seq < run.target,
            }
        }
        if may_be_earlier {
            return Poll::Pending;
        }
        let order = |(at, run): (usize, &FollowedRun)| Some((run.next.as_ref()?.at(), !run.has_entered, at));
        let Some((.., at)) = runs.iter().enumerate().filter_map(order).min() else { return Poll::Pending };
        Poll::Ready((at, runs[at].next.take().map(Ok)))
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agentloop_core::id::EntryNo;
    use agentloop_core::run::event::{Event, Record};
    use agentloop_core::run::status::RunStatus;
    use agentloop_core::time::Timestamp;
    use futures_util::StreamExt as _;
    use futures_util::stream;

    use super::*;

    /// A run whose events have these times. Each comes only when it was waited for.
    fn run(id: &str, status: RunStatus, times: &'static [u64]) -> FollowedRun {
        let record = move |(seq, at): (u64, &u64)| Record {
            seq: Seq(seq),
            at: Timestamp(*at),
            status,
            event: Event::MessageEntered { entry: EntryNo(seq), held: Seq(1) },
        };
        let items = (1..).zip(times).map(move |numbered| Ok(FeedItem::durable(Arc::new(record(numbered)))));
        let slow = stream::iter(items).then(|item| async move {
            tokio::task::yield_now().await;
            item
        });
        FollowedRun {
            run: RunId::parse(id).unwrap(),
            seq: Seq(0),
            target: Seq(times.len() as u64),
            has_entered: status != RunStatus::Queued,
            next: None,
            events: Box::pin(slow.chain(stream::pending())),
        }
    }

    async fn sent_by(mut runs: Vec<FollowedRun>) -> Vec<String> {
        let mut sent = Vec::new();
        while runs.iter().any(|run| run.seq < run.target) {
            let (at, event) = next_event(&mut runs).await;
            let Some(Ok(FeedItem::Durable(record))) = event else { panic!("only events") };
            runs[at].seq = record.seq;
            sent.push(format!("{} {}", runs[at].run, record.at.0));
        }
        sent
    }

    #[tokio::test]
    async fn runs_that_followed_one_another_are_told_in_that_order() {
        let (live, queued) = (RunStatus::ModelRunning, RunStatus::Queued);
        let mut quick = run("b", live, &[4, 5]);
        quick.events = Box::pin(stream::iter(quick.events.by_ref().take(2).collect::<Vec<_>>().await));
        let runs = vec![run("a", live, &[1, 2, 3]), quick];
        assert_eq!(
            sent_by(runs).await,
            ["a 1", "a 2", "a 3", "b 4", "b 5"],
            "although the second is read faster"
        );
        let runs = vec![run("a", queued, &[2, 8]), run("b", live, &[3, 7])];
        assert_eq!(sent_by(runs).await, ["a 2", "b 3", "b 7", "a 8"], "the newer one was let in first");
        let runs = vec![run("a", queued, &[1, 5]), run("b", live, &[5, 5])];
        assert_eq!(sent_by(runs).await, ["a 1", "b 5", "b 5", "a 5"], "an end comes before a begin");
    }

    #[tokio::test]
    async fn a_run_that_has_nothing_to_tell_delays_no_other() {
        let mut idle = run("a", RunStatus::AwaitingHuman, &[]);
        idle.seq = Seq(7);
        idle.target = Seq(7);
        assert_eq!(sent_by(vec![idle, run("b", RunStatus::Queued, &[1, 2])]).await, ["b 1", "b 2"]);
    }
}
