//! Very many parked runs on several replicas: what the database is asked while nobody decides, and how long a takeover takes.

use std::time::{Duration, Instant};

use agentloop_client::v1 as wire;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use crate::load::brain::{Brain, Temper};
use crate::load::world::setting;
use crate::model::Model;
use crate::owners::Owners;
use crate::parked::{park, resume};
use crate::postgres;
use crate::process::balancer::Balancer;
use crate::process::host::Host;
use crate::process::processor_time;
use crate::process::server::{Leases, Server, Setting, patient};

/// Time for which the statements of idle replicas are counted.
const IDLE: Duration = Duration::from_secs(60);
/// Runs that are resumed after the takeover, all over the database.
const RESUMED: u64 = 21;

/// The measured cost of parked runs on replicas.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// Number of runs that waited for a human.
    pub runs: u64,
    /// Number of replicas over the database.
    pub replicas: usize,
    /// Transactions a second, divided by the number of replicas, while nothing happens. The database's own cleaning after so many
    /// writes is among them, so the log of the database says more exactly what replicas ask.
    pub idle_transactions: f64,
    /// Processor time of a replica in a second of that, in microseconds: the owner's, and the mean of the others.
    pub idle_micros: [f64; 2],
    /// Size of the database for each run, in bytes.
    pub database_bytes: f64,
    /// From SIGKILL to the owner until the next one tells which questions are open.
    pub taken_over: Duration,
    /// From SIGKILL to the owner until the first approved run has ended.
    pub first_resumed: Duration,
    /// From a decision to the run's end after that: the median of some runs.
    pub resume: Duration,
}

/// Parks this many runs on so many replicas, leaves them alone for a minute, and kills the owner.
///
/// # Panics
/// When there is no database, one of them does not park, or does not go on.
pub async fn measure(runs: u64, replicas: usize) -> Cost {
    let url =
        postgres::url().expect("AGENTLOOP_TEST_POSTGRES has the address of a database: tests/with-postgres");
    let (model, brain) = (Model::start().await, Brain::default());
    brain.drive(&model, Temper { fails: 0, thinks_ms: 0 }, 1);
    let schema = postgres::in_new_schema(url.clone());
    let setting = Setting {
        store: Some(format!("url = \"{schema}\"")),
        more: "[cluster]\nlisten = \"127.0.0.1:0\"\n".to_owned(),
        leases: Leases::EndAfter("6s"),
        ..setting(&model)
    };
    let mut servers = Vec::new();
    for _ in 0..replicas {
        servers.push(Server::start(&setting).await);
    }
    let balancer = Balancer::start(servers.iter().map(Server::address).collect()).await;
    let client = patient(balancer.url()).build().expect("a good address");
    let _host = Host::start_at(&servers[0], "h-1", &balancer.url()).await;
    park(&client, &brain, 0..runs).await;
    let mut owners = Owners::of(&schema).await;
    owners.shared_by(replicas).await;
    let owner = owners.hub(&servers).await.expect("one of them keeps the hosts");

    let mut database =
        url.parse::<PgConnectOptions>().expect("an address").connect().await.expect("it is up");
    let transactions = async |database: &mut sqlx::PgConnection| -> i64 {
        let sum =
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
        sqlx::query_scalar(sum).fetch_one(database).await.expect("it counts")
    };
    let spent = || servers.iter().map(|server| processor_time(server.pid())).collect::<Vec<_>>();
    // Backends tell their counts once a second.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (before, used) = (transactions(&mut database).await, spent());
    tokio::time::sleep(IDLE).await;
    let (after, used_after) = (transactions(&mut database).await, spent());
    let of_one = |at: usize| (used_after[at] - used[at]).as_secs_f64() * 1e6 / IDLE.as_secs_f64();
    let others: Vec<f64> = (0..replicas).filter(|at| *at != owner).map(of_one).collect();
    let idle_micros = [of_one(owner), others.iter().sum::<f64>() / others.len().max(1) as f64];
    let size = sqlx::query_scalar::<_, i64>("SELECT pg_database_size(current_database())");
    let database_bytes = size.fetch_one(&mut database).await.expect("it has one") as f64 / runs as f64;
    database.close().await.expect("it closes");

    balancer.set(owner, false);
    let begin = Instant::now();
    servers[owner].kill().await;
    client.list_pending(wire::ListPendingRequest::default()).await.expect("listed");
    let taken_over = begin.elapsed();
    resume(&client, "r-k0").await;
    let first_resumed = begin.elapsed();
    let mut resumed = Vec::new();
    for number in 1..RESUMED {
        resumed.push(resume(&client, &format!("r-k{}", number * runs / RESUMED)).await);
    }
    resumed.sort();
    Cost {
        runs,
        replicas,
        idle_transactions: (after - before) as f64 / IDLE.as_secs_f64() / replicas as f64,
        idle_micros,
        database_bytes,
        taken_over,
        first_resumed,
        resume: resumed[resumed.len() / 2],
    }
}
