//! The costs of a run at each process of two replicas over one PostgreSQL, which own about half of the sessions each. The inputs of
//! `agentloop_sim::capacity` come from it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use agentloop_client::Client;
use agentloop_client::v1::run_event::Event;
use agentloop_client::v1::{HostHealth, RunInput};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, PgConnection, Row as _};
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::postgres;
use crate::process::child::Process;
use crate::process::server::{Server, Setting};
use crate::process::{built, eventually, processor_time};

/// The benchmark's W1: one tool round and an answer of 20 pieces.
const W1: &str = "rounds=1 deltas=20 pace=0 tool=e";
/// An answer whose pieces come apart, so that each is a delta of its own.
const PACED: &str = "rounds=0 deltas=1000 pace=5 tool=e";
/// Runs of a measured stretch, and those before it.
const RUNS: u32 = 4_000;
const WARM_UP: u32 = 300;
/// Calls of each caller in a measured stretch of unary calls.
const CALLS: u32 = 500;

/// The cost of one run, call or delta, in microseconds of processor time but where it says otherwise.
#[derive(Debug, Clone, Copy)]
pub struct Spent {
    /// The cost in the process of the replica that keeps the tool hosts.
    pub first: f64,
    /// The cost in the other replica.
    pub second: f64,
    /// The cost in the database's process that serves the writing connection of the first.
    pub writing: f64,
    /// The cost in all other processes of the database.
    pub database: f64,
    /// Bytes of the database's log.
    pub wal: f64,
    /// Commits of the first.
    pub commits: f64,
    /// Bytes over loopback: those of callers, model, tool host, database and between replicas.
    pub loopback: f64,
    /// The number of them in a second.
    pub rate: f64,
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spent { first, second, writing, database, wal, commits, loopback, rate } = self;
        write!(
            f,
            "first replica {first:.1} µs, second {second:.1} µs, writing connection {writing:.1} µs, "
        )?;
        write!(f, "rest of the database {database:.1} µs, log {wal:.0} bytes, commits {commits:.3}, ")?;
        write!(f, "loopback {loopback:.0} bytes, {rate:.0}/s")
    }
}

/// Measures with callers at either replica, and tells each stretch as soon as it is done.
///
/// # Panics
/// When there is no database of `tests/with-postgres`, or a call fails.
pub async fn measure(mut tell: impl FnMut(&str, Spent)) {
    let bench = built("agentloop-bench");
    let url =
        postgres::url().expect("AGENTLOOP_TEST_POSTGRES has the address of a database: tests/with-postgres");
    let (_model, address) = role(&bench, &["model"]).await;
    let store = postgres::in_new_schema(url);
    let setting = Setting {
        provider: format!("kind = \"openai\"\nbase_url = \"http://{address}/v1\"\n"),
        store: Some(format!("url = \"{store}\"")),
        server: "max_live_runs = 1000000\n",
        more: "[cluster]\nlisten = \"127.0.0.1:0\"\n".to_owned(),
        log_level: "warn",
        ..Setting::default()
    };
    let first = Server::start(&setting).await;
    let at_first = first.client();
    eventually("a replica", || async { at_first.server_info().await.ok() }).await;
    let second = Server::start(&setting).await;
    let at_second = second.client();
    let mut bed = Bed::of(&store, first.pid(), second.pid()).await;

    let host = Hosting::at(&bench, &first).await;
    bed.runs(&at_first, 64, WARM_UP, W1).await;
    for callers in [1, 4, 16, 64, 256] {
        let runs = if callers < 16 { RUNS / 4 } else { RUNS };
        let (spent, _) = bed.runs(&at_first, callers, runs, W1).await;
        tell(&format!("a run of W1, {callers} callers and the tool host at the first"), spent);
    }
    bed.runs(&at_second, 64, WARM_UP, W1).await;
    for callers in [16, 64] {
        let (spent, _) = bed.runs(&at_second, callers, RUNS, W1).await;
        tell(&format!("the same, {callers} callers at the second"), spent);
    }
    host.ends(&at_first).await;
    let host = Hosting::at(&bench, &second).await;
    bed.runs(&at_first, 64, WARM_UP, W1).await;
    for callers in [16, 64] {
        let (spent, _) = bed.runs(&at_first, callers, RUNS, W1).await;
        tell(&format!("the same, {callers} callers at the first, the tool host at the second"), spent);
        let (spent, _) = bed.runs(&at_second, callers, RUNS, W1).await;
        tell(&format!("the same, {callers} callers and the tool host at the second"), spent);
    }
    host.ends(&at_first).await;
    for (client, place) in [(&at_first, "at the first"), (&at_second, "at the second")] {
        let spent = bed.unary(client, 64).await;
        tell(&format!("a unary call, 64 callers, {place}"), spent);
    }
    for (client, place) in [(&at_first, "at the first"), (&at_second, "at the second")] {
        let (spent, deltas) = bed.runs(client, 32, 32, PACED).await;
        tell(&format!("a delta, 32 callers, {place}"), spent.for_each(32.0 / f64::from(deltas.max(1))));
    }
}

