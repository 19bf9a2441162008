use agentloop_core::id::EntryNo;
use agentloop_core::run::status::RunStatus;
use futures_util::StreamExt as _;

use super::*;
use crate::clock::TestClock;
use crate::store::conformance::fixture::{Owner, finished, input, plain};
use crate::store::sqlite::SqliteStore;

/// A run whose owner writes and publishes by hand.
struct Bed {
    store: Arc<dyn Store>,
    feeds: Feeds,
    owner: Owner,
    /// The owner's end of the feed.
    feed: Feed,
}

impl Bed {
    async fn new() -> Self {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().await.unwrap());
        let owner = Owner::started(&store, "s", "r").await;
        let feeds = Feeds::default();
        let feed = feeds.of(&(owner.tenant.clone(), owner.run.clone()), 16);
        let bed = Self { store, feeds, owner, feed };
        bed.publish(Seq(0)).await;
        bed
    }

    fn key(&self) -> RunKey {
        (self.owner.tenant.clone(), self.owner.run.clone())
    }

    /// Publishes what is stored after this.
    async fn publish(&self, after: Seq) {
        let stored = self.owner.stored().await.into_iter().filter(|record| record.seq > after);
        self.feed.publish(&self.owner.session, &stored.map(Arc::new).collect::<Vec<_>>());
    }

    /// Writes an event, its answer lost: nobody publishes it.
    async fn loses(&mut self, event: Event) {
        self.owner.tell(RunStatus::ModelRunning, vec![event]).await.unwrap();
    }

    async fn tells(&mut self, event: Event) {
        let after = self.owner.seq;
        self.loses(event).await;
        self.publish(after).await;
    }

    async fn says(&mut self, bytes: usize) {
        let event = input(EntryNo(self.owner.entry.0 + 1), &"x".repeat(bytes));
        self.tells(event).await;
    }

    fn listens(&self, after: u64) -> impl Stream<Item = Seq> + use<> {
        let sources = Sources {
            store: self.store.clone(),
            clock: Arc::new(TestClock::default()),
            stall: Millis(1_000),
            stop: CancellationToken::new(),
            slow: Arc::default(),
        };
        let events = subscribe(self.feeds.of(&self.key(), 16), sources, self.key(), Seq(after), false);
        events.filter_map(|shown| async move {
            match shown.unwrap() {
                Shown::Durable(record) => Some(record.seq),
                Shown::Transient(_) => None,
            }
        })
    }
}

async fn next(listener: &mut (impl Stream<Item = Seq> + Unpin), events: usize) -> Vec<u64> {
    listener.take(events).map(|Seq(seq)| seq).collect().await
}

#[tokio::test]
async fn large_events_are_not_held_and_all_are_seen() {
    let mut bed = Bed::new().await;
    let mut fast = Box::pin(bed.listens(0));
    let idle = Box::pin(bed.listens(0));
    assert_eq!(next(&mut fast, 1).await, [1]);
    for seq in 2..=9 {
        bed.says(200_000 * (seq % 2 + 1)).await;
        assert_eq!(next(&mut fast, 1).await, [seq as u64]);
        assert_eq!(bed.feed.recent().records.back().unwrap().record.seq.0, seq as u64);
    }
    let recent: Vec<u64> = bed.feed.recent().records.iter().map(|recent| recent.record.seq.0).collect();
    assert_eq!(recent, [9], "the last, although it is too large");
    bed.says(10).await;
    bed.says(3_000_000).await;
    bed.says(10).await;
    assert!(bed.feed.recent().bytes < RECENT_BYTES_MAX);
    assert_eq!(next(&mut fast, 3).await, [10, 11, 12]);
    bed.tells(finished()).await;
    assert_eq!(idle.map(|Seq(seq)| seq).collect::<Vec<_>>().await, (1..=13).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_was_written_without_being_published_is_seen_in_its_place() {
    let mut bed = Bed::new().await;
    let mut live = Box::pin(bed.listens(0));
    let mut behind = Box::pin(bed.listens(0));
    bed.tells(plain(1)).await;
    assert_eq!(next(&mut live, 2).await, [1, 2]);
    bed.loses(plain(2)).await;
    bed.tells(plain(3)).await;
    assert_eq!(next(&mut live, 2).await, [3, 4]);
    assert_eq!(next(&mut behind, 4).await, [1, 2, 3, 4]);
    assert_eq!(next(&mut Box::pin(bed.listens(1)), 3).await, [2, 3, 4]);
}

#[tokio::test]
async fn an_end_that_nobody_published_reaches_who_listens() {
    let mut bed = Bed::new().await;
    let mut live = Box::pin(bed.listens(0));
    assert_eq!(next(&mut live, 1).await, [1]);
    bed.loses(plain(1)).await;
    bed.loses(finished()).await;
    let last = bed.owner.stored().await.pop().unwrap();
    bed.feeds.remind(&bed.key(), &bed.owner.session, &last);
    assert_eq!(live.map(|Seq(seq)| seq).collect::<Vec<_>>().await, [2, 3]);
}
