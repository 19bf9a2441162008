//! Very many runs that wait for a human: what they cost while nobody decides.

use std::time::{Duration, Instant};

use agentloop_client::Client;
use agentloop_client::v1 as wire;
use futures_util::{StreamExt as _, stream};
use wire::decision::Decision;

use crate::input::in_session;
use crate::load::brain::{Brain, Temper, prompt};
use crate::load::script::{POST, Script, wish};
use crate::load::world::setting;
use crate::model::Model;
use crate::process::eventually;
use crate::process::follow::decide;
use crate::process::host::Host;
use crate::process::server::Server;

/// Runs that are started at a time.
const TOGETHER: usize = 64;
/// Runs that are resumed, all over the file.
const RESUMED: u64 = 21;
/// Memory counts as settled when it has not changed for this long.
const SETTLED: Duration = Duration::from_secs(2);

/// The measured cost of parked runs.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// Number of parked runs.
    pub runs: u64,
    /// Resident memory for each, in bytes: what the last three quarters of them added. By then what a process takes
    /// once, such as the database's caches, is mostly there.
    pub resident_bytes: f64,
    /// On disk for each, in bytes.
    pub disk_bytes: f64,
    /// Resident memory of the process that has parked them, and of one that was started with them, in bytes.
    pub resident_total: [u64; 2],
    /// From the start of a process, after the one before was killed, to its first answer.
    pub restart: Duration,
    /// From a decision to the run's end, with a host and a model that take no time: the median of some runs.
    pub resume: Duration,
    /// Runs parked in a second.
    pub per_second: f64,
}

/// Parks this many runs and measures their cost.
///
/// # Panics
/// When one of them does not park, or does not go on.
pub async fn measure(runs: u64) -> Cost {
    let (model, brain) = (Model::start().await, Brain::default());
    brain.drive(&model, Temper { fails: 0, thinks_ms: 0 }, 1);
    let mut server = Server::start(&setting(&model)).await;
    let _host = Host::start(&server, "h-1").await;
    let client = server.client();
    let first = runs / 4;
    park(&client, &brain, 0..first).await;
    let before = settled(server.pid()).await;
    let begin = Instant::now();
    park(&client, &brain, first..runs).await;
    let rest = (runs - first) as f64;
    let per_second = rest / begin.elapsed().as_secs_f64();
    let full = settled(server.pid()).await;

    let resident_bytes = (full as f64 - before as f64) / rest;
    server.kill().await;
    let begin = Instant::now();
    server.start_again().await;
    client.list_pending(wire::ListPendingRequest::default()).await.expect("listed");
    let restart = begin.elapsed();
    let resident_total = [full, settled(server.pid()).await];
    // The write-ahead log, whose size says nothing, is moved into the file at the end.
    let (code, said) = server.terminate().await;
    assert_eq!(code, 0, "{said}");
    let disk_bytes = server.file("agentloop.db").metadata().expect("a file").len() as f64 / runs as f64;
    server.start_again().await;
    // The time that the host takes to come back is not measured.
    server.host_is("h-1", wire::HostHealth::Connected).await;
    let mut resumed = Vec::new();
    for number in 0..RESUMED {
        resumed.push(resume(&client, &format!("r-k{}", number * runs / RESUMED)).await);
    }
    resumed.sort();
    let resume = resumed[resumed.len() / 2];
    Cost { runs, resident_bytes, disk_bytes, resident_total, restart, resume, per_second }
}

/// Parks the runs of these numbers.
///
/// # Panics
/// When one of them does not park.
pub async fn park(client: &Client, brain: &Brain, numbers: std::ops::Range<u64>) {
    let script = Script::of(&[&[wish(POST, 0)]]);
    let parked = stream::iter(numbers).map(|number| {
        let key = format!("k{number}");
        brain.learn(&key, script.clone());
        async move {
            let input = in_session(&format!("s-{key}"), &format!("r-{key}"), &prompt(&key));
            let result = client.run(input).await.expect("a result");
            assert_eq!(result.status(), wire::RunStatus::AwaitingHuman, "{result:?}");
        }
    });
    parked.buffer_unordered(TOGETHER).collect::<()>().await;
}

pub(crate) async fn resume(client: &Client, run: &str) -> Duration {
    let asked = client.get_run(run).await.expect("it is there").pending.pop().expect("it waits");
    let begin = Instant::now();
    decide(client, &asked, Decision::Approve(wire::Approve {})).await;
    let mut events = client.subscribe(run, 0).await.expect("followed");
    while let Some(event) = events.next().await {
        event.expect("the stream holds");
    }
    begin.elapsed()
}

/// The process's resident memory, once it does not change any more.
async fn settled(pid: u32) -> u64 {
    let (mut bytes, mut since) = (resident(pid), Instant::now());
    eventually("memory to settle", || {
        let now = resident(pid);
        if now.abs_diff(bytes) > 64 * 1024 {
            (bytes, since) = (now, Instant::now());
        }
        let settled = (since.elapsed() > SETTLED).then_some(now);
        async move { settled }
    })
    .await
}

fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a running process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    let kilobytes = line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number");
    kilobytes * 1024
}
