//! A watched list of very many runs: what a watcher costs the server.

use std::fmt;
use std::time::{Duration, Instant};

use agentloop_client::Client;
use agentloop_client::v1 as wire;
use tokio::task::JoinHandle;
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
/// Watchers whose filter no changed run meets.
const OTHERS: u64 = 100;

/// The measured cost of watchers.
#[derive(Debug, Clone)]
pub struct Cost {
    /// Number of runs in the list.
    pub runs: u64,
    /// Runs that were aborted in a stretch. A watcher of all runs read each of these changes.
    pub changes: u64,
    /// From the call to the whole snapshot, in seconds.
    pub snapshot: Spread,
    /// Processor time of the server in a stretch in which nobody watches, in seconds.
    pub alone: Spread,
    /// The same with one watcher of all runs.
    pub one_watcher: Spread,
    /// The same with this watcher and 100 whose filter no changed run meets.
    pub others: Spread,
    /// Processor time with one watcher for each without, in the stretches of one round.
    pub one_to_alone: Spread,
    /// The same with the 100 others.
    pub others_to_alone: Spread,
}

/// Several measurements of one figure.
#[derive(Clone, Copy, PartialEq)]
pub struct Spread {
    /// The lowest of them.
    pub least: f64,
    /// Half of the stretches cost less.
    pub median: f64,
    /// The highest of them.
    pub most: f64,
}

impl Spread {
    /// The spread of these measurements.
    ///
    /// # Panics
    /// When there are none.
    #[must_use]
    pub fn of(measured: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = measured.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let [least, .., most] = sorted[..] else {
            let only = *sorted.first().expect("something was measured");
            return Self { least: only, median: only, most: only };
        };
        Self { least, median: sorted[sorted.len() / 2], most }
    }
}

impl fmt::Debug for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ({:.2} to {:.2})", self.median, self.least, self.most)
    }
}

/// The watchers of a stretch.
#[derive(Clone, Copy)]
enum Watchers {
    Nobody,
    One,
    OneAndOthers,
}

/// The measurements of one round.
struct Round {
    snapshots: Vec<f64>,
    alone: f64,
    one_watcher: f64,
    others: f64,
}

/// Parks this many runs, and aborts 100 of them in a second, in so many rounds. A round has a stretch without a watcher, one
/// with a watcher of all runs, and one with 100 more. Every other round goes backwards, so that what changes with time
/// weighs on all of them.
///
/// # Panics
/// When a call fails, or when there are too few runs for so many rounds.
pub async fn measure(runs: u64, rounds: u64) -> Cost {
    let changes = RATE * STRETCH.as_secs();
    assert!(
        rounds > 0 && runs >= rounds * 3 * changes,
        "{rounds} rounds abort {} runs",
        rounds * 3 * changes
    );
    let (model, brain) = (Model::start().await, Brain::default());
    brain.drive(&model, Temper { fails: 0, thinks_ms: 0 }, 1);
    let server = Server::start(&setting(&model)).await;
    let _host = Host::start(&server, "h-1").await;
    let client = server.client();
    parked::park(&client, &brain, 0..runs).await;
    let mut stretches = Stretches { server: &server, client: &client, next: 0, changes };
    let mut measured = Vec::new();
    for number in 0..rounds {
        measured.push(stretches.round(number % 2 == 1).await);
    }
    let spread = |figure: fn(&Round) -> f64| Spread::of(measured.iter().map(figure));
    Cost {
        runs,
        changes,
        snapshot: Spread::of(measured.iter().flat_map(|round| round.snapshots.iter().copied())),
        alone: spread(|round| round.alone),
        one_watcher: spread(|round| round.one_watcher),
        others: spread(|round| round.others),
        one_to_alone: spread(|round| round.one_watcher / round.alone),
        others_to_alone: spread(|round| round.others / round.alone),
    }
}

/// The stretches of a measurement, each of which aborts runs of its own.
struct Stretches<'a> {
    server: &'a Server,
    client: &'a Client,
    /// Number of the next run to abort.
    next: u64,
    /// Runs to abort in a stretch.
    changes: u64,
}

impl Stretches<'_> {
    async fn round(&mut self, backwards: bool) -> Round {
        let mut round = Round { snapshots: Vec::new(), alone: 0.0, one_watcher: 0.0, others: 0.0 };
        let mut order = [Watchers::Nobody, Watchers::One, Watchers::OneAndOthers];
        if backwards {
            order.reverse();
        }
        for watchers in order {
            match watchers {
                Watchers::Nobody => round.alone = self.stretch().await,
                Watchers::One => {
                    let (reader, snapshot) = self.watcher().await;
                    round.snapshots.push(snapshot);
                    round.one_watcher = self.stretch().await;
                    reader.await.expect("the reader holds");
                }
                Watchers::OneAndOthers => {
                    let (reader, snapshot) = self.watcher().await;
                    round.snapshots.push(snapshot);
                    let mut others = Vec::new();
                    for number in 0..OTHERS {
                        let labels = [("nobody".to_owned(), number.to_string())].into();
                        let filter = wire::RunFilter { labels, ..wire::RunFilter::default() };
                        others.push(self.client.watch_runs(filter).await.expect("watched"));
                    }
                    round.others = self.stretch().await;
                    reader.await.expect("the reader holds");
                }
            }
        }
        round
    }

    /// Watches all runs. Returns when the snapshot is whole, with the seconds that took. The reader ends when it has read
    /// every change of a stretch.
    async fn watcher(&self) -> (JoinHandle<()>, f64) {
        let begin = Instant::now();
        let mut watch = self.client.watch_runs(wire::RunFilter::default()).await.expect("watched");
        while !matches!(watch.next().await.expect("it goes on"), Change::Synced(_)) {}
        let snapshot = begin.elapsed().as_secs_f64();
        let changes = self.changes;
        let reader = tokio::spawn(async move {
            let mut read = 0;
            while read < changes {
                if let Change::Run(run) = watch.next().await.expect("it goes on") {
                    read += u64::from(run.status() == wire::RunStatus::Aborted);
                }
            }
        });
        (reader, snapshot)
    }

    /// Aborts runs, evenly over a stretch. Returns the processor time of the server, in seconds.
    async fn stretch(&mut self) -> f64 {
        let before = processor_time(self.server.pid());
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / RATE as u32);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for number in self.next..self.next + self.changes {
            ticks.tick().await;
            self.client.abort_run(format!("r-k{number}"), "").await.expect("aborted");
        }
        self.next += self.changes;
        (processor_time(self.server.pid()) - before).as_secs_f64()
    }
}
