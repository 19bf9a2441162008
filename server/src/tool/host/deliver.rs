//! Queues of call updates from the hosts to the engine, one for each run. Updates of one run stay in order, runs do not wait for
//! each other, and a host's stream never waits.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use agentloop_core::host::CallUpdate;
use agentloop_core::host::frame::CallResult;
use agentloop_core::id::{Attempt, CallId, HostId, RunId, RunKey, TenantId};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{mpsc, oneshot};

/// Bytes of output and progress that may wait for one run. Beyond this they are dropped.
const RUN_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of output and progress that may wait for all runs together.
const BYTES_MAX: usize = 16 * RUN_BYTES_MAX;
/// Overhead counted for each item, in bytes.
const ITEM_BYTES: usize = 256;

/// A host's result that the fleet accepted, with the host that sent it.
#[derive(Debug)]
pub(in crate::tool) struct AcceptedResult {
    pub(in crate::tool) host: HostId,
    pub(in crate::tool) result: Box<CallResult>,
}

impl AcceptedResult {
    /// The run that the call belongs to.
    pub(in crate::tool) fn run(&self) -> &RunId {
        &self.result.call.call.run
    }
}

/// The sending end. Sending never waits.
#[derive(Debug)]
pub(in crate::tool) struct CallReportSender {
    queues: Arc<RunQueues>,
    /// Runs whose queue was empty before. A run is in it, or being delivered, exactly while it has a queue.
    begun: mpsc::UnboundedSender<RunKey>,
}

/// The receiving end, to be given to [`deliver`].
#[derive(Debug)]
pub(in crate::tool) struct CallReportReceiver {
    queues: Arc<RunQueues>,
    begun: mpsc::UnboundedReceiver<RunKey>,
}

/// The queues of the runs for which something waits or is being delivered.
#[derive(Debug, Default)]
struct RunQueues(Mutex<QueuesInner>);

#[derive(Debug, Default)]
struct QueuesInner {
    of_runs: HashMap<RunKey, RunQueue>,
    /// Bytes of output and progress in all queues.
    bytes: usize,
    /// True once nobody delivers any more.
    is_closed: bool,
}

// Droppable items are bounded in bytes. Of the others a call has a bounded number on one stream, its questions and resume
// states included, and calls are bounded by queues and credit.
#[derive(Debug, Default)]
struct RunQueue {
    items: VecDeque<QueuedReport>,
    /// Bytes of output and progress, with those that are being delivered.
    bytes: usize,
    /// The newest checkpoint of each attempt that waits. One that comes while another waits takes its place, so a call has one at
    /// most, and none is dropped.
    checkpoints: HashMap<AttemptKey, Vec<u8>>,
}

/// One attempt of a call of the run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct AttemptKey {
    call: CallId,
    attempt: Attempt,
}

#[derive(Debug)]
enum QueuedReport {
    Update {
        call: CallId,
        update: CallUpdate,
        counted: usize,
    },
    /// The attempt has a checkpoint in the queue of its run.
    Checkpoint(AttemptKey),
    Result(AcceptedResult),
    Flush(oneshot::Sender<()>),
}

/// Makes a connected pair of ends.
pub(in crate::tool) fn channel() -> (CallReportSender, CallReportReceiver) {
    let queues = Arc::<RunQueues>::default();
    let (begun, receiver) = mpsc::unbounded_channel();
    let sender = CallReportSender { queues: queues.clone(), begun };
    (sender, CallReportReceiver { queues, begun: receiver })
}

impl CallReportSender {
    /// Queues an update for the engine. Droppable updates are dropped when too much waits for the run, or for all.
    pub(in crate::tool) fn send(&self, tenant: TenantId, call: CallId, update: CallUpdate) {
        let run = RunKey::new(tenant, call.run.clone());
        if let CallUpdate::Checkpoint { attempt, checkpoint } = update {
            let key = AttemptKey { call, attempt };
            return self.with_queue(run, |queue| {
                if queue.checkpoints.insert(key.clone(), checkpoint).is_none() {
                    queue.items.push_back(QueuedReport::Checkpoint(key));
                }
            });
        }
        let counted = droppable_size(&update);
        if counted > 0 && !self.queues.lock().count(&run, counted) {
            tracing::debug!(call.id = %call, "output or progress dropped: its run does not keep up");
            return;
        }
        self.with_queue(run, |queue| {
            queue.bytes += counted;
            queue.items.push_back(QueuedReport::Update { call, update, counted });
        });
    }

    /// Queues a result whose host has no stream to acknowledge it on.
    pub(in crate::tool) fn send_result(&self, tenant: TenantId, accepted: AcceptedResult) {
        let run = RunKey::new(tenant, accepted.run().clone());
        self.with_queue(run, |queue| queue.items.push_back(QueuedReport::Result(accepted)));
    }

