//! Replicas over one PostgreSQL database as processes, and what is done to them.

use std::path::PathBuf;
use std::time::Duration;

use agentloop_client::Client;

use super::counts::Counts;
use super::dice::Dice;
use crate::postgres;
use crate::process::balancer::Balancer;
use crate::process::server::{FENCED, Server, Setting, patient};

/// The longest time that a replica is stopped for, in milliseconds: twice its lease and more.
const FROZEN_MS_MAX: u64 = 7_000;

/// A fault of replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicaFault {
    /// SIGKILL, and a start in its place so long after.
    Kill(usize, Duration),
    /// SIGKILL to all of them, at once.
    KillAll,
    /// SIGTERM, upon which it must end well, and a start in its place.
    Terminate(usize),
    /// SIGSTOP for so long.
    Freeze(usize, Duration),
    /// The database is stopped without a warning and started again.
    RestartDatabase,
}

impl ReplicaFault {
    /// As the dice fall.
    pub fn any(dice: &mut Dice, replicas: usize) -> Self {
        let replica = usize::try_from(dice.below(replicas as u64)).expect("an index");
        match dice.below(16) {
            0..6 => Self::Kill(replica, dice.up_to(6_000)),
            6 => Self::KillAll,
            7..10 => Self::Terminate(replica),
            10..15 => Self::Freeze(replica, dice.up_to(FROZEN_MS_MAX)),
            _ => Self::RestartDatabase,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Kill(..) => "replica killed",
            Self::KillAll => "all replicas killed",
            Self::Terminate(_) => "replica terminated",
            Self::Freeze(..) => "replica stopped for a while",
            Self::RestartDatabase => "database restarted",
        }
    }
}

/// Replicas behind a balancer.
pub struct Replicas {
    servers: Vec<Server>,
    balancer: Balancer,
    counts: Counts,
}

impl Replicas {
    /// Starts so many over a new schema.
    ///
    /// # Panics
    /// When there is no database.
    pub async fn start(setting: &Setting, count: usize, counts: Counts) -> Self {
        let url = postgres::url()
            .expect("AGENTLOOP_TEST_POSTGRES has the address of a database: tests/with-postgres");
        let store = Some(format!("url = \"{}\"\nreaders = 4", postgres::in_new_schema(url)));
        let more = format!("{}\n[cluster]\nlisten = \"127.0.0.1:0\"\n", setting.more);
        let setting = Setting { store, more, ..setting.clone() };
        let mut servers = Vec::new();
        for _ in 0..count {
            servers.push(Server::start(&setting).await);
        }
        let balancer = Balancer::start(servers.iter().map(Server::address).collect()).await;
        Self { servers, balancer, counts }
    }

    /// The address of the balancer.
    pub fn url(&self) -> String {
        self.balancer.url()
    }

    /// A client of the balancer, which waits while no replica owns the database.
    pub fn client(&self) -> Client {
        patient(self.url()).build().expect("a good address")
    }

    /// The folder of the files of hosts.
    pub fn folder(&self) -> PathBuf {
        self.servers[0].file("")
    }

    /// Number of replicas that were started.
    pub fn count(&self) -> usize {
        self.servers.len()
    }

    /// Starts those again that others have taken for dead.
    ///
    /// # Panics
    /// When one has ended for another reason.
    pub async fn revive(&mut self) {
        for server in &mut self.servers {
            if let Some((code, said)) = server.has_ended().await {
                assert_eq!(code, FENCED, "{said}");
                self.counts.count("replicas that found their place taken");
                server.start_again().await;
            }
        }
    }

    /// Does it, and returns when every process runs again.
    ///
    /// # Panics
    /// When a replica does not start again, or does not end well when it is asked to.
    pub async fn suffer(&mut self, fault: ReplicaFault) {
        self.revive().await;
        match fault {
            ReplicaFault::Kill(at, later) => {
                self.servers[at].kill().await;
                tokio::time::sleep(later).await;
                self.servers[at].start_again().await;
            }
            ReplicaFault::KillAll => {
                for server in &mut self.servers {
                    server.kill().await;
                }
                for server in &mut self.servers {
                    server.start_again().await;
                }
            }
            ReplicaFault::Terminate(at) => {
                let (code, said) = self.servers[at].terminate().await;
                assert!(code == 0 || code == FENCED, "{said}");
                self.servers[at].start_again().await;
            }
            ReplicaFault::Freeze(at, long) => {
                self.servers[at].signal("STOP").await;
                self.balancer.set(at, false);
                tokio::time::sleep(long).await;
                self.servers[at].signal("CONT").await;
                self.balancer.set(at, true);
            }
            ReplicaFault::RestartDatabase => postgres::restart().await,
        }
    }
}
