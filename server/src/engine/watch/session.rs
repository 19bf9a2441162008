//! Everything that happens in one session: the events of its runs, and its own row.
//!
//! **Invariant:** of each run that was open when the subscription began, or came after it, every durable event is told once.
//! The token names the last event of each open run and the last run that is known, so nothing is kept for a client that is
//! gone.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use agentloop_core::id::{EntryNo, RunId, Seq, SessionId, TenantId};
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;
use futures_util::Stream;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::feed::FeedItem;
use crate::engine::watch::followed_run::{FollowedRun, next_event};
use crate::engine::watch::session_position::{SessionPosition, digest_of};
use crate::engine::watch::session_watchers::{Entered, SessionSignal};
use crate::store::{SESSION_RUNS_MAX, SessionRow, SessionRuns, Store};

/// One thing that happened in a session.
#[derive(Debug, Clone)]
pub enum SessionItem {
    /// An event of one of its runs.
    Event {
        /// Id of the run that the event is of.
        run: RunId,
        /// An event of the run, durable or in progress.
        event: FeedItem,
    },
    /// The session as it is now.
    Session(Box<SessionRow>),
    /// Everything that was durable at the begin has been told.
    Synced {
        /// The session's last entry at that moment.
        last_entry: EntryNo,
        /// The runs that were open at that moment, the oldest first.
        open: Vec<RunId>,
    },
    /// The session was deleted. Nothing follows.
    Deleted,
}

/// An item, and the token that continues after it.
#[derive(Debug, Clone)]
pub struct SessionStreamItem {
    /// The next item of the subscription.
    pub item: SessionItem,
    /// Continues the subscription. Opaque to clients. Empty for work in progress, after which the last one counts.
    pub token: String,
}

impl Engine {
    /// Follows a session: the events of its open runs, then of every run that comes. `token` is that of an earlier
    /// subscription, or empty. The stream ends after [`SessionItem::Deleted`], or with an error. A subscriber is no caller of
    /// the session's runs: a run that is to end with its caller does.
    ///
    /// # Errors
    /// [`EngineError::SessionNotFound`], [`EngineError::BadResumeToken`], or the store's. If the session is another replica's, that is
    /// [`Elsewhere`](crate::store::StoreError::Elsewhere), with which the stream also ends when it is given away.
    pub async fn follow_session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        token: &str,
    ) -> Result<impl Stream<Item = Result<SessionStreamItem, EngineError>> + Send + 'static, EngineError>
    {
        let position = if token.is_empty() {
            None
        } else {
            Some(
                SessionPosition::parse(token, &digest_of(tenant, session))
                    .ok_or(EngineError::BadResumeToken)?,
            )
        };
        let subscription = SessionSubscription::open(self.clone(), tenant, session, position).await?;
        Ok(futures_util::stream::unfold(subscription, |mut subscription| async move {
            let update = subscription.next().await?;
            if update.is_err() {
                subscription.is_over = true;
            }
            Some((update, subscription))
        }))
    }

    /// Tells those who follow a session that its row has changed.
    pub fn session_changed(&self, tenant: &TenantId, session: &SessionId) {
        self.deps().watchers.sessions.changed(tenant, session, SessionSignal::Row);
    }
}

struct SessionSubscription {
    engine: Engine,
    tenant: TenantId,
    session: SessionId,
    /// Names the session in tokens.
    digest: String,
    entered: Entered,
    /// Cancelled when the session is given away, and when the server shuts down.
    stop: CancellationToken,
    created_at: Timestamp,
    /// Number of the last run that is followed or known to have ended.
    last_no: u64,
    /// True if there may be runs after that one. They are followed when the events of these have been told, so that neither a token
    /// nor memory grows with the runs that a subscriber has missed.
    has_more: bool,
    /// The runs that have not ended, the oldest first.
    runs: Vec<FollowedRun>,
    /// Items to tell next.
    ready: VecDeque<SessionItem>,
    /// The row that was told last.
    sent_row: SessionRow,
    /// To be told when every run has reached its target.
    synced: Option<SessionItem>,
    is_over: bool,
}

