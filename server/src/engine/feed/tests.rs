use agentloop_core::id::{EntryNo, RunKey};
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
        let feed = feeds.of(&RunKey::new(owner.tenant.clone(), owner.run.clone()), &owner.session, 16);
        let bed = Self { store, feeds, owner, feed };
        bed.publish(Seq(0)).await;
        bed
    }

    fn key(&self) -> RunKey {
        RunKey::new(self.owner.tenant.clone(), self.owner.run.clone())
    }

    /// Publishes what is stored after this.
    async fn publish(&self, after: Seq) {
        let stored = self.owner.stored().await.into_iter().filter(|record| record.seq > after);
        self.feed.publish(&stored.map(Arc::new).collect::<Vec<_>>());
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
        self.hears(after).filter_map(|shown| async move {
            match shown.unwrap() {
                FeedItem::Durable(record) => Some(record.seq),
                FeedItem::Transient(_) => None,
            }
        })
    }

    fn hears(&self, after: u64) -> impl Stream<Item = Result<FeedItem, EngineError>> + use<> {
        let sources = Sources {
            store: self.store.clone(),
            clock: Arc::new(TestClock::default()),
            stall: Millis(1_000),
            stop: CancellationToken::new(),
            slow: Arc::default(),
        };
        let feed = self.feeds.of(&self.key(), &self.owner.session, 16);
        subscribe(feed, sources, self.key(), Seq(after), false)
    }

    /// The session is deleted, as the engine does it.
    async fn is_deleted(&self) {
        assert!(self.store.delete_session(&self.owner.tenant, &self.owner.session).await.unwrap());
        self.feeds.forget(&self.owner.tenant, &self.owner.session);
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

fn is_gone(shown: Option<Result<FeedItem, EngineError>>) -> bool {
    matches!(shown, Some(Err(EngineError::RunNotFound)))
}

#[tokio::test]
async fn who_listens_to_a_run_that_is_deleted_hears_so_wherever_they_are() {
    let mut bed = Bed::new().await;
    let mut waits = Box::pin(bed.hears(1));
    assert!(futures_util::poll!(waits.next()).is_pending());
    let mut reads = Box::pin(bed.hears(0));
    assert!(matches!(reads.next().await, Some(Ok(FeedItem::Durable(_)))));
    let mut begins = Box::pin(bed.hears(0));
    // More than is at hand: who reads it is in the middle of the journal then.
    for _ in 0..2 {
        bed.says(600_000).await;
    }
    let mut is_behind = Box::pin(bed.hears(0));
    assert!(matches!(is_behind.next().await, Some(Ok(FeedItem::Durable(_)))));
    bed.tells(finished()).await;
    bed.is_deleted().await;
    while let Some(Ok(FeedItem::Durable(record))) = is_behind.next().await {
        assert!(record.seq < Seq(4), "what was not read yet is not there any more");
    }
    for listener in [&mut waits, &mut reads, &mut begins] {
        assert!(is_gone(listener.next().await));
        assert!(listener.next().await.is_none());
    }
}

#[tokio::test]
async fn a_run_by_the_id_of_a_deleted_one_has_a_feed_of_its_own() {
    let mut bed = Bed::new().await;
    let mut old = Box::pin(bed.hears(0));
    assert!(matches!(old.next().await, Some(Ok(FeedItem::Durable(_)))));
    bed.tells(finished()).await;
    bed.is_deleted().await;
    assert!(bed.feeds.standing(&bed.key()).is_none());
    // Somebody who comes late finds neither the run nor another one's events.
    assert!(is_gone(Box::pin(bed.hears(2)).next().await));
    for session in ["s", "other"] {
        let mut new = Bed { owner: Owner::started(&bed.store, session, "r").await, ..bed };
        new.feed = new.feeds.of(&new.key(), &new.owner.session, 16);
        new.publish(Seq(0)).await;
        let mut listener = Box::pin(new.listens(0));
        new.tells(plain(1)).await;
        new.tells(finished()).await;
        assert_eq!(next(&mut listener, 9).await, [1, 2, 3]);
        assert_eq!(new.feeds.standing(&new.key()).unwrap().1.session, new.owner.session);
        new.is_deleted().await;
        bed = new;
    }
    assert!(is_gone(old.next().await));
}
