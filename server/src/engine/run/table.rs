//! The runs that are live in this process. Each has one task and one mailbox; a parked run has neither.

use std::collections::HashMap;
use std::sync::Arc;

use agentloop_core::id::{RunKey, TenantId};
use agentloop_core::run::input::Input;
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::state::RunState;
use futures_util::future::join_all;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::audit::{self, Act};
use crate::engine::error::EngineError;
use crate::engine::shards::GivenAwayShards;

/// Inputs that may wait for a run's task. A sender waits while the mailbox is full.
const MAILBOX: usize = 256;

/// A tenant that leaves places for others holds at most this many times the places that are left.
const TIMES_WHAT_IS_LEFT: usize = 9;

/// Receives the machine's verdict on an input, once everything that the input led to is durable.
pub(in crate::engine) type InputReplySender = oneshot::Sender<Result<(), Refusal>>;

/// A message to a run's task.
pub(in crate::engine) enum Mail {
    /// An input whose sender waits for no reply.
    Input(Input),
    /// An input whose sender waits until it is durable.
    InputWithReply {
        input: Input,
        reply: InputReplySender,
        /// The act that the audit log is to tell of, if there is one.
        act: Option<Arc<Act>>,
    },
    /// A request for the durable state.
    ReadState(oneshot::Sender<Box<RunState>>),
    /// Sessions are given away: the run stops if its own is among them.
    GiveAway(GivenAwayShards),
}

/// The sending end of a run's mailbox. It is closed once the task has ended.
#[derive(Clone)]
pub(in crate::engine) struct Mailbox(mpsc::Sender<Mail>);

impl Mailbox {
    pub(in crate::engine) fn new() -> (Self, mpsc::Receiver<Mail>) {
        let (sender, receiver) = mpsc::channel(MAILBOX);
        (Self(sender), receiver)
    }

    /// Hands over an input and waits for the verdict. `None` if the task ended first; the input may have been applied.
    pub(in crate::engine) async fn deliver(self, input: Input) -> Option<Result<(), Refusal>> {
        let (reply, verdict) = oneshot::channel();
        self.send_last(Mail::InputWithReply { input, reply, act: audit::unrecorded() }).await?;
        verdict.await.ok()
    }

    /// The run's durable state. `None` if the task has ended.
    pub(in crate::engine) async fn state(self) -> Option<Box<RunState>> {
        let (reply, state) = oneshot::channel();
        self.send_last(Mail::ReadState(reply)).await?;
        state.await.ok()
    }

    /// Sends a message whose reply is awaited, and drops this end. A message that arrives while the receiver is dropped keeps its
    /// reply sender as long as any mailbox end exists. So drop this end before waiting for the reply.
    async fn send_last(self, mail: Mail) -> Option<()> {
        self.0.send(mail).await.ok()
    }

    async fn give_away(self, given_away: GivenAwayShards) {
        // A task that has ended has stopped.
        let _ended = self.0.send(Mail::GiveAway(given_away)).await;
    }

    /// Hands over an input without waiting for the verdict. False if the task has ended and did not take it.
    pub(in crate::engine) async fn send(&self, input: Input) -> bool {
        self.0.send(Mail::Input(input)).await.is_ok()
    }
}

enum TableSlot {
    /// The holder of the permit is starting the task. The token is cancelled when it has started or given up.
    Starting(CancellationToken, StartCount),
    /// The task runs. The token is cancelled when it has ended.
    Live(Mailbox, CancellationToken),
}

/// The way in which a run that is starting counts as live. A request that only hands messages to another run, or queues one, holds a
/// permit too, and adds no live run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StartCount {
    Counted,
    NotCounted,
}

/// The table of live runs. Clones share one table.
#[derive(Clone, Default)]
pub(in crate::engine) struct LiveRuns(Arc<Mutex<LiveTable>>);

/// The bound on live runs.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct LiveRunsBound {
    /// The most of all tenants.
    pub(in crate::engine) max: usize,
    /// True if a tenant leaves places for others: it gets a further place only while it has fewer than nine times the places
    /// that are left. So one alone gets nine tenths of them, two that want more than there are get nine nineteenths each,
    /// and one that has no run yet finds a place.
    pub(in crate::engine) leaves_places: bool,
}

