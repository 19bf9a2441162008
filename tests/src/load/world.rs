//! Everything that a load consists of.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentloop_client::Client;
use agentloop_client::v1 as wire;
use tokio::task::JoinSet;

use super::brain::{Brain, Temper};
use super::check::{self, Bounds};
use super::counts::Counts;
use super::dice::Dice;
use super::ledger::Ledger;
use super::replicas::Replicas;
use super::site::{Fault, Site};
use super::worker::Worker;
use crate::model::Model;
use crate::process::server::{Server, Setting};

/// The size of a load.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Decides what happens, though not exactly when.
    pub seed: u64,
    /// Sessions that are at work at a time.
    pub sessions: u64,
    /// Number of tool hosts.
    pub hosts: usize,
    /// The error rate and delays of the model.
    pub temper: Temper,
    /// Number of replicas over a PostgreSQL database; 0: one server with a database of its own.
    pub replicas: usize,
}

/// The state that all workers share.
pub struct World {
    pub(super) client: Client,
    pub(super) brain: Brain,
    pub(super) counts: Counts,
    ledger: Mutex<Ledger>,
    /// The number of times that each label may have begun by the end.
    bounds: Mutex<Bounds>,
    /// Runs whose end was seen, and how they ended.
    ended: Mutex<BTreeMap<String, wire::RunStatus>>,
    stopping: AtomicBool,
}

/// A running load: workers and processes.
pub struct Load {
    world: Arc<World>,
    /// The processes of server and hosts.
    pub site: Site,
    /// The counts so far.
    pub counts: Counts,
    model: Model,
    workers: JoinSet<()>,
    dice: Dice,
}

impl Load {
    /// Starts processes and workers.
    pub async fn start(plan: &Plan) -> Self {
        println!("seed {}", plan.seed);
        let (model, brain, counts) = (Model::start().await, Brain::default(), Counts::default());
        brain.drive(&model, plan.temper, plan.seed);
        let setting = setting(&model);
        let (world, site) = match plan.replicas {
            0 => {
                let server = Server::start(&setting).await;
                let world = World::new(server.client(), &server.file(""), brain, counts.clone());
                (world, Site::start(server, plan.hosts, counts.clone()).await)
            }
            count => {
                let replicas = Replicas::start(&setting, count, counts.clone()).await;
                let world = World::new(replicas.client(), &replicas.folder(), brain, counts.clone());
                (world, Site::of_replicas(replicas, plan.hosts, counts.clone()).await)
            }
        };
        let mut dice = Dice::new(plan.seed);
        let mut workers = JoinSet::new();
        for number in 0..plan.sessions {
            workers.spawn(Worker::new(world.clone(), number, dice.split()).work());
        }
        Self { world, site, counts, model, workers, dice }
    }

    /// Waits a while, and then does something to the processes.
    ///
    /// # Panics
    /// When something does not hold.
    pub async fn suffer(&mut self, wait_ms: u64) {
        tokio::time::sleep(self.dice.up_to(wait_ms)).await;
        let fault = Fault::any(&mut self.dice, &self.site);
        println!("{fault:?}");
        self.site.suffer(fault).await;
        self.check_workers();
    }

    /// Fails if a worker has found something that does not hold.
    ///
    /// # Panics
    /// With the fault that was found.
    pub fn check_workers(&mut self) {
        while let Some(worker) = self.workers.try_join_next() {
            worker.expect("what must hold does");
            assert!(self.world.is_stopping(), "workers go on until they are told to stop");
        }
        assert_eq!(self.model.faults(), Vec::<String>::new());
    }

    /// Lets every run come to its end, and checks what must hold of all of them together.
    ///
    /// # Panics
    /// When it does not.
    pub async fn finish(mut self) -> Counts {
        self.world.stopping.store(true, Ordering::SeqCst);
        while let Some(worker) = self.workers.join_next().await {
            worker.expect("what must hold does");
        }
        self.world.settled().await;
        self.check_workers();
        println!("{}", self.counts);
        self.counts
    }
}

impl World {
    /// Of servers that this client reaches, and of hosts that keep their files in this folder.
    pub fn new(client: Client, folder: &Path, brain: Brain, counts: Counts) -> Arc<Self> {
        Arc::new(Self {
            client,
            brain,
            counts,
            ledger: Mutex::new(Ledger::new(folder)),
            bounds: Mutex::default(),
            ended: Mutex::default(),
            stopping: AtomicBool::new(false),
        })
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // A worker whose check failed has left the ledger as whole as any other.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ended(&self, run: &str, status: wire::RunStatus, bounds: Bounds) {
        self.bounds.lock().unwrap_or_else(PoisonError::into_inner).extend(bounds);
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).insert(run.to_owned(), status);
    }

    /// Checks the rules for the time after all work has ended.
    ///
    /// # Panics
    /// When it does not.
    pub async fn settled(&self) {
        let pending = self.client.list_pending(wire::ListPendingRequest::default()).await.expect("listed");
        assert_eq!(pending.requests, []);
        let mut seen = 0;
        let mut request = wire::ListRunsRequest { page_size: 500, ..Default::default() };
        loop {
            let page = self.client.list_runs(request.clone()).await.expect("listed");
            let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            for run in &page.runs {
                assert_eq!(ended.get(&run.run_id), Some(&run.status()), "as it was seen to end: {run:?}");
            }
            seen += page.runs.len();
            if page.next_page_token.is_empty() {
                assert_eq!(seen, ended.len(), "every run that was seen is there");
                break;
            }
            drop(ended);
            request.page_token = page.next_page_token;
        }
        let bounds = self.bounds.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ledger = self.ledger();
        for (label, deeds) in ledger.all() {
            let bound = bounds.get(label).unwrap_or_else(|| panic!("{label} is of no run: {deeds:?}"));
            check::bounded(label, deeds, *bound);
        }
        self.counts.add("labels whose effects were counted", ledger.all().len() as u64);
    }
}

/// Short waits, so that much happens.
pub fn setting(model: &Model) -> Setting {
    Setting {
        server: "",
        agent: "",
        provider: format!("kind = \"openai\"\nbase_url = \"{}\"\n", model.base_url()),
        lease_timeout: "1s",
        grace_period: "500ms",
        in_doubt_timeout: "1s",
        max_parallel: 4,
        retry: "{ max_retries = 12, initial_backoff = \"20ms\", max_backoff = \"300ms\" }",
        ask_human: true,
        titles: false,
        park_after: "50ms",
        log_level: "error",
        bounded: false,
        tls: false,
        environment: &[],
        store: None,
        more: String::new(),
        program: None,
    }
}