    /// Returns when everything sent earlier for this run is delivered.
    pub(in crate::tool) async fn flush(&self, tenant: &TenantId, run: &RunId) {
        let delivered = {
            let mut queues = self.queues.lock();
            let Some(queue) = queues.of_runs.get_mut(&RunKey::new(tenant.clone(), run.clone())) else {
                return;
            };
            let (done, delivered) = oneshot::channel();
            queue.items.push_back(QueuedReport::Flush(done));
            delivered
        };
        let _ = delivered.await;
    }

    /// Changes the queue of a run, and has it delivered.
    fn with_queue(&self, run: RunKey, change: impl FnOnce(&mut RunQueue)) {
        let mut queues = self.queues.lock();
        if queues.is_closed {
            return;
        }
        match queues.of_runs.entry(run) {
            Entry::Occupied(mut queue) => change(queue.get_mut()),
            Entry::Vacant(vacant) => {
                // The receiver is gone only once the queues are closed.
                let _ = self.begun.send(vacant.key().clone());
                change(vacant.insert(RunQueue::default()));
            }
        }
    }
}

impl RunQueues {
    fn lock(&self) -> MutexGuard<'_, QueuesInner> {
        self.0.lock()
    }

    /// Takes the next item of this run. Without one its queue is removed.
    fn next(&self, run: &RunKey) -> Option<QueuedReport> {
        let mut queues = self.lock();
        let next = queues.of_runs.get_mut(run)?.items.pop_front();
        if next.is_none() {
            queues.of_runs.remove(run);
        }
        next
    }

    /// Takes the newest checkpoint of this attempt.
    fn take_checkpoint(&self, run: &RunKey, key: &AttemptKey) -> Option<Vec<u8>> {
        self.lock().of_runs.get_mut(run)?.checkpoints.remove(key)
    }

    /// An update of this size is delivered.
    fn uncount(&self, run: &RunKey, counted: usize) {
        let mut queues = self.lock();
        queues.bytes -= counted;
        if let Some(queue) = queues.of_runs.get_mut(run) {
            queue.bytes -= counted;
        }
    }
}

impl QueuesInner {
    /// Counts a droppable update of the run among all, if there is room for it.
    fn count(&mut self, run: &RunKey, bytes: usize) -> bool {
        let of_run = self.of_runs.get(run).map_or(0, |queue| queue.bytes);
        let has_room = of_run + bytes <= RUN_BYTES_MAX && self.bytes + bytes <= BYTES_MAX;
        self.bytes += if has_room { bytes } else { 0 };
        has_room
    }
}

impl Drop for CallReportReceiver {
    /// Nothing waits any more, those who wait for a delivery included.
    fn drop(&mut self) {
        *self.queues.lock() = QueuesInner { is_closed: true, ..QueuesInner::default() };
    }
}

/// Bytes to count against the bounds; zero for an update that must not be dropped.
fn droppable_size(update: &CallUpdate) -> usize {
    match update {
        CallUpdate::Output { data, .. } => ITEM_BYTES + data.len(),
        CallUpdate::Progress { message, .. } => ITEM_BYTES + message.len(),
        CallUpdate::Checkpoint { .. }
        | CallUpdate::Granted { .. }
        | CallUpdate::Denied { .. }
        | CallUpdate::Accepted { .. }
        | CallUpdate::InputNeeded { .. }
        | CallUpdate::Resumable { .. }
        | CallUpdate::Lost { .. }
        | CallUpdate::Stopped { .. } => 0,
    }
}

