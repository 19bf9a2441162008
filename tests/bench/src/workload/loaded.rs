//! The workloads that are runs, many at a time: W1, W10, WS and WH, beside their floors.

use std::time::{Duration, Instant};

use agentloop_client::v1::RunStreamResponse;
use tempfile::TempDir;

use crate::Failure;
use crate::bed::Bed;
use crate::floor::{self, Said};
use crate::load::{self, Seen, connections, drive, request};
use crate::measure::percentile;
use crate::process::{Process, Usage};
use crate::role::model::Script;
use crate::setting::Setting;

/// The pace of a model that is read as it speaks, for what deltas are late by.
const PACE: u64 = 3;
/// The server's counters of what it made durable.
const APPENDS: &str = "agentloop_store_appends_total";
const COMMITS: &str = "agentloop_store_commits_total";
/// Runs that are made before anything is counted.
const WARM_UP: u64 = 100;

/// Measures a script at each concurrency, with this many hosts.
pub(crate) async fn run(
    setting: &mut Setting<'_>,
    name: &'static str,
    script: Script,
    hosts: usize,
) -> Result<(), Failure> {
    let bed = Bed::make(setting, hosts).await?;
    let floor = Floor::record(&bed, script).await?;
    for concurrency in setting.options.concurrency.clone() {
        let runs = setting.scaled(runs_of(script, concurrency));
        bed.server.forget_peak()?;
        drive(&bed.clients(connections(concurrency))?, concurrency, WARM_UP.min(runs), move || {
            request(script)
        })
        .await?;
        for _ in 0..setting.options.repeat {
            measure(setting, name, &bed, script, concurrency, runs).await?;
            floors(setting, name, &bed, &floor, script, concurrency, runs).await?;
        }
        let peak = bed.server.peak()? as f64 / 1048576.0;
        setting.report.add(name, &concurrency.to_string(), "peak resident memory", "MiB", peak);
    }
    commits(setting, name, script, hosts).await?;
    if script.rounds == 0 {
        lateness(setting, name, &bed, &floor, script).await?;
    }
    setting.report.add(
        name,
        "1",
        "settled resident memory",
        "MiB",
        bed.server.resident()? as f64 / 1048576.0,
    );
    bed.end().await
}

/// Measures how many runs share a commit. Uses a server of its own with metrics, so that they cost the others nothing.
async fn commits(
    setting: &mut Setting<'_>,
    name: &'static str,
    script: Script,
    hosts: usize,
) -> Result<(), Failure> {
    let bed = Bed::counted(setting, hosts).await?;
    for concurrency in setting.options.concurrency.clone() {
        let runs = setting.scaled(runs_of(script, concurrency));
        let clients = bed.clients(connections(concurrency))?;
        drive(&clients, concurrency, WARM_UP.min(runs), move || request(script)).await?;
        let before = (bed.counter(APPENDS).await?, bed.counter(COMMITS).await?);
        drive(&clients, concurrency, runs, move || request(script)).await?;
        let after = (bed.counter(APPENDS).await?, bed.counter(COMMITS).await?);
        let (appends, commits) = (after.0 - before.0, after.1 - before.1);
        let load = concurrency.to_string();
        setting.report.add(name, &load, "appends per run", "", appends / runs as f64);
        setting.report.add(name, &load, "appends per commit", "", appends / commits);
    }
    bed.end().await
}

/// Enough for some seconds.
fn runs_of(script: Script, concurrency: usize) -> u64 {
    let runs = match concurrency {
        0..4 => 300,
        4..32 => 2_000,
        _ => 4_000,
    };
    runs / u64::from(script.rounds + 1).div_ceil(2)
}

async fn measure(
    setting: &mut Setting<'_>,
    name: &'static str,
    bed: &Bed,
    script: Script,
    concurrency: usize,
    runs: u64,
) -> Result<(), Failure> {
    let clients = bed.clients(connections(concurrency))?;
    // Connections are made with the first call.
    for client in &clients {
        client.is_ready().await?;
    }
    let before = bed.server.usage()?;
    let began = Instant::now();
    let seen = drive(&clients, concurrency, runs, move || request(script)).await?;
    let took = began.elapsed();
    let used = bed.server.usage()?.since(before);
    add(setting, name, concurrency, &seen, took, used);
    Ok(())
}

fn add(
    setting: &mut Setting<'_>,
    name: &'static str,
    concurrency: usize,
    seen: &[Seen],
    took: Duration,
    used: Usage,
) {
    let runs = seen.len() as f64;
    let latency = |share| percentile(seen.iter().map(|seen| seen.whole.as_secs_f64() * 1e3), share);
    let deltas = f64::from(seen.iter().map(|seen| seen.deltas).sum::<u32>());
    let load = concurrency.to_string();
    let mut add = |what, unit, value| setting.report.add(name, &load, what, unit, value);
    add("server CPU per run", "ms", used.cpu as f64 / 1e6 / runs);
    add("runs", "1/s", runs / took.as_secs_f64());
    add("p50", "ms", latency(0.5));
    add("p99", "ms", latency(0.99));
    add("written per run", "KiB", used.written as f64 / 1024.0 / runs);
    add("thread switches per run", "", used.switches as f64 / runs);
    add("deltas shown per run", "", deltas / runs);
}

/// The input of the floors: the frames and rows of one run.
struct Floor {
    dir: TempDir,
}

