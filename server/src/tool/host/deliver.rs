//! Queues of call updates from the hosts to the engine. Updates of one run stay in order, and a host's stream never waits.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentloop_core::host::CallUpdate;
use agentloop_core::host::frame::CallResult;
use agentloop_core::id::{Attempt, CallId, HostId, RunId, TenantId};
use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot};

/// Number of queues. Each run belongs to one lane by hash; the runs of one lane wait for each other.
const LANES: usize = 16;
/// Bytes of output and progress that may wait in one lane. Beyond this they are dropped.
const BACKLOG_BYTES_MAX: usize = 4 * 1024 * 1024;
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
    lanes: Vec<Lane>,
}

#[derive(Debug)]
struct Lane {
    // Droppable items are bounded by the backlog. Of the others a call has a bounded number on one stream, its questions and
    // resume states included, and calls are bounded by queues and credit.
    items: mpsc::UnboundedSender<Item>,
    backlog: Arc<AtomicUsize>,
    checkpoints: Arc<Checkpoints>,
}

/// The newest checkpoint of each attempt that waits in a lane. One that comes while another waits takes its place, so a call has one
/// at most, and none is dropped.
#[derive(Debug, Default)]
struct Checkpoints(Mutex<HashMap<AttemptKey, Vec<u8>>>);

/// One attempt of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct AttemptKey {
    tenant: TenantId,
    call: CallId,
    attempt: Attempt,
}

impl Checkpoints {
    fn lock(&self) -> MutexGuard<'_, HashMap<AttemptKey, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The receiving end, to be given to [`deliver`].
#[derive(Debug)]
pub(in crate::tool) struct CallReportReceiver {
    lanes: Vec<ReceivingLane>,
}

#[derive(Debug)]
struct ReceivingLane {
    items: mpsc::UnboundedReceiver<Item>,
    backlog: Arc<AtomicUsize>,
    checkpoints: Arc<Checkpoints>,
}

#[derive(Debug)]
enum Item {
    Update {
        tenant: TenantId,
        call: CallId,
        update: CallUpdate,
        counted: usize,
    },
    /// The attempt has a checkpoint in [`Checkpoints`].
    Checkpoint(AttemptKey),
    Result {
        tenant: TenantId,
        accepted: AcceptedResult,
    },
    Flush(oneshot::Sender<()>),
}

/// Makes a connected pair of ends.
pub(in crate::tool) fn channel() -> (CallReportSender, CallReportReceiver) {
    let lane = |_| {
        let (sender, receiver) = mpsc::unbounded_channel();
        let (backlog, checkpoints) = (Arc::<AtomicUsize>::default(), Arc::<Checkpoints>::default());
        let receiving =
            ReceivingLane { items: receiver, backlog: backlog.clone(), checkpoints: checkpoints.clone() };
        (Lane { items: sender, backlog, checkpoints }, receiving)
    };
    let (lanes, receivers) = (0..LANES).map(lane).unzip();
    (CallReportSender { lanes }, CallReportReceiver { lanes: receivers })
}

impl CallReportSender {
    /// Queues an update for the engine. Droppable updates are dropped when the lane's backlog is full.
    pub(in crate::tool) fn send(&self, tenant: TenantId, call: CallId, update: CallUpdate) {
        let lane = self.lane(&tenant, &call.run);
        if let CallUpdate::Checkpoint { attempt, checkpoint } = update {
            let key = AttemptKey { tenant, call, attempt };
            if lane.checkpoints.lock().insert(key.clone(), checkpoint).is_none() {
                let _ = lane.items.send(Item::Checkpoint(key));
            }
            return;
        }
        let counted = droppable_size(&update);
        if counted > 0 && lane.backlog.fetch_add(counted, Ordering::Relaxed) + counted > BACKLOG_BYTES_MAX {
            lane.backlog.fetch_sub(counted, Ordering::Relaxed);
            tracing::debug!(call.id = %call, "output or progress dropped: its run does not keep up");
            return;
        }
        // The receiver is gone only when the process ends.
        let _ = lane.items.send(Item::Update { tenant, call, update, counted });
    }

    /// Queues a result whose host has no stream to acknowledge it on.
    pub(in crate::tool) fn send_result(&self, tenant: TenantId, accepted: AcceptedResult) {
        let lane = self.lane(&tenant, accepted.run());
        let _ = lane.items.send(Item::Result { tenant, accepted });
    }

    /// Returns when everything sent earlier for this run is delivered.
    pub(in crate::tool) async fn flush(&self, tenant: &TenantId, run: &RunId) {
        let (done, delivered) = oneshot::channel();
        let _ = self.lane(tenant, run).items.send(Item::Flush(done));
        let _ = delivered.await;
    }

    fn lane(&self, tenant: &TenantId, run: &RunId) -> &Lane {
        let mut hasher = DefaultHasher::new();
        (tenant, run).hash(&mut hasher);
        let index = hasher.finish() % self.lanes.len() as u64;
        &self.lanes[usize::try_from(index).expect("there are few lanes")]
    }
}

/// Bytes to count against the backlog; zero for an update that must not be dropped.
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

/// Delivers until the sender is dropped. `tell` takes updates, and `record` the results for which no stream waits.
pub(in crate::tool) async fn deliver<Told, Recorded>(
    receiver: CallReportReceiver,
    tell: impl Fn(TenantId, CallId, CallUpdate) -> Told,
    record: impl Fn(TenantId, AcceptedResult) -> Recorded,
) where
    Told: Future<Output = ()>,
    Recorded: Future<Output = ()>,
{
    let (tell, record) = (&tell, &record);
    let lanes = receiver.lanes.into_iter().map(|lane| async move {
        let ReceivingLane { mut items, backlog, checkpoints } = lane;
        while let Some(item) = items.recv().await {
            match item {
                Item::Update { tenant, call, update, counted } => {
                    tell(tenant, call, update).await;
                    backlog.fetch_sub(counted, Ordering::Relaxed);
                }
                Item::Checkpoint(key) => {
                    let waiting = checkpoints.lock().remove(&key);
                    if let Some(checkpoint) = waiting {
                        let AttemptKey { tenant, call, attempt } = key;
                        tell(tenant, call, CallUpdate::Checkpoint { attempt, checkpoint }).await;
                    }
                }
                Item::Result { tenant, accepted } => record(tenant, accepted).await,
                Item::Flush(done) => {
                    let _ = done.send(());
                }
            }
        }
    });
    join_all(lanes).await;
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
        send(output(BACKLOG_BYTES_MAX - 2 * ITEM_BYTES));
        send(output(BACKLOG_BYTES_MAX));
        for byte in 0..3 {
            send(checkpoint(Attempt(1), byte));
        }
        send(checkpoint(Attempt(2), 9));
        drop(sender);
        let told = Mutex::new(Vec::new());
        let tell = |_tenant, _call, update| {
            told.lock().unwrap().push(update);
            std::future::ready(())
        };
        deliver(receiver, tell, |_tenant, _accepted| std::future::ready(())).await;
        let told = told.into_inner().unwrap();
        assert_eq!(told[1..], [checkpoint(Attempt(1), 2), checkpoint(Attempt(2), 9)]);
    }
}
