//! The processes, and what is done to them.

use std::path::PathBuf;
use std::time::Duration;

use super::counts::Counts;
use super::dice::Dice;
use super::replicas::{ReplicaFault, Replicas};
use crate::process::host::Host;
use crate::process::server::Server;

/// Calls that a host has room for.
const CONCURRENCY: usize = 16;

/// A fault of processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL to the server, which is started again.
    KillServer,
    /// The same, and again so long after each of some starts.
    KillStarting(Vec<Duration>),
    /// SIGKILL to the server and all hosts.
    KillAll,
    /// SIGTERM to the server, which must end well.
    Terminate,
    /// SIGKILL to a host, and another in its place.
    KillHost(usize),
    /// SIGSTOP to a host for so long.
    FreezeHost(usize, Duration),
    /// SIGSTOP to the server for so long.
    FreezeServer(Duration),
    /// A fault of replicas.
    Replicas(ReplicaFault),
}

impl Fault {
    /// As the dice fall.
    pub fn any(dice: &mut Dice, site: &Site) -> Self {
        let host = usize::try_from(dice.below(site.hosts.len() as u64)).expect("an index");
        if let Servers::Replicas(replicas) = &site.servers {
            return match dice.below(8) {
                0 => Self::KillHost(host),
                1 => Self::FreezeHost(host, dice.up_to(3_000)),
                _ => Self::Replicas(ReplicaFault::any(dice, replicas)),
            };
        }
        match dice.below(20) {
            0..6 => Self::KillServer,
            6..10 => {
                let kills = 1 + dice.below(3);
                Self::KillStarting((0..kills).map(|_| dice.up_to(400)).collect())
            }
            10..12 => Self::KillAll,
            12..14 => Self::Terminate,
            14..17 => Self::KillHost(host),
            17..19 => Self::FreezeHost(host, dice.up_to(3_000)),
            _ => Self::FreezeServer(dice.up_to(1_000)),
        }
    }
}

/// The servers, and their hosts.
pub struct Site {
    servers: Servers,
    folder: PathBuf,
    url: String,
    hosts: Vec<Host>,
    started: usize,
    counts: Counts,
}

enum Servers {
    One(Box<Server>),
    Replicas(Box<Replicas>),
}

impl Site {
    /// A server with so many hosts.
    pub async fn start(server: Server, hosts: usize, counts: Counts) -> Self {
        let (folder, url) = (server.file(""), server.url());
        Self::with(Servers::One(Box::new(server)), folder, url, hosts, counts).await
    }

    /// Replicas with so many hosts.
    pub async fn of_replicas(replicas: Replicas, hosts: usize, counts: Counts) -> Self {
        let (folder, url) = (replicas.folder(), replicas.url());
        Self::with(Servers::Replicas(Box::new(replicas)), folder, url, hosts, counts).await
    }

    async fn with(servers: Servers, folder: PathBuf, url: String, hosts: usize, counts: Counts) -> Self {
        let mut site = Self { servers, folder, url, hosts: Vec::new(), started: 0, counts };
        for _ in 0..hosts {
            let host = site.another_host().await;
            site.hosts.push(host);
        }
        site
    }

    /// The only server.
    fn server(&mut self) -> &mut Server {
        match &mut self.servers {
            Servers::One(server) => server,
            Servers::Replicas(_) => panic!("replicas have faults of their own"),
        }
    }

    /// Does it, and returns when every process runs again.
    ///
    /// # Panics
    /// When the server does not start again, or does not end well when it is asked to.
    pub async fn suffer(&mut self, fault: Fault) {
        self.counts.count(&format!("faults: {}", name(&fault)));
        match fault {
            Fault::KillServer => {
                self.server().kill().await;
                self.server().start_again().await;
            }
            Fault::KillStarting(kills) => {
                self.server().kill().await;
                for later in kills {
                    self.server().start_and_kill(later).await;
                }
                self.server().start_again().await;
            }
            Fault::KillAll => {
                self.server().kill().await;
                let hosts = self.hosts.len();
                for host in self.hosts.drain(..) {
                    host.process.kill().await;
                }
                self.server().start_again().await;
                for _ in 0..hosts {
                    let host = self.another_host().await;
                    self.hosts.push(host);
                }
            }
            Fault::Terminate => {
                let (code, said) = self.server().terminate().await;
                assert_eq!(code, 0, "{said}");
                self.server().start_again().await;
            }
            Fault::KillHost(at) => {
                self.hosts.remove(at).process.kill().await;
                let host = self.another_host().await;
                self.hosts.insert(at, host);
            }
            Fault::FreezeHost(at, long) => {
                self.hosts[at].process.signal("STOP").await;
                tokio::time::sleep(long).await;
                self.hosts[at].process.signal("CONT").await;
            }
            Fault::FreezeServer(long) => {
                self.server().signal("STOP").await;
                tokio::time::sleep(long).await;
                self.server().signal("CONT").await;
            }
            Fault::Replicas(fault) => match &mut self.servers {
                Servers::Replicas(replicas) => replicas.suffer(fault).await,
                Servers::One(_) => panic!("a server alone has faults of its own"),
            },
        }
    }

    /// A host has another name after its restart: what it had in hand is gone.
    async fn another_host(&mut self) -> Host {
        self.started += 1;
        Host::start_in(&self.folder, &self.url, &format!("h-{}", self.started), CONCURRENCY).await
    }
}

fn name(fault: &Fault) -> &'static str {
    match fault {
        Fault::KillServer => "server killed",
        Fault::KillStarting(_) => "server killed, and again while it started",
        Fault::KillAll => "server and hosts killed",
        Fault::Terminate => "server terminated",
        Fault::KillHost(_) => "host killed",
        Fault::FreezeHost(..) => "host stopped for a while",
        Fault::FreezeServer(_) => "server stopped for a while",
        Fault::Replicas(fault) => fault.name(),
    }
}
