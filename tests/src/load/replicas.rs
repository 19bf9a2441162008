//! Replicas over one PostgreSQL database as processes, and what is done to them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agentloop_client::Client;
use tempfile::TempDir;

use super::counts::Counts;
use super::dice::Dice;
use crate::postgres;
use crate::process::balancer::Balancer;
use crate::process::built;
use crate::process::database_pair::DatabasePair;
use crate::process::links::Links;
use crate::process::moved_clock::off_by;
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
    /// The primary is stopped without a warning, its synchronous standby takes its place, and gets a standby.
    LosePrimary,
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
    pub fn any(dice: &mut Dice, replicas: &Replicas) -> Self {
        let replica = usize::try_from(dice.below(replicas.servers.len() as u64)).expect("an index");
        match dice.below(22) {
            0..6 => Self::Kill(replica, dice.up_to(6_000)),
            6 => Self::KillAll,
            7..10 => Self::Terminate(replica),
            10..15 => Self::Freeze(replica, dice.up_to(FROZEN_MS_MAX)),
            15 if replicas.databases.is_some() => Self::LosePrimary,
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
            Self::LosePrimary => "primary lost",
        }
    }
}

/// The replicas of a load.
#[derive(Debug, Clone)]
pub struct ReplicaPlan {
    /// Number of replicas.
    pub count: usize,
    /// The program of an earlier version with the same stored format. All replicas begin with it, and one that is told to stop
    /// goes on with the other version each time. `None`: the program that was built with the tests.
    pub from: Option<PathBuf>,
    /// True gives the database a synchronous standby, which takes its place when it is lost.
    pub fails_over: bool,
    /// The clock of the second replica is ahead by so many seconds, and that of the third one behind by as many.
    pub skew_seconds: i64,
}

impl ReplicaPlan {
    /// The programs of the replica at this place: the one that it begins with, and the other version.
    fn programs(&self, folder: &Path, at: usize) -> (PathBuf, Option<PathBuf>) {
        let seconds = [0, self.skew_seconds, -self.skew_seconds][at % 3];
        let moved = |version: &str, program: PathBuf| {
            if seconds == 0 {
                return program;
            }
            let folder = folder.join(version);
            std::fs::create_dir_all(&folder).expect("a directory");
            off_by(&folder, &program, seconds).expect("missing: a C compiler (cc), for clocks that differ")
        };
        let now = moved("now", built("agentloop"));
        match &self.from {
            Some(program) => (moved("before", program.clone()), Some(now)),
            None => (now, None),
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
    /// The program that the server at the same place goes on with when it is told to stop, if there are two versions.
    other_versions: Vec<Option<PathBuf>>,
    balancer: Balancer,
    /// The database, if it is one that fails over.
    databases: Option<DatabasePair>,
    counts: Counts,
    /// Programs of servers whose clock is wrong.
    _programs: TempDir,
}

impl Replicas {
    /// Starts them over a new schema.
    ///
    /// # Panics
    /// When there is no database, or something that the plan needs.
    pub async fn start(setting: &Setting, plan: &ReplicaPlan, counts: Counts) -> Self {
        let url = postgres::url()
            .expect("AGENTLOOP_TEST_POSTGRES has the address of a database: tests/with-postgres");
        let databases = if plan.fails_over {
            Some(DatabasePair::start().await.expect("the database is that of tests/with-postgres"))
        } else {
            None
        };
        let database = postgres::in_new_schema(databases.as_ref().map_or(url, DatabasePair::url));
        let folder = tempfile::tempdir().expect("a directory");
        let (mut servers, mut links, mut from_clients) = (Vec::new(), Vec::new(), Vec::new());
        let mut other_versions = Vec::new();
        for at in 0..plan.count {
            let its = Links::start(&database).await;
            let (program, other_version) = plan.programs(folder.path(), at);
            let setting = Setting { program: Some(program), ..its.setting(setting, "readers = 4") };
            let server = Server::start(&setting).await;
            from_clients.push(Proxy::start(server.address()).await);
            links.push(its);
            servers.push(server);
            other_versions.push(other_version);
        }
        let addresses = from_clients.iter().map(|proxy| proxy.address().to_string()).collect();
        let balancer = Balancer::start(addresses).await;
        Self { servers, links, from_clients, other_versions, balancer, databases, counts, _programs: folder }
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
                if let Some(other) = &mut self.other_versions[at] {
                    *other = self.servers[at].run_as(std::mem::take(other));
                    self.counts.count("replicas that went on with the other version");
                }
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
            ReplicaFault::LosePrimary => {
                let databases =
                    self.databases.as_mut().expect("such a fault is of a database that fails over");
                databases.crash_primary().await;
                databases.promote_standby().await;
                databases.replace_standby().await;
            }
        }
    }
}