impl Floor {
    /// Makes one run, and keeps its frames and its rows.
    async fn record(bed: &Bed, script: Script) -> Result<Floor, Failure> {
        let dir = tempfile::tempdir()?;
        let mut frames: Vec<RunStreamResponse> = Vec::new();
        load::follow(&bed.client()?, request(script), |frame| frames.push(frame.clone())).await?;
        let run = frames.first().and_then(|frame| frame.event.as_ref()).ok_or("no event")?.run_id.clone();
        floor::stream::save(&frames, &dir.path().join("frames"))?;
        let rows = bed.payloads(&run).await?;
        std::fs::write(dir.path().join("rows"), serde_json::to_vec(&rows)?)?;
        Ok(Floor { dir })
    }

    fn file(&self, name: &str) -> String {
        self.dir.path().join(name).to_string_lossy().into_owned()
    }
}

/// The measured costs of the floors.
struct Bare {
    read: Said,
    commit: Said,
    /// The calls to a tool host; nothing where the script has none.
    round_trip: Option<Said>,
    /// Nanoseconds of CPU for one run's frames.
    stream: f64,
    streamed: Vec<Seen>,
}

async fn bare(
    bed: &Bed,
    floor: &Floor,
    script: Script,
    concurrency: usize,
    runs: u64,
) -> Result<Bare, Failure> {
    let (load, count, appends) = (concurrency.to_string(), runs.to_string(), script.appends().to_string());
    let read = ended(&["floor-read", &bed.model, bed.format.name(), &script.prompt(), &load, &count]).await?;
    let commit = ended(&["floor-commit", &floor.file("rows"), &appends, &load, &count]).await?;
    let rounds = script.rounds.to_string();
    let round_trip = match script.rounds {
        0 => None,
        _ => Some(ended(&["floor-round-trip", &rounds, &load, &count]).await?),
    };
    let (server, url) = Process::role(&["floor-stream", &floor.file("frames")]).await?;
    let clients: Vec<_> = (0..connections(concurrency))
        .map(|_| agentloop_client::Client::connect(&url))
        .collect::<Result<_, _>>()?;
    drive(&clients, concurrency, 10, move || request(script)).await?;
    let before = server.usage()?;
    let streamed = drive(&clients, concurrency, runs, move || request(script)).await?;
    let stream = server.usage()?.since(before).cpu as f64 / runs as f64;
    Ok(Bare { read, commit, round_trip, stream, streamed })
}

async fn floors(
    setting: &mut Setting<'_>,
    name: &'static str,
    bed: &Bed,
    floor: &Floor,
    script: Script,
    concurrency: usize,
    runs: u64,
) -> Result<(), Failure> {
    let Bare { read, commit, round_trip, stream, streamed } =
        bare(bed, floor, script, concurrency, runs).await?;
    let load = concurrency.to_string();
    let mut add = |what, value: f64| setting.report.add(name, &load, what, "ms", value / 1e6);
    add("floor: CPU to read the model", read.cpu_per_run);
    add("floor: CPU to commit", commit.cpu_per_run);
    add("floor: CPU to stream", stream);
    let (calls, calling) = round_trip.as_ref().map_or((0.0, 0.0), |said| (said.cpu_per_run, said.p50));
    add("floor: CPU to call the tool host", calls);
    add("floor: CPU together", read.cpu_per_run + commit.cpu_per_run + stream + calls);
    let streaming = percentile(streamed.iter().map(|seen| seen.whole.as_nanos() as f64), 0.5);
    add("floor: p50 of them in turn", read.p50 + commit.p50 + streaming + calling);
    Ok(())
}

async fn ended(args: &[&str]) -> Result<Said, Failure> {
    let args: Vec<_> =
        std::iter::once("role").chain(args.iter().copied()).map(std::ffi::OsStr::new).collect();
    let process = Process::start(&std::env::current_exe()?, &args)?;
    Ok(serde_json::from_str(&process.result().await?)?)
}

/// Measures the delay of the first piece compared with reading a slow model directly.
async fn lateness(
    setting: &mut Setting<'_>,
    name: &'static str,
    bed: &Bed,
    floor: &Floor,
    script: Script,
) -> Result<(), Failure> {
    let script = Script { pace: PACE, ..script };
    let runs = setting.scaled(20);
    let client = bed.clients(1)?;
    for _ in 0..setting.options.repeat {
        let Bare { read, commit, streamed, .. } = bare(bed, floor, script, 1, runs).await?;
        let before = bed.server.usage()?;
        let seen = drive(&client, 1, runs, move || request(script)).await?;
        let used = bed.server.usage()?.since(before).cpu as f64;
        let first = |seen: &[Seen]| percentile(seen.iter().map(|seen| seen.first.as_secs_f64() * 1e3), 0.5);
        let deltas = runs as f64 * f64::from(script.deltas);
        let mut add = |what, unit, value: f64| setting.report.add(name, "1", what, unit, value);
        add("paced: first delta after direct read", "ms", first(&seen) - read.first / 1e6);
        add("paced: floor: one commit and one frame", "ms", commit.first / 1e6 + first(&streamed));
        add("paced: CPU per delta", "µs", used / 1e3 / deltas);
        add("paced: floor: CPU per delta read", "µs", read.cpu_per_run * runs as f64 / 1e3 / deltas);
    }
    Ok(())
}
