//! Short runs while one replica after the other is stopped and begins anew, as in a rolling deploy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use agentloop_client::Client;
use agentloop_client::v1::run_event::Event;
use agentloop_client::v1::{RunEvent, RunStatus};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::failover::{AtWork, REPLICAS, event_name};
use crate::model::{Answer, Model};
use crate::owners::Owners;
use crate::postgres;
use crate::process::server::{Leases, Setting, input, patient};

/// Time of usual work before each stop.
const BETWEEN: Duration = Duration::from_secs(3);
/// Pauses that are told one by one.
const LONGEST: usize = 10;

/// The runs as their callers saw them. Times are in milliseconds.
#[derive(Debug)]
pub struct Rolled {
    /// Number of runs that the callers followed, to whatever end.
    pub runs: usize,
    /// Runs that failed, or whose call did.
    pub failed: Vec<String>,
    /// Durable events that a caller saw twice or not at all.
    pub out_of_order: usize,
    /// Runs that were under way when a replica was told to stop. Their pauses are the longest times in which a caller saw no
    /// durable event, from its call to the end of the run.
    pub stopped_runs: usize,
    /// Half of their pauses are shorter.
    pub p50: u128,
    /// 99 of 100 are shorter.
    pub p99: u128,
    /// The longest of them.
    pub max: u128,
    /// The same for all other runs: half, 99 of 100, and all.
    pub usual: [u128; 3],
    /// The longest pauses of all: their time, the event before and the one after.
    pub longest: Vec<(u128, String)>,
}

/// A run as its caller saw it.
struct Seen {
    began: Instant,
    ended: Instant,
    pause: Duration,
    /// The durable events before and after the pause.
    around: (String, String),
    out_of_order: usize,
    failure: Option<String>,
}

