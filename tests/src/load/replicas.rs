//! Replicas over one PostgreSQL database as processes, and what is done to them.

use std::path::PathBuf;
use std::time::Duration;

use agentloop_client::Client;

use super::counts::Counts;
use super::dice::Dice;
use crate::postgres;
use crate::process::balancer::Balancer;
use crate::process::links::Links;
use crate::process::proxy::Proxy;
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
    /// One of its links is cut for so long.
    Cut(usize, Link, Fall, Duration),
    /// The database is stopped without a warning and started again.
    RestartDatabase,
}

/// A link of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// From the replica to the database.
    ToDatabase,
    /// From the other replicas.
    FromReplicas,
    /// From callers and hosts.
    FromClients,
}

/// The way in which a link is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fall {
    /// Both sides learn of it.
    Broken,
    /// Nothing comes through, and nobody is told.
    Silent,
}

impl ReplicaFault {
    /// As the dice fall.
    pub fn any(dice: &mut Dice, replicas: usize) -> Self {
        let replica = usize::try_from(dice.below(replicas as u64)).expect("an index");
        match dice.below(22) {
            0..6 => Self::Kill(replica, dice.up_to(6_000)),
            6 => Self::KillAll,
            7..10 => Self::Terminate(replica),
            10..15 => Self::Freeze(replica, dice.up_to(FROZEN_MS_MAX)),
            15 => Self::RestartDatabase,
            way => {
                let link = match way % 3 {
                    0 => Link::ToDatabase,
                    1 => Link::FromReplicas,
                    _ => Link::FromClients,
                };
                let fall = if dice.below(2) == 0 { Fall::Broken } else { Fall::Silent };
                Self::Cut(replica, link, fall, dice.up_to(FROZEN_MS_MAX))
            }
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Kill(..) => "replica killed",
            Self::KillAll => "all replicas killed",
            Self::Terminate(_) => "replica terminated",
            Self::Freeze(..) => "replica stopped for a while",
            Self::Cut(_, Link::ToDatabase, ..) => "replica cut from the database",
            Self::Cut(_, Link::FromReplicas, ..) => "replica cut from the others",
            Self::Cut(_, Link::FromClients, ..) => "replica cut from callers and hosts",
            Self::RestartDatabase => "database restarted",
        }
    }
}

/// Replicas behind a balancer.
pub struct Replicas {
    servers: Vec<Server>,
    /// The links of the server at the same place.
    links: Vec<Links>,
    /// From the balancer to the server at the same place.
    from_clients: Vec<Proxy>,
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
        let database = postgres::in_new_schema(url);
        let (mut servers, mut links, mut from_clients) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..count {
            let its = Links::start(&database).await;
            let server = Server::start(&its.setting(setting, "readers = 4")).await;
            from_clients.push(Proxy::start(server.address()).await);
            links.push(its);
            servers.push(server);
        }
        let addresses = from_clients.iter().map(|proxy| proxy.address().to_string()).collect();
        let balancer = Balancer::start(addresses).await;
        Self { servers, links, from_clients, balancer, counts }
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
            ReplicaFault::Cut(at, link, fall, long) => {
                let link = match link {
                    Link::ToDatabase => &self.links[at].to_database,
                    Link::FromReplicas => &self.links[at].from_replicas,
                    Link::FromClients => &self.from_clients[at],
                };
                match fall {
                    Fall::Broken => link.cut(),
                    Fall::Silent => link.silence(),
                }
                tokio::time::sleep(long).await;
                link.join();
            }
            ReplicaFault::RestartDatabase => postgres::restart().await,
        }
    }
}
