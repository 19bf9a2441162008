//! The engine: live runs, and everything that one may ask of a run. Cheap to clone.

mod after;
mod deps;
mod effect;
pub mod error;
pub mod feed;
mod history;
mod log;
mod parts;
mod ports;
mod query;
mod run;
mod session;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use agentloop_core::error::Refusal;
use agentloop_core::id::{RunId, RunKey, Seq, SessionId, TenantId};
use agentloop_core::run::event::Record;
use agentloop_core::run::input::{AbortCause, Input};
use agentloop_core::run::state::State;
use futures_util::Stream;

pub use self::after::recall::Recall;
pub use self::deps::EngineOptions;
pub use self::effect::compact::STRATEGIES;
pub use self::log::LogObserver;
pub use self::parts::EngineParts;
pub use self::ports::{
    Compactor, Compactors, Executors, FinishExecutor, HumanExecutor, JobError, JobExecutor, Observer,
    RunObserver, ToolExecution, ToolExecutor,
};
pub use self::query::decide::Resolution;
pub use self::query::replay::ReplayReport;
pub use self::query::step::StepDone;
pub use self::query::view::RunView;
pub use self::session::start::{OnBusy, StartRequest, Started};

use crate::engine::deps::Deps;
use crate::engine::error::EngineError;
use crate::engine::feed::{Feed, FeedItem, Sources, Standing};
use crate::engine::run::recover::fold;
use crate::engine::run::table::{Found, Table};
use crate::engine::run::timers::Wake;
use crate::engine::session::locks::SessionLocks;
use crate::store::{Store, StoreError};
use crate::tool::Tools;

/// Runs the loop.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    deps: Arc<Deps>,
    table: Table,
    /// Where runs join a session's queue: one at a time, so that its bound holds.
    queues: SessionLocks,
    /// Where runs enter a session, and where it is deleted.
    sessions: SessionLocks,
    wake: Wake,
}