/// The processes of a measurement, and a connection to ask the database.
struct Bed {
    first: u32,
    second: u32,
    db: PgConnection,
    /// The database's first process, whose children are all others.
    postmaster: u32,
}

/// Processor time, and bytes, that the processes have used since they began.
struct Used {
    at: Instant,
    first: Duration,
    second: Duration,
    /// By each process of the database.
    database: BTreeMap<u32, Duration>,
    /// The process of the writing connection of the first.
    writing: u32,
    wal: i64,
    commits: i64,
    loopback: u64,
}

impl Bed {
    async fn of(store: &str, first: u32, second: u32) -> Self {
        let options: PgConnectOptions = store.parse().expect("an address");
        let db = options.connect().await.expect("it can be reached");
        let data = std::env::var_os("AGENTLOOP_TEST_POSTGRES_DATA").expect("tests/with-postgres tells it");
        let file = std::fs::read_to_string(Path::new(&data).join("postmaster.pid")).expect("it runs");
        let postmaster = file.lines().next().and_then(|pid| pid.parse().ok()).expect("it is a number");
        Self { first, second, db, postmaster }
    }

    async fn used(&mut self) -> Used {
        let sql = "SELECT pid, batch, (pg_current_wal_insert_lsn() - '0/0')::bigint AS wal
                   FROM owners WHERE owner_no = (SELECT owner_no FROM ownership)";
        let row = sqlx::query(sql).fetch_one(&mut self.db).await.expect("there is an owner");
        let pid: i32 = row.try_get("pid").expect("a column");
        Used {
            at: Instant::now(),
            first: processor_time(self.first),
            second: processor_time(self.second),
            database: family(self.postmaster),
            writing: pid.unsigned_abs(),
            wal: row.try_get("wal").expect("a column"),
            commits: row.try_get("batch").expect("a column"),
            loopback: loopback(),
        }
    }

    /// The cost of one of `count` since `before`.
    async fn since(&mut self, before: Used, count: u32) -> Spent {
        let now = self.used().await;
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let (mut writing, mut database) = (0.0, 0.0);
        for (pid, time) in now.database {
            let spent = micros(time.saturating_sub(before.database.get(&pid).copied().unwrap_or_default()));
            *(if pid == now.writing { &mut writing } else { &mut database }) += spent;
        }
        let whole = Spent {
            first: micros(now.first - before.first),
            second: micros(now.second - before.second),
            writing,
            database,
            wal: (now.wal - before.wal) as f64,
            commits: (now.commits - before.commits) as f64,
            loopback: (now.loopback - before.loopback) as f64,
            rate: 1.0 / (now.at - before.at).as_secs_f64(),
        };
        whole.for_each(1.0 / f64::from(count))
    }

