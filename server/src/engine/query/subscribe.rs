//! Subscriptions to the events of a run.

use agentloop_core::id::{RunId, RunKey, Seq, SessionId, TenantId};
use futures_util::Stream;

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::feed::{self, CallerGuard, Feed, FeedHead, FeedItem, SubscriptionDeps};

/// The result of [`Engine::subscribe`].
pub struct Subscription<S> {
    /// The session that the run belongs to.
    pub session: SessionId,
    /// The stream of events.
    pub events: S,
    /// The run's feed. It tells whether the run was deleted.
    pub feed: Feed,
    /// True if the run had ended when the subscription began: all events are then from its journal.
    pub has_ended: bool,
}

impl Engine {
    /// The events of a run after `after`, to its end. Each durable event comes exactly once and in order, also those
    /// that happen later; work in progress is shown between them.
    ///
    /// # Errors
    /// [`EngineError::RunNotFound`], [`EngineError::SeqAhead`], or the store's.
    pub async fn subscribe(
        &self,
        tenant: &TenantId,
        run: &RunId,
        after: Seq,
    ) -> Result<Subscription<impl Stream<Item = Result<FeedItem, EngineError>> + Send + 'static>, EngineError>
    {
        let caller = self.deps().callers.enter(RunKey::new(tenant.clone(), run.clone()));
        self.subscribe_as(Some(caller), tenant, run, after).await
    }

    /// As [`Self::subscribe`], for those who are no caller of the run: one that is to end with its caller does.
    ///
    /// # Errors
    /// As [`Self::subscribe`].
    pub(in crate::engine) async fn observe(
        &self,
        tenant: &TenantId,
        run: &RunId,
        after: Seq,
    ) -> Result<Subscription<impl Stream<Item = Result<FeedItem, EngineError>> + Send + 'static>, EngineError>
    {
        self.subscribe_as(None, tenant, run, after).await
    }

    async fn subscribe_as(
        &self,
        caller: Option<CallerGuard>,
        tenant: &TenantId,
        run: &RunId,
        after: Seq,
    ) -> Result<Subscription<impl Stream<Item = Result<FeedItem, EngineError>> + Send + 'static>, EngineError>
    {
        let key = RunKey::new(tenant.clone(), run.clone());
        let deps = self.deps();
        // Events are published a moment after they are durable. If the feed is behind `after`, the store decides.
        let head = deps.feeds.head(&key).filter(|(_, head)| after <= head.last.seq);
        let (feed, session, last, has_ended) = match head {
            Some((feed, FeedHead { session, last })) => (feed, session, last.seq, last.status.is_terminal()),
            None => {
                let row = self.store().run(tenant, run).await?.ok_or(EngineError::RunNotFound)?;
                let feed = deps.feeds.get_or_create(&key, &row.session, deps.options.subscriber_buffer);
                (feed, row.session, row.last_seq, row.summary.status.is_terminal())
            }
        };
        let stop = self.follow_shard(tenant, &session)?;
        if after > last {
            return Err(EngineError::SeqAhead { last });
        }
        let subscription_deps = SubscriptionDeps {
            store: deps.store.clone(),
            clock: deps.clock.clone(),
            stall: deps.options.subscriber_stall,
            stop,
            shutdown: deps.tasks.soft().clone(),
            slow: deps.watchers.slow_subscribers.clone(),
            _caller: caller,
        };
        let is_complete = has_ended && after == last;
        let events = feed::subscribe(feed.clone(), subscription_deps, key, after, is_complete);
        Ok(Subscription { session, events, feed, has_ended })
    }
}