/// Delivers until the sender is dropped. `tell` takes updates, and `record` the results for which no stream waits. A run for
/// which one of them does not return holds up nothing but its own queue.
pub(in crate::tool) async fn deliver<Told, Recorded>(
    mut receiver: CallReportReceiver,
    tell: impl Fn(TenantId, CallId, CallUpdate) -> Told,
    record: impl Fn(TenantId, AcceptedResult) -> Recorded,
) where
    Told: Future<Output = ()>,
    Recorded: Future<Output = ()>,
{
    let queues = receiver.queues.clone();
    let (queues, tell, record) = (&*queues, &tell, &record);
    let deliver_run = |run: RunKey| async move {
        while let Some(item) = queues.next(&run) {
            let tenant = run.tenant.clone();
            match item {
                QueuedReport::Update { call, update, counted } => {
                    tell(tenant, call, update).await;
                    queues.uncount(&run, counted);
                }
                QueuedReport::Checkpoint(key) => {
                    if let Some(checkpoint) = queues.take_checkpoint(&run, &key) {
                        let AttemptKey { call, attempt } = key;
                        tell(tenant, call, CallUpdate::Checkpoint { attempt, checkpoint }).await;
                    }
                }
                QueuedReport::Result(accepted) => record(tenant, accepted).await,
                QueuedReport::Flush(done) => {
                    let _ = done.send(());
                }
            }
        }
    };
    let mut runs = FuturesUnordered::new();
    loop {
        tokio::select! {
            begun = receiver.begun.recv() => match begun {
                Some(run) => runs.push(deliver_run(run)),
                None => break,
            },
            Some(()) = runs.next() => {}
        }
    }
    while let Some(()) = runs.next().await {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_newest_checkpoint_waits_however_much_output_there_is() {
        let (sender, receiver) = channel();
        let (tenant, call) = (TenantId::local(), CallId::parse("r/1.0").unwrap());
        let send = |update| sender.send(tenant.clone(), call.clone(), update);
        let output = |bytes: usize| CallUpdate::Output {
            attempt: Attempt(1),
            chunk_seq: 1,
            stderr: false,
            data: vec![0; bytes],
        };
        let checkpoint = |attempt, byte| CallUpdate::Checkpoint { attempt, checkpoint: vec![byte] };
        send(output(RUN_BYTES_MAX - 2 * ITEM_BYTES));
        send(output(RUN_BYTES_MAX));
        for byte in 0..3 {
            send(checkpoint(Attempt(1), byte));
        }
        send(checkpoint(Attempt(2), 9));
        drop(sender);
        let told = Mutex::new(Vec::new());
        let tell = |_tenant, _call, update| {
            told.lock().push(update);
            std::future::ready(())
        };
        deliver(receiver, tell, |_tenant, _accepted| std::future::ready(())).await;
        let told = told.into_inner();
        assert_eq!(told[1..], [checkpoint(Attempt(1), 2), checkpoint(Attempt(2), 9)]);
    }

    #[tokio::test]
    async fn a_run_that_does_not_listen_holds_up_no_other() {
        let (sender, receiver) = channel();
        let denied = || CallUpdate::Denied { message: "no".to_owned() };
        let call = |number: usize| CallId::parse(&format!("r{number}/1.0")).unwrap();
        let (told, mut heard) = mpsc::unbounded_channel();
        let tell = |_tenant, call: CallId, _update| {
            let told = told.clone();
            async move {
                if call.run.to_string() == "r0" {
                    std::future::pending::<()>().await;
                }
                told.send(call).unwrap();
            }
        };
        let delivering = deliver(receiver, tell, |_tenant, _accepted| std::future::ready(()));
        tokio::pin!(delivering);
        sender.send(TenantId::local(), call(0), denied());
        assert!(futures_util::poll!(&mut delivering).is_pending());
        for number in 1..=64 {
            sender.send(TenantId::local(), call(number), denied());
        }
        for number in 1..=64 {
            let next = tokio::select! { biased; next = heard.recv() => next, () = &mut delivering => None };
            assert!(next.is_some(), "update {number} of 64 arrives");
        }
    }

    #[tokio::test]
    async fn output_of_all_runs_has_a_bound_and_is_counted_until_it_is_told() {
        let (sender, receiver) = channel();
        let output = || CallUpdate::Output {
            attempt: Attempt(1),
            chunk_seq: 1,
            stderr: false,
            data: vec![0; RUN_BYTES_MAX - ITEM_BYTES],
        };
        let send = |number: usize| {
            let call = CallId::parse(&format!("r{number}/1.0")).unwrap();
            sender.send(TenantId::local(), call, output());
        };
        (0..20).for_each(send);
        assert_eq!(sender.queues.lock().of_runs.len(), BYTES_MAX / RUN_BYTES_MAX);
        let told = std::cell::Cell::new(0);
        let tell = |_tenant, _call, _update| {
            told.set(told.get() + 1);
            std::future::ready(())
        };
        let delivering = deliver(receiver, tell, |_tenant, _accepted| std::future::ready(()));
        tokio::pin!(delivering);
        assert!(futures_util::poll!(&mut delivering).is_pending());
        (0..16).for_each(send);
        assert!(futures_util::poll!(&mut delivering).is_pending());
        assert_eq!(told.get(), 32, "there is room again");
        assert_eq!(sender.queues.lock().bytes, 0);
        assert!(sender.queues.lock().of_runs.is_empty());
    }

    #[tokio::test]
    async fn nobody_waits_for_a_delivery_that_has_ended() {
        let (sender, receiver) = channel();
        let call = CallId::parse("r/1.0").unwrap();
        sender.send(TenantId::local(), call.clone(), CallUpdate::Denied { message: "no".to_owned() });
        let tenant = TenantId::local();
        let flushed = sender.flush(&tenant, &call.run);
        tokio::pin!(flushed);
        assert!(futures_util::poll!(&mut flushed).is_pending());
        drop(receiver);
        flushed.await;
    }
}
