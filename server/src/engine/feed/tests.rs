//! A run's feed over a real store: catching up, gaps in what was published, deletion.

use std::collections::BTreeSet;

use agentloop_core::id::{Attempt, EntryNo, RunId, RunKey};
use agentloop_core::message::{FinishReason, Message, Role, Usage};
use agentloop_core::model::error::ModelErrorKind;
use agentloop_core::run::event::Observation;
use agentloop_core::run::status::{RunError, RunErrorCode, RunStatus};
use agentloop_core::time::Millis;
use agentloop_core::tool::Digest;
use futures_util::{Stream, StreamExt as _};
use tokio_util::sync::CancellationToken;

use super::subscription::ended_attempt;
use super::table::SWEEP_AT_LEAST;
use super::*;
use crate::clock::TestClock;
use crate::engine::error::EngineError;
use crate::engine::feed::Callers;
use crate::store::Store;
use crate::store::conformance::fixture::{Owner, finished, input, plain};
use crate::store::sqlite::SqliteStore;

/// A run whose events the test writes and publishes itself.
struct Fixture {
    store: Arc<dyn Store>,
    feeds: Feeds,
    owner: Owner,
    /// Keeps the feed alive, as the run's task does.
    feed: Feed,
}

impl Fixture {
    async fn new() -> Self {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().await.unwrap());
        let owner = Owner::started(&store, "s", "r").await;
        let feeds = Feeds::default();
        let feed =
            feeds.get_or_create(&RunKey::new(owner.tenant.clone(), owner.run.clone()), &owner.session, 16);
        let fixture = Self { store, feeds, owner, feed };
        fixture.publish(Seq(0)).await;
        fixture
    }

    fn key(&self) -> RunKey {
        RunKey::new(self.owner.tenant.clone(), self.owner.run.clone())
    }

    /// Publishes the stored events after this one.
    async fn publish(&self, after: Seq) {
        let stored = self.owner.stored().await.into_iter().filter(|record| record.seq > after);
        self.feed.publish(&stored.map(Arc::new).collect::<Vec<_>>());
    }

    /// Writes an event without publishing it, as if the store's answer was lost.
    async fn write_unpublished(&mut self, event: Event) {
        self.owner.tell(RunStatus::ModelRunning, vec![event]).await.unwrap();
    }

    async fn write(&mut self, event: Event) {
        let after = self.owner.seq;
        self.write_unpublished(event).await;
        self.publish(after).await;
    }

    async fn write_message(&mut self, bytes: usize) {
        let event = input(EntryNo(self.owner.entry.0 + 1), &"x".repeat(bytes));
        self.write(event).await;
    }

    fn seqs(&self, after: u64) -> impl Stream<Item = Seq> + use<> {
        self.items(after).filter_map(|shown| async move {
            match shown.unwrap() {
                FeedItem::Durable(record) => Some(record.seq),
                FeedItem::Transient(_) => None,
            }
        })
    }

    fn items(&self, after: u64) -> impl Stream<Item = Result<FeedItem, EngineError>> + use<> {
        let deps = SubscriptionDeps {
            store: self.store.clone(),
            clock: Arc::new(TestClock::default()),
            stall: Millis(1_000),
            stop: CancellationToken::new(),
            shutdown: CancellationToken::new(),
            slow: Arc::default(),
            _caller: Some(Callers::default().enter(self.key())),
        };
        let feed = self.feeds.get_or_create(&self.key(), &self.owner.session, 16);
        subscribe(feed, deps, self.key(), Seq(after), false)
    }

    /// Deletes the session as the engine does.
    async fn delete(&self) {
        assert!(self.store.delete_session(&self.owner.tenant, &self.owner.session).await.unwrap());
        self.feeds.close_session(&self.owner.tenant, &self.owner.session);
    }
}

async fn next(listener: &mut (impl Stream<Item = Seq> + Unpin), events: usize) -> Vec<u64> {
    listener.take(events).map(|Seq(seq)| seq).collect().await
}

