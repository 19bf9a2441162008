//! The work of a run of W1 at this server and at Restate, in turns, with the same model server: see the README beside it.

mod children;
mod load;
mod service;
mod spent;

use std::error::Error;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentloop_client::Client;
use serde_json::json;

use crate::children::Process;
use crate::load::Engine;

/// Runs that are made before anything is counted.
const WARM_UP: u32 = 400;
/// Tries to reach an engine that starts, and the time between two.
const TRIES: u32 = 300;
const PAUSE: Duration = Duration::from_millis(100);
/// Ports of the other engine and of its service. Nothing else of this comparison has a fixed one.
const INGRESS: u16 = 18080;
const ADMIN: u16 = 19070;
const NODE: u16 = 15122;
const SERVICE: u16 = 19080;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["service", model] => service::serve(SERVICE, model).await,
        [agentloop, bench, restate, callers, runs, repeat] => {
            let programs = [agentloop, bench, restate].map(|path| std::path::absolute(path));
            let [agentloop, bench, restate] = programs;
            let programs = Programs { agentloop: agentloop?, bench: bench?, restate: restate? };
            compare(&programs, callers.parse()?, runs.parse()?, repeat.parse()?).await
        }
        _ => {
            Err("usage: agentloop-compare AGENTLOOP AGENTLOOP-BENCH RESTATE-SERVER CALLERS RUNS REPEAT"
                .into())
        }
    }
}

struct Programs {
    agentloop: PathBuf,
    bench: PathBuf,
    restate: PathBuf,
}

/// One way to make a run, with the processes whose time is counted.
struct Way {
    name: &'static str,
    engine: Engine,
    counted: Vec<Counted>,
}

/// A process whose processor time counts.
struct Counted {
    name: &'static str,
    pid: u32,
    with_children: bool,
}

impl Counted {
    fn alone(name: &'static str, pid: u32) -> Self {
        Self { name, pid, with_children: false }
    }

    fn spent(&self) -> Result<f64, Box<dyn Error>> {
        if self.with_children { spent::of_family(self.pid) } else { spent::of(self.pid) }
    }
}

async fn compare(programs: &Programs, callers: u32, runs: u32, repeat: u32) -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("agentloop-compare-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let compared = compare_in(&folder, programs, callers, runs, repeat).await;
    std::fs::remove_dir_all(&folder)?;
    compared
}

async fn compare_in(
    folder: &Path,
    programs: &Programs,
    callers: u32,
    runs: u32,
    repeat: u32,
) -> Result<(), Box<dyn Error>> {
    let ready = |line: &str| line.strip_prefix("ready ").map(str::to_owned);
    let (_model, model) = Process::start(programs.bench.as_ref(), &["role", "model"], folder, ready).await?;
    let mut kept = Vec::new();
    let mut ways =
        vec![with_agentloop("agentloop, SQLite", folder, programs, &model, None, &mut kept).await?];
    if let Ok(url) = std::env::var("AGENTLOOP_TEST_POSTGRES") {
        ways.push(
            with_agentloop("agentloop, PostgreSQL", folder, programs, &model, Some(&url), &mut kept).await?,
        );
    }
    ways.extend(with_restate(folder, programs, &model, &mut kept).await?);
    for way in &ways {
        way.engine.drive(callers, WARM_UP).await?;
    }
    println!("| | {callers} callers | CPU per run, ms | of which | runs a second | p50, ms | p99, ms |");
    println!("|---|---|---|---|---|---|---|");
    for repetition in 1..=repeat {
        for way in &ways {
            println!("| {repetition} {}", measured(way, callers, runs).await?);
        }
    }
    idle(&ways).await
}

/// Makes the runs, and returns the rest of a row of the table.
async fn measured(way: &Way, callers: u32, runs: u32) -> Result<String, Box<dyn Error>> {
    let before = way.counted.iter().map(Counted::spent).collect::<Result<Vec<_>, _>>()?;
    let (took, times) = way.engine.drive(callers, runs).await?;
    let (mut all, mut parts) = (0.0, Vec::new());
    for (counted, before) in way.counted.iter().zip(before) {
        let each = (counted.spent()? - before) * 1e3 / f64::from(runs);
        all += each;
        parts.push(format!("{} {each:.2}", counted.name));
    }
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    let rate = f64::from(runs) / took.as_secs_f64();
    let (parts, p50, p99) = (parts.join(", "), at(0.5), at(0.99));
    Ok(format!("| {} | {all:.2} | {parts} | {rate:.0} | {p50:.1} | {p99:.1} |", way.name))
}

