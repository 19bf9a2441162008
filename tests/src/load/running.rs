//! A running load: its processes, and the workers that use them.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::brain::{Brain, Temper};
use super::counts::Counts;
use super::dice::Dice;
use super::replicas::{ReplicaPlan, Replicas};
use super::site::{Fault, Site};
use super::worker::Worker;
use super::world::{World, setting};
use crate::model::Model;
use crate::process::server::Server;

/// The size of a load.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Decides what happens, though not exactly when.
    pub seed: u64,
    /// Sessions that are at work at a time.
    pub sessions: u64,
    /// Number of tool hosts.
    pub hosts: usize,
    /// The error rate and delays of the model.
    pub temper: Temper,
    /// Replicas over a PostgreSQL database. `None`: one server with a database of its own.
    pub replicas: Option<ReplicaPlan>,
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
        let (world, site) = match &plan.replicas {
            None => {
                let server = Server::start(&setting).await;
                let world = World::new(server.client(), &server.file(""), brain, counts.clone());
                (world, Site::start(server, plan.hosts, counts.clone()).await)
            }
            Some(replicas) => {
                let replicas = Replicas::start(&setting, replicas, counts.clone()).await;
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
        self.world.stop();
        while let Some(worker) = self.workers.join_next().await {
            worker.expect("what must hold does");
        }
        self.world.settled().await;
        self.check_workers();
        println!("{}", self.counts);
        self.counts
    }
}
