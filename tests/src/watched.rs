//! A watched list of very many runs: what a watcher costs the server.

use std::time::{Duration, Instant};

use agentloop_client::Client;
use agentloop_client::v1 as wire;
use tokio::time::MissedTickBehavior;
use wire::watch_runs_response::Change;

use crate::load::brain::{Brain, Temper};
use crate::load::world::setting;
use crate::model::Model;
use crate::parked;
use crate::process::host::Host;
use crate::process::processor_time;
use crate::process::server::Server;

/// Changes in a second.
const RATE: u64 = 100;
/// Length of each measured stretch.
const STRETCH: Duration = Duration::from_secs(10);

/// The measured cost of watchers.
#[derive(Debug, Clone)]
pub struct Cost {
    /// Number of runs in the list.
    pub runs: u64,
    /// From the call to the whole snapshot.
    pub snapshot: Duration,
    /// Processor time of the server in a stretch in which nobody watches.
    pub alone: Duration,
    /// The same with one watcher of all runs.
    pub one_watcher: Duration,
    /// The same with this watcher and 100 whose filter no changed run meets.
    pub others: Duration,
    /// Runs that were aborted in a stretch.
    pub changes: u64,
    /// Aborted runs that the watcher read of, in its two stretches.
    pub read: u64,
}

/// Parks this many runs, watches them, and aborts 100 of them in a second.
///
/// # Panics
/// When a call fails.
pub async fn measure(runs: u64) -> Cost {
    let (model, brain) = (Model::start().await, Brain::default());
    brain.drive(&model, Temper { fails: 0, thinks_ms: 0 }, 1);
    let server = Server::start(&setting(&model)).await;
    let _host = Host::start(&server, "h-1").await;
    let client = server.client();
    parked::park(&client, &brain, 0..runs).await;
    let changes = RATE * STRETCH.as_secs();
    let alone = stretch(&server, &client, 0..changes).await;

    let begin = Instant::now();
    let mut watch = client.watch_runs(wire::RunFilter::default()).await.expect("watched");
    while !matches!(watch.next().await.expect("it goes on"), Change::Synced(_)) {}
    let snapshot = begin.elapsed();
    let reader = tokio::spawn(async move {
        let mut read = 0;
        while read < 2 * changes {
            if let Change::Run(run) = watch.next().await.expect("it goes on") {
                read += u64::from(run.status() == wire::RunStatus::Aborted);
            }
        }
        read
    });
    let one_watcher = stretch(&server, &client, changes..2 * changes).await;
    let mut others = Vec::new();
    for number in 0..100 {
        let labels = [("nobody".to_owned(), number.to_string())].into();
        let filter = wire::RunFilter { labels, ..wire::RunFilter::default() };
        others.push(client.watch_runs(filter).await.expect("watched"));
    }
    let with_others = stretch(&server, &client, 2 * changes..3 * changes).await;
    let read = reader.await.expect("the reader holds");
    Cost { runs, snapshot, alone, one_watcher, others: with_others, changes, read }
}

/// Aborts these runs, evenly over a stretch. Returns the processor time of the server.
async fn stretch(server: &Server, client: &Client, numbers: std::ops::Range<u64>) -> Duration {
    let before = processor_time(server.pid());
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / RATE as u32);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for number in numbers {
        ticks.tick().await;
        client.abort_run(format!("r-k{number}"), "").await.expect("aborted");
    }
    processor_time(server.pid()) - before
}