impl SessionSubscription {
    async fn open(
        engine: Engine,
        tenant: &TenantId,
        session: &SessionId,
        position: Option<SessionPosition>,
    ) -> Result<Self, EngineError> {
        let stop = engine.follow_shard(tenant, session)?;
        // From here on nothing is missed: what happens next is found by the queries below or told as a change.
        let entered = engine.deps().watchers.sessions.enter(tenant, session);
        let store = engine.store().clone();
        let read = || existing_row(&*store, tenant, session);
        let known = match position {
            Some(position) => position,
            None => first_position(&*store, tenant, session).await?,
        };
        // The row is read after the runs above: an entry that it does not have yet is of one of them, or of a later run. And it
        // is read before the runs below, whose last events are therefore not older than its entries.
        let row = read().await?;
        let mut subscription = Self {
            engine,
            tenant: tenant.clone(),
            session: session.clone(),
            digest: digest_of(tenant, session),
            entered,
            stop,
            created_at: known.created_at,
            last_no: known.last_no,
            has_more: false,
            runs: Vec::new(),
            ready: VecDeque::new(),
            sent_row: row.clone(),
            synced: None,
            is_over: false,
        };
        if row.created_at != known.created_at {
            subscription.ready.push_back(SessionItem::Deleted);
            return Ok(subscription);
        }
        for (run, seq) in known.runs {
            subscription.follow_from(run, seq).await?;
        }
        let (open, last_no) = subscription.follow_new().await?;
        if last_no < known.last_no {
            // Unless the session has gone just now, the database is a copy that is older than the token. Runs to come would have
            // numbers that the token calls known, and would not be told.
            read().await?;
            return Err(EngineError::BadResumeToken);
        }
        subscription.ready.push_back(SessionItem::Session(Box::new(row.clone())));
        subscription.synced = Some(SessionItem::Synced { last_entry: row.last_entry, open });
        Ok(subscription)
    }

    /// Follows a run of a token, from its event there.
    async fn follow_from(&mut self, run: RunId, seq: Seq) -> Result<(), EngineError> {
        let row = self.engine.store().run(&self.tenant, &run).await?;
        let of_session = row.filter(|row| row.session == self.session);
        let target = of_session.ok_or(EngineError::BadResumeToken)?.last_seq;
        if seq > target {
            return Err(EngineError::BadResumeToken);
        }
        self.follow(run, seq, target).await
    }

    /// Follows the runs that are not known yet, some at a time. Returns the open ones of all, and the number of the session's last
    /// run.
    async fn follow_new(&mut self) -> Result<(Vec<RunId>, u64), EngineError> {
        let store = self.engine.store().clone();
        let SessionRuns { last_no, runs } =
            store.session_runs(&self.tenant, &self.session, Some(self.last_no)).await?;
        let (mut open, mut followed) = (Vec::new(), 0);
        for (no, row) in runs {
            if no > self.last_no && followed < SESSION_RUNS_MAX {
                self.follow(row.run.clone(), Seq(0), row.last_seq).await?;
                self.last_no = no;
                followed += 1;
            }
            if !row.summary.status.is_terminal() {
                open.push(row.run);
            }
        }
        self.has_more = last_no > self.last_no && followed == SESSION_RUNS_MAX;
        if !self.has_more {
            self.last_no = self.last_no.max(last_no);
        }
        Ok((open, last_no))
    }

    async fn follow(&mut self, run: RunId, seq: Seq, target: Seq) -> Result<(), EngineError> {
        let events = self.engine.observe(&self.tenant, &run, seq).await?.events;
        let (has_entered, events) = (false, Box::pin(events));
        self.runs.push(FollowedRun { run, seq, target, has_entered, next: None, events });
        Ok(())
    }