impl Engine {
    /// Truth, for what only reads.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.deps.store
    }

    /// The tools that runs use.
    #[must_use]
    pub fn tools(&self) -> &Arc<dyn Tools> {
        &self.0.deps.tools
    }

    /// The time, as the engine sees it.
    #[must_use]
    pub fn now(&self) -> agentloop_core::time::Timestamp {
        self.0.deps.clock.now()
    }

    /// Whether there is a way of this name to make a context smaller.
    #[must_use]
    pub fn has_strategy(&self, name: &str) -> bool {
        STRATEGIES.contains(&name) || self.deps().compactors.contains_key(name)
    }

    /// Live runs.
    #[must_use]
    pub fn live_runs(&self) -> usize {
        self.0.table.len()
    }

    /// Subscribers that were ended because they did not read, since the start.
    #[must_use]
    pub fn slow_subscribers(&self) -> u64 {
        self.0.deps.slow_subscribers.load(Ordering::Relaxed)
    }

    /// Events after `after`: each durable one exactly once, then live ones, to the end of the run.
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
        let key = RunKey::new(tenant.clone(), run.clone());
        let deps = self.deps();
        // What is durable is published a moment later: the store may know of more.
        let standing = deps.feeds.standing(&key).filter(|(_, standing)| after <= standing.last.seq);
        let (feed, session, last, over) = match standing {
            Some((feed, Standing { session, last })) => (feed, session, last.seq, last.status.is_terminal()),
            None => {
                let row = self.store().run(tenant, run).await?.ok_or(EngineError::RunNotFound)?;
                let feed = deps.feeds.of(&key, &row.session, deps.options.subscriber_buffer);
                (feed, row.session, row.last_seq, row.summary.status.is_terminal())
            }
        };
        if after > last {
            return Err(EngineError::SeqAhead { last });
        }
        let sources = Sources {
            store: deps.store.clone(),
            clock: deps.clock.clone(),
            stall: deps.options.subscriber_stall,
            stop: deps.tasks.soft().clone(),
            slow: deps.slow_subscribers.clone(),
        };
        // Of a run that is over, nothing follows its last event.
        let over = over && after == last;
        let events = feed::subscribe(feed.clone(), sources, key, after, over);
        Ok(Subscription { session, events, feed })
    }

    /// Ends a run. Ending one that is over changes nothing.
    ///
    /// # Errors
    /// [`EngineError::RunNotFound`], or the store's.
    pub async fn abort(
        &self,
        tenant: &TenantId,
        run: &RunId,
        cause: AbortCause,
        reason: &str,
    ) -> Result<(), EngineError> {
        let input = || Input::Abort { cause, reason: reason.to_owned() };
        match self.ask(&RunKey::new(tenant.clone(), run.clone()), input).await {
            Err(EngineError::Refused(Refusal::WrongPhase(Some(status)))) if status.is_terminal() => Ok(()),
            other => other,
        }
    }

    /// Ends a run without anyone waiting for it.
    pub fn abort_later(self, tenant: TenantId, run: RunId, cause: AbortCause) {
        let tasks = self.deps().tasks.clone();
        drop(tasks.spawn("abort", async move {
            if let Err(error) = self.abort(&tenant, &run, cause, "").await {
                tracing::warn!(run.id = %run, %error, "cannot abort a run");
            }
        }));
    }

    /// Ends the live run of a session; `None` where it has none. The first in the session's queue is next.
    ///
    /// # Errors
    /// [`EngineError::SessionNotFound`], or the store's.
    pub async fn abort_session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        reason: &str,
    ) -> Result<Option<RunId>, EngineError> {
        let row = self.store().session(tenant, session).await?.ok_or(EngineError::SessionNotFound)?;
        let Some(run) = row.live_run else { return Ok(None) };
        self.abort(tenant, &run, AbortCause::Caller, reason).await?;
        Ok(Some(run))
    }

    /// Lets a paused run go on.
    ///
    /// # Errors
    /// [`EngineError::RunNotFound`], [`EngineError::Refused`] when it is not paused, or the store's.
    pub async fn resume(
        &self,
        tenant: &TenantId,
        run: &RunId,
        request: &str,
        by: &str,
    ) -> Result<(), EngineError> {
        let input = || Input::Resume { request: request.to_owned(), by: by.to_owned() };
        self.ask(&RunKey::new(tenant.clone(), run.clone()), input).await
    }

    /// Hands an input to a run, live or not; returns when what it led to is durable.
    async fn ask(&self, key: &RunKey, input: impl Fn() -> Input) -> Result<(), EngineError> {
        for _ in 0..ASK_TRIES {
            if let Some(mailbox) = self.0.table.live(key) {
                match mailbox.ask(input()).await {
                    Some(answer) => return answer.map_err(EngineError::Refused),
                    // The task ended under us, or before it: what it did is in the journal.
                    None => {
                        self.check_running()?;
                    }
                }
            }
            let row = self.store().run(&key.tenant, &key.run).await?.ok_or(EngineError::RunNotFound)?;
            if row.summary.status.is_terminal() {
                return self.ask_finished(key, input()).await;
            }
            if row.queue_no.is_some() {
                let (engine, of, input) = (self.clone(), key.clone(), input());
                let asked = self.whole("ask queued", async move { engine.ask_queued(&of, input).await });
                match asked.await? {
                    Some(answer) => return answer.map_err(EngineError::Refused),
                    // It has entered its session meanwhile, or ended.
                    None => continue,
                }
            }
            self.bring_up(key).await?;
        }
        Err(EngineError::Store(StoreError::Unavailable { what: "the run does not stay up".to_owned() }))
    }

    /// A run that is over takes nothing that would change it; what it says to a repetition is in its journal.
    async fn ask_finished(&self, key: &RunKey, input: Input) -> Result<(), EngineError> {
        let mut machine = fold(&key.run, &self.journal(key).await?)?;
        let step = machine.handle(input, self.now())?;
        debug_assert!(step.records.is_empty(), "a run that is over does not change");
        Ok(())
    }

    /// A run's state as it is and is written, without bringing it up.
    async fn look(&self, key: &RunKey) -> Result<Box<State>, EngineError> {
        if let Some(mailbox) = self.0.table.live(key)
            && let Some(state) = mailbox.look().await
        {
            return Ok(state);
        }
        let records = self.journal(key).await?;
        if records.is_empty() {
            return Err(EngineError::RunNotFound);
        }
        Ok(Box::new(fold(&key.run, &records)?.state().clone()))
    }

    async fn journal(&self, key: &RunKey) -> Result<Vec<Record>, EngineError> {
        Ok(self.store().records(&key.tenant, &key.run, Seq(0), u32::MAX).await?)
    }

    /// Brings a run up, unless it is.
    async fn bring_up(&self, key: &RunKey) -> Result<(), EngineError> {
        match self.0.table.find(key).await {
            Found::Live => Ok(()),
            Found::Vacant(place) => {
                let engine = self.clone();
                self.whole("open", async move { engine.open(place).await }).await
            }
        }
    }

    /// Does something on a task of its own, since a caller that goes away must not leave it half done: what is written
    /// has to have someone who goes on with it.
    async fn whole<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        match self.deps().tasks.spawn_contained(name, work).await {
            Ok(Some(done)) => done,
            // Everything stops at once.
            Ok(None) => Err(EngineError::ShuttingDown),
            Err(fault) => match fault.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(EngineError::ShuttingDown),
            },
        }
    }

    fn check_running(&self) -> Result<(), EngineError> {
        if self.deps().tasks.soft().is_cancelled() { Err(EngineError::ShuttingDown) } else { Ok(()) }
    }

    fn deps(&self) -> &Arc<Deps> {
        &self.0.deps
    }

    fn wake(&self) -> &Wake {
        &self.0.wake
    }
}

/// How often a run is brought up for one input before that is given up.
const ASK_TRIES: u32 = 4;

/// A run's events.
pub struct Subscription<S> {
    /// The run's session.
    pub session: SessionId,
    /// The events.
    pub events: S,
    /// Where they come from, which knows whether the run is deleted.
    pub feed: Feed,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("live_runs", &self.live_runs()).finish_non_exhaustive()
    }
}