impl LiveRunsBound {
    /// Checks that a tenant which has `own` of `all` live runs may have one more.
    fn check(self, own: usize, all: usize) -> Result<(), EngineError> {
        match self.max.saturating_sub(all) {
            0 => Err(EngineError::TooManyRuns),
            left if self.leaves_places && own >= left.saturating_mul(TIMES_WHAT_IS_LEFT) => {
                Err(EngineError::TooManyRunsOfTenant)
            }
            _ => Ok(()),
        }
    }
}

#[derive(Default)]
struct LiveTable {
    entries: HashMap<RunKey, TableSlot>,
    /// Entries that are live, or that have a place and start.
    counted: usize,
    /// The same of each tenant that has any.
    counted_of: HashMap<TenantId, usize>,
}

impl LiveTable {
    fn count(&mut self, tenant: &TenantId) {
        self.counted += 1;
        *self.counted_of.entry(tenant.clone()).or_default() += 1;
    }

    fn uncount(&mut self, tenant: &TenantId) {
        self.counted -= 1;
        if let Some(own) = self.counted_of.get_mut(tenant) {
            *own -= 1;
            if *own == 0 {
                self.counted_of.remove(tenant);
            }
        }
    }
}

/// The result of looking a run up in [`LiveRuns`].
pub(in crate::engine) enum Lookup {
    /// The run has a task here.
    Live,
    /// The run has no task. Only the holder of this permit may start one.
    NotLive(StartPermit),
}

/// The exclusive right to start a run's task. Dropping the permit, or the task that holds it, removes the run from the
/// table.
pub(in crate::engine) struct StartPermit {
    table: LiveRuns,
    key: RunKey,
    /// Wakes the look-ups that wait for this run. Cancelled and replaced when the task is live, cancelled on drop.
    changed: Mutex<CancellationToken>,
}

impl LiveRuns {
    /// Finds the run's task or grants the right to start one. Waits while another holder of the permit starts or ends
    /// the task.
    pub(in crate::engine) async fn find(&self, key: &RunKey) -> Lookup {
        loop {
            match self.try_find(key) {
                Ok(found) => return found,
                Err(changed) => changed.cancelled().await,
            }
        }
    }

    /// The mailbox of the run's task, if the run has one now.
    pub(in crate::engine) fn live(&self, key: &RunKey) -> Option<Mailbox> {
        match self.table().entries.get(key) {
            Some(TableSlot::Live(mailbox, _)) => Some(mailbox.clone()),
            Some(TableSlot::Starting(..)) | None => None,
        }
    }

    /// Tells all runs that have a task now which sessions are given away. Ends when each has a place for that in its mailbox: one
    /// whose mailbox is full holds up no other.
    pub(in crate::engine) async fn tell_given_away(&self, given_away: GivenAwayShards) {
        let of = |entry: &TableSlot| match entry {
            TableSlot::Live(mailbox, _) => Some(mailbox.clone()),
            TableSlot::Starting(..) => None,
        };
        let mailboxes: Vec<Mailbox> = self.table().entries.values().filter_map(of).collect();
        join_all(mailboxes.into_iter().map(|mailbox| mailbox.give_away(given_away.clone()))).await;
    }

    /// Runs that are live or starting.
    pub(in crate::engine) fn len(&self) -> usize {
        self.table().entries.len()
    }