#[tokio::test]
async fn large_events_are_not_held_and_all_are_seen() {
    let mut fixture = Fixture::new().await;
    let mut fast = Box::pin(fixture.seqs(0));
    let idle = Box::pin(fixture.seqs(0));
    assert_eq!(next(&mut fast, 1).await, [1]);
    for seq in 2..=9 {
        fixture.write_message(200_000 * (seq % 2 + 1)).await;
        assert_eq!(next(&mut fast, 1).await, [seq as u64]);
        assert_eq!(fixture.feed.0.recent.lock().records.back().unwrap().record.seq.0, seq as u64);
    }
    let recent: Vec<u64> =
        fixture.feed.0.recent.lock().records.iter().map(|recent| recent.record.seq.0).collect();
    assert_eq!(recent, [9], "the last, although it is too large");
    fixture.write_message(10).await;
    fixture.write_message(3_000_000).await;
    fixture.write_message(10).await;
    assert!(fixture.feed.0.recent.lock().bytes < RECENT_BYTES_MAX);
    assert_eq!(next(&mut fast, 3).await, [10, 11, 12]);
    fixture.write(finished()).await;
    assert_eq!(idle.map(|Seq(seq)| seq).collect::<Vec<_>>().await, (1..=13).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_was_written_without_being_published_is_seen_in_its_place() {
    let mut fixture = Fixture::new().await;
    let mut live = Box::pin(fixture.seqs(0));
    let mut behind = Box::pin(fixture.seqs(0));
    fixture.write(plain(1)).await;
    assert_eq!(next(&mut live, 2).await, [1, 2]);
    fixture.write_unpublished(plain(2)).await;
    fixture.write(plain(3)).await;
    assert_eq!(next(&mut live, 2).await, [3, 4]);
    assert_eq!(next(&mut behind, 4).await, [1, 2, 3, 4]);
    assert_eq!(next(&mut Box::pin(fixture.seqs(1)), 3).await, [2, 3, 4]);
}

#[tokio::test]
async fn the_events_of_a_run_that_has_ended_are_at_hand_if_all_were_published() {
    let seqs = |fixture: &Fixture| {
        let journal = fixture.feed.ended_journal()?;
        Some(journal.iter().map(|record| record.seq.0).collect::<Vec<_>>())
    };
    let mut fixture = Fixture::new().await;
    fixture.write(plain(1)).await;
    assert_eq!(seqs(&fixture), None, "the run goes on");
    fixture.write(finished()).await;
    assert_eq!(seqs(&fixture), Some(vec![1, 2, 3]));
    let mut fixture = Fixture::new().await;
    fixture.write_unpublished(plain(1)).await;
    fixture.write(finished()).await;
    assert_eq!(seqs(&fixture), None, "one was not published");
    let mut fixture = Fixture::new().await;
    fixture.write_message(RECENT_BYTES_MAX).await;
    fixture.write(finished()).await;
    assert_eq!(seqs(&fixture), None, "they are too large");
}

#[tokio::test]
async fn an_end_that_nobody_published_reaches_who_listens() {
    let mut fixture = Fixture::new().await;
    let mut live = Box::pin(fixture.seqs(0));
    assert_eq!(next(&mut live, 1).await, [1]);
    fixture.write_unpublished(plain(1)).await;
    fixture.write_unpublished(finished()).await;
    let last = fixture.owner.stored().await.pop().unwrap();
    fixture.feeds.publish_last(&fixture.key(), &fixture.owner.session, &last);
    assert_eq!(live.map(|Seq(seq)| seq).collect::<Vec<_>>().await, [2, 3]);
}

fn is_gone(shown: Option<Result<FeedItem, EngineError>>) -> bool {
    matches!(shown, Some(Err(EngineError::RunNotFound)))
}

#[tokio::test]
async fn who_listens_to_a_run_that_is_deleted_hears_so_wherever_they_are() {
    let mut fixture = Fixture::new().await;
    let mut waits = Box::pin(fixture.items(1));
    assert!(futures_util::poll!(waits.next()).is_pending());
    let mut reads = Box::pin(fixture.items(0));
    assert!(matches!(reads.next().await, Some(Ok(FeedItem::Durable(_)))));
    let mut begins = Box::pin(fixture.items(0));
    // More than is kept in memory, so the next subscriber is in the middle of the journal.
    for _ in 0..2 {
        fixture.write_message(600_000).await;
    }
    let mut is_behind = Box::pin(fixture.items(0));
    assert!(matches!(is_behind.next().await, Some(Ok(FeedItem::Durable(_)))));
    fixture.write(finished()).await;
    fixture.delete().await;
    while let Some(Ok(FeedItem::Durable(record))) = is_behind.next().await {
        assert!(record.seq < Seq(4), "events that were not read before the deletion are gone");
    }
    for listener in [&mut waits, &mut reads, &mut begins] {
        assert!(is_gone(listener.next().await));
        assert!(listener.next().await.is_none());
    }
}

#[tokio::test]
async fn a_run_by_the_id_of_a_deleted_one_has_a_feed_of_its_own() {
    let mut fixture = Fixture::new().await;
    let mut old = Box::pin(fixture.items(0));
    assert!(matches!(old.next().await, Some(Ok(FeedItem::Durable(_)))));
    fixture.write(finished()).await;
    fixture.delete().await;
    assert!(fixture.feeds.head(&fixture.key()).is_none());
    // A late subscriber of the old run finds neither the run nor the new run's events.
    assert!(is_gone(Box::pin(fixture.items(2)).next().await));
    for session in ["s", "other"] {
        let mut new = Fixture { owner: Owner::started(&fixture.store, session, "r").await, ..fixture };
        new.feed = new.feeds.get_or_create(&new.key(), &new.owner.session, 16);
        new.publish(Seq(0)).await;
        let mut listener = Box::pin(new.seqs(0));
        new.write(plain(1)).await;
        new.write(finished()).await;
        assert_eq!(next(&mut listener, 9).await, [1, 2, 3]);
        assert_eq!(new.feeds.head(&new.key()).unwrap().1.session, new.owner.session);
        new.delete().await;
        fixture = new;
    }
    assert!(is_gone(old.next().await));
}

#[tokio::test]
async fn a_deletion_closes_the_feeds_of_its_session_alone() {
    let mut f = Fixture::new().await;
    f.owner.ends().await.unwrap();
    let tenant = f.owner.tenant.clone();
    let named = |run: &str| RunKey::new(tenant.clone(), RunId::parse(run).unwrap());
    let other = SessionId::parse("other").unwrap();
    // Enough feeds that come and go for several sweeps.
    for at in 0..4 * SWEEP_AT_LEAST {
        f.feeds.get_or_create(&named(&format!("gone-{at}")), &f.owner.session, 16);
    }
    let kept = f.feeds.get_or_create(&named("kept"), &other, 16);
    // The id of a run of a deleted session is used again.
    let before = f.feeds.get_or_create(&named("moved"), &f.owner.session, 16);
    let moved = f.feeds.get_or_create(&named("moved"), &other, 16);
    let entries = f.feeds.table().by_session.values().map(BTreeSet::len).sum::<usize>();
    assert!(entries < 3 * SWEEP_AT_LEAST, "{entries} entries are left of feeds that are gone");

    f.delete().await;
    assert!(f.feeds.get(&f.key()).is_none());
    for (run, feed) in [("kept", &kept), ("moved", &moved)] {
        assert!(f.feeds.get(&named(run)).is_some_and(|found| Arc::ptr_eq(&found.0, &feed.0)), "{run}");
    }
    drop(before);
    f.feeds.close_session(&tenant, &other);
    assert!(f.feeds.get(&named("kept")).is_none() && f.feeds.get(&named("moved")).is_none());
}

/// The answer of a model call, or its failure.
fn model_call_ends(fails: bool, entry: u64) -> Event {
    if fails {
        let error = RunError::new(RunErrorCode::Model(ModelErrorKind::Connection), "cut off");
        return Event::ModelCallFailed { model_call: 1, attempt: Attempt(1), error, retry_at: None };
    }
    Event::AssistantMessage {
        model_call: 1,
        attempt: Attempt(1),
        entry: EntryNo(entry),
        message: Arc::new(Message::text(Role::Assistant, "all of it")),
        finish: FinishReason::Stop,
        usage: Usage::default(),
        first_token: Millis(1),
        duration: Millis(2),
        tools: Digest::of(&[]),
        decision: Observation::Stop,
        full: None,
    }
}

/// Neither a subscriber that joins nor one that fell behind is shown pieces of an answer after its end.
#[tokio::test]
async fn pieces_of_an_answer_are_not_shown_after_its_end() {
    for fails in [true, false] {
        let mut fixture = Fixture::new().await;
        let (call, at) = (ModelAttempt { model_call: 1, attempt: Attempt(1) }, Timestamp(1));
        let mut joined = Box::pin(fixture.items(0));
        assert!(matches!(joined.next().await, Some(Ok(FeedItem::Durable(_)))), "it follows the feed");
        fixture.feed.begin_response(call, Digest::of(&[]), at);
        // More than the ring keeps, so that this subscriber reads the end of the call from the journal first.
        for _ in 0..20 {
            fixture.feed.push_delta(at, Delta::Text { text: "piece ".to_owned() }).unwrap();
        }
        fixture.feed.drop_response();
        let entry = fixture.owner.entry.0 + 1;
        fixture.write(model_call_ends(fails, entry)).await;
        fixture.feed.begin_response(ModelAttempt { attempt: Attempt(2), ..call }, Digest::of(&[]), at);
        fixture.feed.push_delta(at, Delta::Text { text: "anew".to_owned() }).unwrap();
        fixture.feed.drop_response();
        fixture.write(finished()).await;
        let mut is_over = false;
        while let Some(item) = joined.next().await {
            match item.unwrap() {
                FeedItem::Durable(record) => is_over |= ended_attempt(&record.event) == Some(call),
                FeedItem::Transient(transient) => match &transient.what {
                    LiveProgress::Delta { call: of, .. } | LiveProgress::Partial { call: of, .. } => {
                        assert!(!is_over || *of != call, "{:?} after the end", transient.what);
                    }
                    LiveProgress::Call { .. } | LiveProgress::Output { .. } => {}
                },
            }
        }
        assert!(is_over, "the end was shown");
    }
}

/// A subscriber that joins as an answer ends has missed the first pieces, and there is no snapshot of them any more.
#[tokio::test]
async fn the_last_pieces_alone_are_not_shown() {
    let mut fixture = Fixture::new().await;
    let (call, at) = (ModelAttempt { model_call: 1, attempt: Attempt(1) }, Timestamp(1));
    fixture.feed.begin_response(call, Digest::of(&[]), at);
    fixture.feed.push_delta(at, Delta::Reasoning { text: "hm".to_owned() }).unwrap();
    let late = fixture.items(0);
    fixture.feed.push_delta(at, Delta::Text { text: "all of it".to_owned() }).unwrap();
    fixture.feed.push_delta(at, Delta::Finish { reason: FinishReason::Stop }).unwrap();
    fixture.feed.complete_response().unwrap();
    let mut late = Box::pin(late);
    assert!(matches!(late.next().await, Some(Ok(FeedItem::Durable(_)))), "it follows the feed");
    let entry = fixture.owner.entry.0 + 1;
    fixture.write(model_call_ends(false, entry)).await;
    let Some(Ok(FeedItem::Durable(record))) = late.next().await else {
        panic!("the finished message is shown, and nothing before it");
    };
    assert_eq!(ended_attempt(&record.event), Some(call));
    // The next answer is shown from its first piece on.
    fixture.feed.begin_response(ModelAttempt { model_call: 2, attempt: Attempt(1) }, Digest::of(&[]), at);
    fixture.feed.push_delta(at, Delta::Text { text: "more".to_owned() }).unwrap();
    let Some(Ok(FeedItem::Transient(piece))) = late.next().await else { panic!("the piece is shown") };
    assert!(matches!(piece.what, LiveProgress::Delta { delta_seq: 1, .. }), "{:?}", piece.what);
}
