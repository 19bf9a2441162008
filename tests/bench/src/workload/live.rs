//! live: many streams at a time, each from a model that speaks at the pace of a real one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use agentloop_client::Client;
use agentloop_client::v1::RunStreamResponse;
use agentloop_client::v1::model_delta::Delta;
use agentloop_client::v1::run_event::Event;

use crate::Failure;
use crate::bed::Bed;
use crate::floor::{self, Said};
use crate::load::{connections, follow, request};
use crate::process::Process;
use crate::role::model::{PIECE, Script};
use crate::setting::Setting;

const NAME: &str = "live";
/// Milliseconds between two pieces of an answer: 50 a second.
const PACE: u64 = 20;
const PIECES_PER_SECOND: u32 = 50;
/// From the first piece of the last stream to the begin of the measurement.
const SETTLE: Duration = Duration::from_secs(2);
/// Length of the measurement.
const WINDOW_SECONDS: u64 = 10;
/// Additional length of each stream, so that all are live during the whole measurement.
const SPARE_SECONDS: u32 = 15;

/// The counts of all streams together.
#[derive(Debug, Default)]
struct Counted {
    /// Streams with a piece.
    begun: AtomicU64,
    /// Pieces, as the model made them; the server may join some to one event.
    pieces: AtomicU64,
    events: AtomicU64,
}

impl Counted {
    /// Pieces and events so far.
    fn count(&self) -> (u64, u64) {
        (self.pieces.load(Ordering::Relaxed), self.events.load(Ordering::Relaxed))
    }
}

pub(crate) async fn run(setting: &mut Setting<'_>) -> Result<(), Failure> {
    let window = setting.scaled(WINDOW_SECONDS);
    let seconds = u32::try_from(window)? + SPARE_SECONDS;
    let script = Script { rounds: 0, deltas: PIECES_PER_SECOND * seconds, pace: PACE, ..Script::W1 };
    for streams in setting.options.live.clone() {
        for _ in 0..setting.options.repeat {
            // A fresh server each time: memory that the streams before took and left would count as nothing.
            let bed = Bed::make(setting, 0).await?;
            follow(&bed.client()?, request(Script { deltas: 20, pace: 0, ..script }), |_| ()).await?;
            measure(setting, &bed, script, streams, Duration::from_secs(window)).await?;
            floors(setting, &bed, script, streams).await?;
            bed.end().await?;
        }
    }
    Ok(())
}

async fn measure(
    setting: &mut Setting<'_>,
    bed: &Bed,
    script: Script,
    streams: usize,
    window: Duration,
) -> Result<(), Failure> {
    let clients = bed.clients(connections(streams))?;
    for client in &clients {
        client.is_ready().await?;
    }
    let idle = bed.server.resident()?;
    let shown = Arc::<Counted>::default();
    let tasks: Vec<_> = (0..streams)
        .map(|at| tokio::spawn(watch(clients[at % clients.len()].clone(), script, shown.clone())))
        .collect();
    while shown.begun.load(Ordering::Relaxed) < streams as u64 {
        if tasks.iter().any(tokio::task::JoinHandle::is_finished) {
            return Err("a stream ended before all had begun".into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(SETTLE).await;
    let (began, used, before) = (Instant::now(), bed.server.usage()?, shown.count());
    tokio::time::sleep(window).await;
    let (took, used, after) = (began.elapsed(), bed.server.usage()?.since(used), shown.count());
    let resident = bed.server.resident()?.saturating_sub(idle);
    if tasks.iter().any(tokio::task::JoinHandle::is_finished) {
        return Err("a stream ended within the measurement".into());
    }
    let (pieces, events) = ((after.0 - before.0) as f64, (after.1 - before.1) as f64);
    let load = streams.to_string();
    let mut add = |what, unit, value: f64| setting.report.add(NAME, &load, what, unit, value);
    add("CPU per delta", "µs", used.cpu as f64 / 1e3 / pieces);
    add("deltas of a stream", "1/s", pieces / streams as f64 / took.as_secs_f64());
    add("events per delta", "", events / pieces);
    add("resident memory per live run", "KiB", resident as f64 / 1024.0 / streams as f64);
    add("thread switches per delta", "", used.switches as f64 / pieces);
    // Nobody reads the rest of the answers: the runs end by themselves.
    for task in tasks {
        task.await??;
    }
    Ok(())
}

async fn watch(client: Client, script: Script, shown: Arc<Counted>) -> Result<(), Failure> {
    let mut begun = false;
    let each = |response: &RunStreamResponse| {
        let Some(Event::ModelDelta(delta)) = response.event.as_ref().and_then(|event| event.event.as_ref())
        else {
            return;
        };
        let Some(Delta::Text(text)) = &delta.delta else { return };
        if !std::mem::replace(&mut begun, true) {
            shown.begun.fetch_add(1, Ordering::Relaxed);
        }
        shown.pieces.fetch_add((text.len() / PIECE.len()) as u64, Ordering::Relaxed);
        shown.events.fetch_add(1, Ordering::Relaxed);
    };
    follow(&client, request(script), each).await?;
    Ok(())
}

/// The same answers, read at the same pace and as many at a time, with nothing around it; and the same events, streamed
/// by a bare server at that pace.
async fn floors(setting: &mut Setting<'_>, bed: &Bed, script: Script, streams: usize) -> Result<(), Failure> {
    let script = Script { deltas: PIECES_PER_SECOND * 5, ..script };
    let (load, deltas) = (streams.to_string(), f64::from(script.deltas));
    let args = ["role", "floor-read", &bed.model, bed.format.name(), &script.prompt(), &load, &load];
    let reader = Process::start(&std::env::current_exe()?, &args.map(std::ffi::OsStr::new))?;
    let read: Said = serde_json::from_str(&reader.result().await?)?;

    let dir = tempfile::tempdir()?;
    let file = dir.path().join("frames");
    let mut frames = Vec::new();
    follow(&bed.client()?, request(script), |frame| frames.push(frame.clone())).await?;
    floor::stream::save(&frames, &file)?;
    let (server, url) = Process::role(&["floor-stream", &file.to_string_lossy(), &PACE.to_string()]).await?;
    let clients: Vec<_> =
        (0..connections(streams)).map(|_| Client::connect(&url)).collect::<Result<_, _>>()?;
    let before = server.usage()?;
    let tasks: Vec<_> = (0..streams)
        .map(|at| {
            let client = clients[at % clients.len()].clone();
            tokio::spawn(async move { follow(&client, request(script), |_| ()).await })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    let streamed = server.usage()?.since(before).cpu as f64 / streams as f64;
    let mut add = |what, value: f64| setting.report.add(NAME, &load, what, "µs", value / 1e3 / deltas);
    add("floor: CPU per delta read", read.cpu_per_run);
    add("floor: CPU per delta streamed", streamed);
    Ok(())
}