/// Tells what the processes take while nobody calls.
async fn idle(ways: &[Way]) -> Result<(), Box<dyn Error>> {
    let counted: Vec<&Counted> = ways.iter().flat_map(|way| &way.counted).collect();
    let before = counted.iter().map(|counted| counted.spent()).collect::<Result<Vec<_>, _>>()?;
    let time = Duration::from_secs(5);
    tokio::time::sleep(time).await;
    for (counted, before) in counted.iter().zip(before) {
        let each = (counted.spent()? - before) * 1e3 / time.as_secs_f64();
        println!("idle: {} takes {each:.0} ms of CPU in a second", counted.name);
    }
    Ok(())
}

async fn with_agentloop(
    name: &'static str,
    folder: &Path,
    programs: &Programs,
    model: &str,
    database: Option<&str>,
    kept: &mut Vec<Process>,
) -> Result<Way, Box<dyn Error>> {
    let folder = folder.join(if database.is_some() { "postgres" } else { "sqlite" });
    std::fs::create_dir_all(&folder)?;
    let store = database.map_or("path = \"compare.db\"".to_owned(), |url| format!("url = \"{url}\""));
    // As for the benchmark W1.
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[store]\n{store}\n[log]\nlevel = \"warn\"\n\
         [providers.bench]\nkind = \"openai\"\nbase_url = \"http://{model}/v1\"\n\
         [agents.default]\nmodel = \"bench/m\"\n"
    );
    std::fs::write(folder.join("agentloop.toml"), config)?;
    let listens =
        |line: &str| Some(line.split_once("agentloop listens on ")?.1.split_whitespace().next()?.to_owned());
    let args = ["serve", "--config", "agentloop.toml"];
    let (server, url) = Process::start(programs.agentloop.as_ref(), &args, &folder, listens).await?;
    let connected = |line: &str| line.strip_prefix("ready ").map(drop);
    let args = ["role", "host", &url, "1"];
    let (host, ()) = Process::start(programs.bench.as_ref(), &args, &folder, connected).await?;
    let client = Client::connect(&url)?;
    let mut counted = vec![Counted::alone("server", server.pid)];
    if database.is_some() {
        let data = std::env::var("AGENTLOOP_TEST_POSTGRES_DATA")?;
        let file = std::fs::read_to_string(Path::new(&data).join("postmaster.pid"))?;
        let pid = file.lines().next().ok_or("an empty file")?.parse()?;
        counted.push(Counted { name: "PostgreSQL", pid, with_children: true });
    }
    kept.extend([server, host]);
    Ok(Way { name, engine: Engine::Agentloop(client), counted })
}

async fn with_restate(
    folder: &Path,
    programs: &Programs,
    model: &str,
    kept: &mut Vec<Process>,
) -> Result<[Way; 2], Box<dyn Error>> {
    let config = folder.join("restate.toml");
    // All else is the default: each record waits for the disk.
    let text = format!(
        "bind-address = \"127.0.0.1:{NODE}\"\nadvertised-address = \"http://127.0.0.1:{NODE}/\"\nbase-dir = \"restate\"\n\
         [ingress]\nbind-address = \"127.0.0.1:{INGRESS}\"\n[admin]\nbind-address = \"127.0.0.1:{ADMIN}\"\n"
    );
    std::fs::write(&config, text)?;
    let args = ["--config-file", "restate.toml", "--no-logo", "--listen-mode", "tcp"];
    let (restate, ()) = Process::start(programs.restate.as_ref(), &args, folder, |_| Some(())).await?;
    let this = std::env::current_exe()?;
    let this: &OsStr = this.as_ref();
    let service = tokio::process::Command::new(this).args(["service", model]).kill_on_drop(true).spawn()?;
    let service = Process::of(service)?;
    let http = reqwest::Client::new();
    let deployment = json!({ "uri": format!("http://127.0.0.1:{SERVICE}/"), "force": true });
    let mut tries = 0;
    loop {
        let sent = http.post(format!("http://127.0.0.1:{ADMIN}/deployments")).json(&deployment).send().await;
        match sent.and_then(reqwest::Response::error_for_status) {
            Ok(_) => break,
            Err(error) if tries == TRIES => return Err(error.into()),
            Err(_) => tries += 1,
        }
        tokio::time::sleep(PAUSE).await;
    }
    let counted =
        || vec![Counted::alone("restate-server", restate.pid), Counted::alone("its service", service.pid)];
    let way = |name, handler| Way {
        name,
        engine: Engine::Restate {
            http: http.clone(),
            handler: format!("http://127.0.0.1:{INGRESS}/Agent/{handler}"),
        },
        counted: counted(),
    };
    let ways = [way("Restate, tool as a step", "near"), way("Restate, tool as a service", "apart")];
    kept.extend([restate, service]);
    Ok(ways)
}