    async fn next(&mut self) -> Option<Result<SessionStreamItem, EngineError>> {
        loop {
            if self.is_over {
                return None;
            }
            if let Some(item) = self.ready.pop_front() {
                self.is_over = matches!(item, SessionItem::Deleted);
                return Some(Ok(self.update(item)));
            }
            let is_caught_up = self.runs.iter().all(|run| run.seq >= run.target);
            if is_caught_up
                && !self.has_more
                && let Some(synced) = self.synced.take()
            {
                return Some(Ok(self.update(synced)));
            }
            if let Err(error) = self.look(is_caught_up).await {
                return Some(Err(error));
            }
            if !self.ready.is_empty() {
                continue;
            }
            let changes = self.entered.changes.clone();
            let (at, event) = tokio::select! { biased;
                () = self.stop.cancelled() => return Some(Err(self.engine.end_of_shard())),
                event = next_event(&mut self.runs) => event,
                () = changes.arrived.notified() => continue,
            };
            match event {
                Some(Ok(event)) => {
                    let item = self.event(at, event);
                    return Some(Ok(self.update(item)));
                }
                None => drop(self.runs.remove(at)),
                // Its events are gone with the session.
                Some(Err(EngineError::RunNotFound)) => {
                    self.runs.remove(at);
                    self.entered.changes.row.store(true, Ordering::Relaxed);
                }
                Some(Err(error)) => return Some(Err(error)),
            }
        }
    }

    /// Looks at what may have changed. Once the subscriber has the events of earlier runs, it follows more.
    async fn look(&mut self, is_caught_up: bool) -> Result<(), EngineError> {
        let changes = self.entered.changes.clone();
        let is_deleted = changes.deleted.swap(false, Ordering::Relaxed);
        if changes.row.swap(false, Ordering::Relaxed) || is_deleted {
            let store = self.engine.store();
            match store.session(&self.tenant, &self.session).await? {
                Some(row) if row.created_at == self.created_at => {
                    if is_another(&row, &self.sent_row) {
                        self.sent_row = row.clone();
                        self.ready.push_back(SessionItem::Session(Box::new(row)));
                    }
                }
                // Deleted, and perhaps created anew since.
                Some(_) | None => self.ready.push_back(SessionItem::Deleted),
            }
        }
        let has_new = match self.has_more {
            true => is_caught_up,
            false => changes.runs.swap(false, Ordering::Relaxed),
        };
        if has_new {
            match self.follow_new().await {
                // The session was deleted meanwhile, which is told next.
                Ok(_) | Err(EngineError::RunNotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn event(&mut self, at: usize, event: FeedItem) -> SessionItem {
        let run = self.runs[at].run.clone();
        if let FeedItem::Durable(record) = &event {
            self.runs[at].seq = record.seq;
            self.runs[at].has_entered = record.status != RunStatus::Queued;
            if record.status.is_terminal() {
                self.runs.remove(at);
            }
        }
        SessionItem::Event { run, event }
    }

    fn update(&self, item: SessionItem) -> SessionStreamItem {
        let token = match &item {
            SessionItem::Event { event: FeedItem::Transient(_), .. } | SessionItem::Deleted => String::new(),
            SessionItem::Event { .. } | SessionItem::Session(_) | SessionItem::Synced { .. } => {
                let runs = self.runs.iter().map(|run| (run.run.clone(), run.seq)).collect();
                SessionPosition { created_at: self.created_at, last_no: self.last_no, runs }
                    .token(&self.digest)
            }
        };
        SessionStreamItem { item, token }
    }
}

async fn existing_row(
    store: &dyn Store,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<SessionRow, EngineError> {
    store.session(tenant, session).await?.ok_or(EngineError::SessionNotFound)
}

/// The position of a subscriber that begins now: before all events of the session's open runs.
async fn first_position(
    store: &dyn Store,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<SessionPosition, EngineError> {
    let created_at = existing_row(store, tenant, session).await?.created_at;
    let SessionRuns { last_no, runs } = store.session_runs(tenant, session, None).await?;
    let runs = runs.into_iter().map(|(_, row)| (row.run, Seq(0))).collect();
    Ok(SessionPosition { created_at, last_no, runs })
}

/// True if a row has something that subscribers are to be told. They learn of entries and runs by events.
fn is_another(row: &SessionRow, sent: &SessionRow) -> bool {
    let SessionRow { updated_at, last_entry, live_run, last_run, .. } = row.clone();
    SessionRow { updated_at, last_entry, live_run, last_run, ..sent.clone() } != *row
}