/// Has so many callers make runs of two model calls and a tool call, one after the other, while replicas are stopped so many
/// times, in turn.
///
/// # Panics
/// When there is no database, or a replica does not end in order.
pub async fn measure(callers: usize, stops: usize) -> Rolled {
    let url =
        postgres::url().expect("AGENTLOOP_TEST_POSTGRES has the address of a database: tests/with-postgres");
    let model = Model::start().await;
    model.forgets().answers(answer);
    let url = postgres::in_new_schema(url);
    let setting = Setting {
        provider: format!("kind = \"openai\"\nbase_url = \"{}\"\n", model.base_url()),
        store: Some(format!("url = \"{url}\"")),
        more: "[cluster]\nlisten = \"127.0.0.1:0\"\n".to_owned(),
        leases: Leases::AsByDefault,
        log_level: "error",
        ..Setting::default()
    };
    let AtWork { mut servers, balancer, serving, client: _ } = AtWork::start(&setting).await;
    let (seen, is_over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let mut calling = JoinSet::new();
    for caller in 0..callers {
        // A connection of its own, to whichever replica comes next.
        let client = patient(balancer.url()).build().expect("a good address");
        let (seen, is_over) = (seen.clone(), is_over.clone());
        calling.spawn(async move {
            let mut number = 0;
            while !is_over.load(Ordering::Relaxed) {
                let run = look(&client, &format!("{caller}-{number}")).await;
                seen.lock().push(run);
                number += 1;
            }
        });
    }
    let (mut owners, mut stopped) = (Owners::of(&url).await, Vec::new());
    for stop in 0..stops {
        owners.shared_by(REPLICAS).await;
        tokio::time::sleep(BETWEEN).await;
        let at = stop % REPLICAS;
        stopped.push(Instant::now());
        balancer.avoid(at);
        let (code, said) = servers[at].terminate().await;
        assert_eq!(code, 0, "{said}");
        servers[at].renew();
        servers[at].start_again().await;
        balancer.set(at, true);
    }
    owners.shared_by(REPLICAS).await;
    is_over.store(true, Ordering::Relaxed);
    while let Some(caller) = calling.join_next().await {
        caller.expect("it calls");
    }
    serving.abort();
    let seen = std::mem::take(&mut *seen.lock());
    rolled(seen, &stopped)
}

fn rolled(seen: Vec<Seen>, stopped: &[Instant]) -> Rolled {
    let (runs, out_of_order) = (seen.len(), seen.iter().map(|run| run.out_of_order).sum());
    let failed = seen.iter().filter_map(|run| run.failure.clone()).collect();
    let is_stopped = |run: &Seen| stopped.iter().any(|stop| run.began <= *stop && *stop <= run.ended);
    let longest = longest(&seen, stopped);
    let (under_way, others): (Vec<_>, Vec<_>) = seen.into_iter().partition(is_stopped);
    let stopped_runs = under_way.len();
    let [p50, p99, max] = parts(&under_way);
    Rolled { runs, failed, out_of_order, stopped_runs, p50, p99, max, usual: parts(&others), longest }
}

/// The longest pauses, with what was before and after each.
fn longest(seen: &[Seen], stopped: &[Instant]) -> Vec<(u128, String)> {
    let mut runs: Vec<&Seen> = seen.iter().collect();
    runs.sort_unstable_by_key(|run| std::cmp::Reverse(run.pause));
    let told = |run: &&Seen| {
        let (before, after) = &run.around;
        let stop = stopped.iter().rposition(|stop| *stop <= run.ended);
        let began = stop.map_or_else(
            || "before the first stop".to_owned(),
            |stop| match run.began.checked_duration_since(stopped[stop]) {
                None => format!("before stop {stop}"),
                Some(since) => format!("{} ms after stop {stop}", since.as_millis()),
            },
        );
        (run.pause.as_millis(), format!("between {before} and {after}; the run began {began}"))
    };
    runs.iter().take(LONGEST).map(told).collect()
}

/// The median of the pauses, the time that 99 of 100 are shorter than, and the longest.
fn parts(seen: &[Seen]) -> [u128; 3] {
    let mut pauses: Vec<u128> = seen.iter().map(|run| run.pause.as_millis()).collect();
    pauses.sort_unstable();
    [50, 99, 100].map(|percent| {
        pauses.get(pauses.len() * percent / 100).or(pauses.last()).copied().unwrap_or_default()
    })
}

/// A call of `look`, then an end.
fn answer(request: &Value) -> Answer {
    let last = request["messages"].as_array().and_then(|messages| messages.last());
    match last.and_then(|message| message["role"].as_str()) {
        Some("tool") => Answer::Says("done".to_owned()),
        _ => Answer::Asks(vec![("look".to_owned(), json!({ "at": 1 }))]),
    }
}

/// Makes a run, and follows it to its end.
async fn look(client: &Client, name: &str) -> Seen {
    let began = Instant::now();
    let mut seen = Seen {
        began,
        ended: began,
        pause: Duration::ZERO,
        around: Default::default(),
        out_of_order: 0,
        failure: None,
    };
    let (mut last, mut at, mut before, mut is_finished) = (0, began, "the call".to_owned(), false);
    match client.run_stream(input(&format!("r-{name}"), &format!("s-{name}"), "Look")).await {
        Err(error) => seen.failure = Some(format!("run {name} does not begin: {error}")),
        Ok(mut stream) => {
            while let Some(event) = stream.next().await {
                let RunEvent { seq, event, .. } = match event {
                    Ok(event) => event,
                    Err(error) => {
                        seen.failure = Some(format!("run {name} is lost: {error}"));
                        break;
                    }
                };
                if seq == 0 {
                    continue;
                }
                seen.out_of_order += usize::from(seq != last + 1);
                let kind = event_name(event.as_ref());
                if at.elapsed() > seen.pause {
                    (seen.pause, seen.around) = (at.elapsed(), (before, kind.clone()));
                }
                (last, at, before) = (seq, Instant::now(), kind);
                if let Some(Event::RunFinished(finished)) = event {
                    is_finished = true;
                    if finished.status() != RunStatus::Completed {
                        seen.failure = Some(format!("run {name} ends with {finished:?}"));
                    }
                }
            }
            if !is_finished && seen.failure.is_none() {
                seen.failure = Some(format!("the stream of run {name} has no end"));
            }
        }
    }
    seen.ended = Instant::now();
    seen
}
