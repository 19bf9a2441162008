//! News on their way to the engine: in order per run, and never waited for by a host's stream.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agentloop_core::host::News;
use agentloop_core::id::{CallId, RunId, TenantId};
use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot};

use crate::tool::CallSink;
use crate::tool::host::remote::{Answered, RemoteTools};

/// News of runs in the same lane wait for each other.
const LANES: usize = 16;
/// Output, progress and checkpoints that wait in one lane; what comes on top is dropped.
const BACKLOG_BYTES_MAX: usize = 4 * 1024 * 1024;
/// What an item costs beside its bytes.
const ITEM_BYTES: usize = 256;

/// Where news are put. Never waits.
#[derive(Debug)]
pub(in crate::tool) struct Deliveries {
    lanes: Vec<Lane>,
}

#[derive(Debug)]
struct Lane {
    // What may be dropped is bounded by the backlog. What may not comes a few times per call at most, and calls are
    // bounded by queues and credit.
    items: mpsc::UnboundedSender<Item>,
    backlog: Arc<AtomicUsize>,
}

/// The other end, to be given to [`deliver`].
#[derive(Debug)]
pub(in crate::tool) struct Undelivered {
    lanes: Vec<(mpsc::UnboundedReceiver<Item>, Arc<AtomicUsize>)>,
}

#[derive(Debug)]
enum Item {
    News { tenant: TenantId, call: CallId, news: News, counted: usize },
    Answer { tenant: TenantId, answered: Answered },
    Flush(oneshot::Sender<()>),
}

/// Both ends.
pub(in crate::tool) fn channel() -> (Deliveries, Undelivered) {
    let lane = |_| {
        let (sender, receiver) = mpsc::unbounded_channel();
        let backlog = Arc::new(AtomicUsize::new(0));
        (Lane { items: sender, backlog: backlog.clone() }, (receiver, backlog))
    };
    let (lanes, receivers) = (0..LANES).map(lane).unzip();
    (Deliveries { lanes }, Undelivered { lanes: receivers })
}

impl Deliveries {
    /// Puts news on their way. Those that may be dropped are, when too many wait.
    pub(in crate::tool) fn put(&self, tenant: TenantId, call: CallId, news: News) {
        let lane = self.lane(&tenant, &call.run);
        let counted = droppable_size(&news);
        if counted > 0 && lane.backlog.fetch_add(counted, Ordering::Relaxed) + counted > BACKLOG_BYTES_MAX {
            lane.backlog.fetch_sub(counted, Ordering::Relaxed);
            tracing::debug!(call.id = %call, "output or progress dropped: its run does not keep up");
            return;
        }
        // The other end is gone only when the process ends.
        let _ = lane.items.send(Item::News { tenant, call, news, counted });
    }

    /// Puts an answer on its way for which no stream waits.
    pub(in crate::tool) fn put_answer(&self, tenant: TenantId, answered: Answered) {
        let lane = self.lane(&tenant, answered.run());
        let _ = lane.items.send(Item::Answer { tenant, answered });
    }

    /// Returns when everything that was put before for this run is delivered.
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

/// Zero for what must arrive.
fn droppable_size(news: &News) -> usize {
    match news {
        News::Output { data, .. } => ITEM_BYTES + data.len(),
        News::Progress { message, .. } => ITEM_BYTES + message.len(),
        News::Checkpoint { checkpoint, .. } => ITEM_BYTES + checkpoint.len(),
        News::Granted { .. }
        | News::Denied { .. }
        | News::Accepted { .. }
        | News::InputNeeded { .. }
        | News::Lost { .. } => 0,
    }
}

/// Delivers until the other end is dropped.
pub(in crate::tool) async fn deliver(undelivered: Undelivered, sink: Arc<dyn CallSink>, tools: &RemoteTools) {
    let lanes = undelivered.lanes.into_iter().map(|(mut items, backlog)| {
        let sink = sink.clone();
        async move {
            while let Some(item) = items.recv().await {
                match item {
                    Item::News { tenant, call, news, counted } => {
                        sink.news(&tenant, &call, news).await;
                        backlog.fetch_sub(counted, Ordering::Relaxed);
                    }
                    Item::Answer { tenant, answered } => {
                        // An answer that cannot be recorded is lost like its host: time tells the run.
                        let _ = tools.record_now(&tenant, answered).await;
                    }
                    Item::Flush(done) => {
                        let _ = done.send(());
                    }
                }
            }
        }
    });
    join_all(lanes).await;
}