    fn try_find(&self, key: &RunKey) -> Result<Lookup, CancellationToken> {
        let entries = &mut self.table().entries;
        match entries.get(key) {
            Some(TableSlot::Live(mailbox, _)) if !mailbox.0.is_closed() => Ok(Lookup::Live),
            Some(TableSlot::Live(_, changed) | TableSlot::Starting(changed, _)) => Err(changed.clone()),
            None => {
                let changed = CancellationToken::new();
                entries.insert(key.clone(), TableSlot::Starting(changed.clone(), StartCount::NotCounted));
                Ok(Lookup::NotLive(StartPermit {
                    table: self.clone(),
                    key: key.clone(),
                    changed: Mutex::new(changed),
                }))
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, LiveTable> {
        self.0.lock()
    }
}

impl StartPermit {
    /// The run that may be started.
    pub(in crate::engine) fn key(&self) -> &RunKey {
        &self.key
    }

    /// Takes a place for the run: counts it as live.
    ///
    /// # Errors
    /// [`EngineError::TooManyRuns`] and [`EngineError::TooManyRunsOfTenant`]: it counts nowhere.
    pub(in crate::engine) fn try_take_place(&self, bound: LiveRunsBound) -> Result<(), EngineError> {
        let table = &mut *self.table.table();
        let own = table.counted_of.get(&self.key.tenant).copied().unwrap_or_default();
        let checked = bound.check(own, table.counted);
        let Some(TableSlot::Starting(_, count @ StartCount::NotCounted)) = table.entries.get_mut(&self.key)
        else {
            return Ok(());
        };
        checked?;
        *count = StartCount::Counted;
        table.count(&self.key.tenant);
        Ok(())
    }

    /// Puts the task's mailbox into the table. A task that replaces its mailbox calls this again.
    pub(in crate::engine) fn set_live(&self, mailbox: Mailbox) {
        let table = &mut *self.table.table();
        if let Some(entry) = table.entries.get_mut(&self.key) {
            // A look-up that waits from here on waits for the task's end.
            let ended = CancellationToken::new();
            let before = std::mem::replace(entry, TableSlot::Live(mailbox, ended.clone()));
            if !before.is_counted() {
                table.count(&self.key.tenant);
            }
            self.wake_waiting(ended);
        }
    }

    /// Wakes the look-ups that wait now. Later ones wait for `next`.
    fn wake_waiting(&self, next: CancellationToken) {
        let mut changed = self.changed.lock();
        std::mem::replace(&mut *changed, next).cancel();
    }
}

impl TableSlot {
    fn is_counted(&self) -> bool {
        matches!(self, Self::Live(..) | Self::Starting(_, StartCount::Counted))
    }
}

impl Drop for StartPermit {
    fn drop(&mut self) {
        let table = &mut *self.table.table();
        let removed = table.entries.remove(&self.key);
        if removed.is_some_and(|entry| entry.is_counted()) {
            table.uncount(&self.key.tenant);
        }
        self.wake_waiting(CancellationToken::new());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use agentloop_core::id::RunId;

    use super::*;

    const ONE: LiveRunsBound = LiveRunsBound { max: 1, leaves_places: false };

    async fn permit(table: &LiveRuns, run: &str) -> StartPermit {
        permit_of(table, &TenantId::local(), run).await
    }

    async fn permit_of(table: &LiveRuns, tenant: &TenantId, run: &str) -> StartPermit {
        match table.find(&RunKey::new(tenant.clone(), RunId::parse(run).unwrap())).await {
            Lookup::NotLive(permit) => permit,
            Lookup::Live => panic!("the run has no task yet"),
        }
    }

    /// Starts runs of a tenant until one is refused.
    async fn fill(table: &LiveRuns, tenant: &str, bound: LiveRunsBound) -> Vec<StartPermit> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let tenant = TenantId::parse(tenant).unwrap();
        let mut started = Vec::new();
        loop {
            let run = format!("r{}", NEXT.fetch_add(1, Ordering::Relaxed));
            let permit = permit_of(table, &tenant, &run).await;
            if permit.try_take_place(bound).is_err() {
                return started;
            }
            permit.set_live(Mailbox::new().0);
            started.push(permit);
        }
    }

    #[tokio::test]
    async fn a_tenant_leaves_places_for_those_that_have_no_run_yet() {
        let table = LiveRuns::default();
        let bound = LiveRunsBound { max: 1_000, leaves_places: true };
        let mut noisy = fill(&table, "noisy", bound).await;
        assert_eq!(noisy.len(), 900);
        let quiet = fill(&table, "quiet", bound).await;
        let third = fill(&table, "third", bound).await;
        assert_eq!((quiet.len(), third.len()), (90, 9));
        // A place that the noisy one gives up is for others, until each has as much as it may.
        drop(noisy.pop());
        assert!(fill(&table, "noisy", bound).await.is_empty());
        assert!(!fill(&table, "fourth", bound).await.is_empty());
        drop((quiet, third));
        assert_eq!(noisy.len(), 899);
        let again = permit_of(&table, &TenantId::parse("noisy").unwrap(), "again").await;
        assert!(again.try_take_place(bound).is_ok(), "it has fewer than nine times what is left");
    }

    #[tokio::test]
    async fn tenants_that_want_more_than_there_is_end_with_equal_parts() {
        let table = LiveRuns::default();
        let bound = LiveRunsBound { max: 190, leaves_places: true };
        let mut parts = [fill(&table, "red", bound).await, fill(&table, "blue", bound).await];
        assert_eq!(parts.each_ref().map(Vec::len), [171, 18]);
        while parts[0].len() > parts[1].len() {
            // A run of the larger part ends, and both ask for the place.
            parts[0].pop();
            let before = parts[0].len();
            for (tenant, part) in ["red", "blue"].into_iter().zip(&mut parts) {
                part.extend(fill(&table, tenant, bound).await);
            }
            assert_eq!(parts[0].len(), before, "the larger part does not grow");
        }
        assert_eq!(parts.each_ref().map(Vec::len), [90, 90]);
    }

    #[tokio::test]
    async fn without_that_rule_one_tenant_may_have_all() {
        let table = LiveRuns::default();
        let bound = LiveRunsBound { max: 1_000, leaves_places: false };
        assert_eq!(fill(&table, "noisy", bound).await.len(), 1_000);
    }

    /// A task that ends drops its receiver while others ask it for its state.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whoever_asks_a_task_that_ends_is_answered() {
        for round in 0..50_000 {
            let (mailbox, receiver) = Mailbox::new();
            let end = tokio::task::spawn_blocking(move || drop(receiver));
            let asked = tokio::time::timeout(std::time::Duration::from_secs(10), mailbox.state()).await;
            assert!(asked.is_ok_and(|state| state.is_none()), "round {round}");
            end.await.unwrap();
        }
    }

    #[tokio::test]
    async fn runs_count_once_and_permits_that_start_nothing_do_not() {
        let table = LiveRuns::default();
        let [steers, first, second] =
            [permit(&table, "m").await, permit(&table, "r1").await, permit(&table, "r2").await];
        assert!(first.try_take_place(ONE).is_ok());
        assert!(first.try_take_place(ONE).is_ok(), "it has its place");
        first.set_live(Mailbox::new().0);
        first.set_live(Mailbox::new().0);
        assert!(second.try_take_place(ONE).is_err() && steers.try_take_place(ONE).is_err());
        // A run that is taken over is not asked for, and counts.
        second.set_live(Mailbox::new().0);
        drop(first);
        assert!(steers.try_take_place(ONE).is_err());
        drop(second);
        assert!(steers.try_take_place(ONE).is_ok());
        drop(steers);
        assert!(permit(&table, "r3").await.try_take_place(ONE).is_ok());
    }

    #[tokio::test]
    async fn who_waits_for_a_run_to_come_up_goes_on_when_it_has() {
        let table = LiveRuns::default();
        let key = RunKey::new(TenantId::local(), RunId::parse("r1").unwrap());
        let Lookup::NotLive(permit) = table.find(&key).await else { panic!("the run has no task yet") };
        let waiting = table.find(&key);
        let mut waiting = std::pin::pin!(waiting);
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        let (mailbox, receiver) = Mailbox::new();
        permit.set_live(mailbox);
        assert!(matches!(waiting.await, Lookup::Live));
        // The mailbox is closed and the task has not ended: a look-up waits for its end.
        drop(receiver);
        let ending = table.find(&key);
        let mut ending = std::pin::pin!(ending);
        assert!(futures_util::poll!(ending.as_mut()).is_pending());
        drop(permit);
        assert!(matches!(ending.await, Lookup::NotLive(_)));
    }
}