    /// Makes so many runs with this prompt, and returns the cost of one with the number of deltas of all.
    async fn runs(&mut self, client: &Client, callers: u32, runs: u32, prompt: &'static str) -> (Spent, u32) {
        let before = self.used().await;
        let mut calling = JoinSet::new();
        for caller in 0..callers {
            let client = client.clone();
            let own = runs / callers + u32::from(caller < runs % callers);
            calling.spawn(async move {
                let mut deltas = 0;
                for _ in 0..own {
                    let input = RunInput { prompt: prompt.to_owned(), ..RunInput::default() };
                    let mut stream = client.run_stream(input).await.expect("it starts");
                    while let Some(event) = stream.next().await {
                        deltas +=
                            u32::from(matches!(event.expect("it goes on").event, Some(Event::ModelDelta(_))));
                    }
                }
                deltas
            });
        }
        let deltas = calling.join_all().await.into_iter().sum();
        (self.since(before, runs).await, deltas)
    }

    /// Calls `GetServerInfo`, and returns the cost of a call.
    async fn unary(&mut self, client: &Client, callers: u32) -> Spent {
        let before = self.used().await;
        let mut calling = JoinSet::new();
        for _ in 0..callers {
            let client = client.clone();
            calling.spawn(async move {
                for _ in 0..CALLS {
                    client.server_info().await.expect("it is told");
                }
            });
        }
        calling.join_all().await;
        self.since(before, CALLS * callers).await
    }
}

impl Spent {
    /// The same divided among more or fewer.
    fn for_each(self, factor: f64) -> Self {
        Self {
            first: self.first * factor,
            second: self.second * factor,
            writing: self.writing * factor,
            database: self.database * factor,
            wal: self.wal * factor,
            commits: self.commits * factor,
            loopback: self.loopback * factor,
            rate: self.rate / factor,
        }
    }
}

/// A tool host of the benchmark that serves.
struct Hosting(Process);

impl Hosting {
    async fn at(bench: &Path, server: &Server) -> Self {
        let (process, _) = role(bench, &["host", &format!("http://{}", server.address()), "1"]).await;
        Self(process)
    }

    async fn ends(self, client: &Client) {
        self.0.kill().await;
        eventually("its end", || async {
            let hosts = client.list_hosts().await.ok()?;
            hosts.iter().all(|host| host.health() != HostHealth::Connected).then_some(())
        })
        .await;
    }
}

/// A process of the benchmark, and what it says when it is ready.
async fn role(bench: &Path, args: &[&str]) -> (Process, String) {
    let mut command = Command::new(bench);
    command.arg("role").args(args);
    let mut process = Process::start("agentloop-bench", command);
    let line = process.line_with("ready ").await;
    (process, line.trim_start_matches("ready ").to_owned())
}

/// Processor time of a process and of each of its children that lives.
fn family(first: u32) -> BTreeMap<u32, Duration> {
    let mut found = BTreeMap::from([(first, processor_time(first))]);
    for entry in std::fs::read_dir("/proc").expect("there is one").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process may end while we look.
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let fields: Vec<&str> =
            stat.rsplit_once(") ").map(|(_, fields)| fields.split(' ').collect()).unwrap_or_default();
        if fields.get(1).and_then(|parent| parent.parse::<u32>().ok()) == Some(first) {
            let ticks =
                fields.iter().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum::<u64>();
            found.insert(pid, Duration::from_millis(10 * ticks));
        }
    }
    found
}

/// Bytes that the loopback device has received.
fn loopback() -> u64 {
    let devices = std::fs::read_to_string("/proc/net/dev").expect("there are devices");
    let line = devices.lines().find_map(|line| line.trim_start().strip_prefix("lo:")).expect("loopback");
    line.split_whitespace().next().and_then(|bytes| bytes.parse().ok()).expect("a number")
}
