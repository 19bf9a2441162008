//! The cost of calls that a replica sends on to the owner of a session, and of runs at several replicas.

use std::time::{Duration, Instant};

use agentloop_client::Client;
use agentloop_client::host::ToolHost;
use agentloop_client::v1::run_event::Event;
use agentloop_client::v1::{HostHealth, RunInput};
use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};

use crate::failover::looking_host;
use crate::forwarded_cancels::{CancelWaits, holding_host};
use crate::model::{Answer, Model};
use crate::owners::{Owners, sessions_of};
use crate::postgres;
use crate::process::server::{Server, Setting, input};
use crate::process::{eventually, processor_time};

/// Replicas over the database.
const REPLICAS: usize = 3;
/// Calls of each caller in a measured stretch.
const CALLS: u32 = 500;
/// Runs of each caller in a measured stretch.
const RUNS: u32 = 50;
/// Runs of the one that calls alone.
const RUNS_ALONE: u32 = 300;
/// Pieces of each measured answer.
const PIECES: u32 = 2_000;
/// The time between two pieces: each is a delta of its own.
const PIECE_EVERY: Duration = Duration::from_millis(5);

/// The measured cost, in microseconds of processor time but where it says otherwise. The owner is that of the session which a call
/// is about; sent on means that callers dial another replica, and counts both processes.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// The cost of `GetRun` at the owner.
    pub unary_at_owner: f64,
    /// The same, sent on.
    pub unary_sent_on: f64,
    /// Time of such a call from its begin to its end, at the owner.
    pub unary_wait_at_owner: f64,
    /// The same, sent on.
    pub unary_wait_sent_on: f64,
    /// The cost of a delta at the owner.
    pub delta_at_owner: f64,
    /// The same, sent on.
    pub delta_sent_on: f64,
    /// Deltas that were read from the owner, and from the other.
    pub deltas: [u32; 2],
    /// Time from a call of `RunStream` until its first delta, for one caller at the owner; half of them are shorter.
    pub first_delta_wait_at_owner: f64,
    /// The same, sent on.
    pub first_delta_wait_sent_on: f64,
    /// The cost of a piece of a response that comes as fast as it is read, at the owner. A delta may carry several
    /// pieces.
    pub quick_piece_at_owner: f64,
    /// The same, sent on.
    pub quick_piece_sent_on: f64,
    /// Deltas that carried these pieces, from the owner and from the other.
    pub quick_deltas: [u32; 2],
    /// The cost of a run with one tool call at a replica without others, callers and the tool host there. This and the next two are
    /// means of all rounds.
    pub run_at_one: f64,
    /// The same at three replicas that own a third each, with callers at all of them in turn, and the host at one that does not keep
    /// the hosts: all processes together.
    pub run_at_three: f64,
    /// The same with so many callers at each of the three.
    pub run_at_three_under_load: f64,
    /// Time of such a run with its caller and the tool host at the replica that owns it and keeps the hosts; half of them are
    /// shorter.
    pub run_wait_at_owner: f64,
    /// The same for a caller at an owner that does not keep the hosts, with the host at the third replica.
    pub run_wait_host_apart: f64,
    /// From `Abort` until the tool learns of it, with everything at the replica that owns the run and keeps the hosts.
    pub cancel_at_owner: CancelWaits,
    /// The same with the run at another replica, and the host and `Abort` at the third.
    pub cancel_apart: CancelWaits,
}

/// Makes the same calls at the owners of sessions and at other replicas, by so many callers at a time. Runs at one replica
/// and at three take turns in so many rounds, after one that is not counted.
///
/// # Panics
/// When there is no database, or a call fails.
pub async fn measure(callers: u32, rounds: u32) -> Cost {
    let url =
        postgres::url().expect("AGENTLOOP_TEST_POSTGRES has the address of a database: tests/with-postgres");
    let model = Model::start().await;
    model.forgets().keeps_connections().answers(answer);
    let [alone, url] = [&url, &url].map(|url| postgres::in_new_schema(url.clone()));
    let setting = |url: &str| Setting {
        provider: format!("kind = \"openai\"\nbase_url = \"{}\"\n", model.base_url()),
        store: Some(format!("url = \"{url}\"")),
        more: "[cluster]\nlisten = \"127.0.0.1:0\"\n".to_owned(),
        log_level: "error",
        ..Setting::default()
    };
    let alone = [Server::start(&setting(&alone)).await];
    let at_alone = [alone[0].client()];
    eventually("an owner", || async { at_alone[0].server_info().await.ok() }).await;
    let _host_alone = Hosting::of(looking_host(&url_of(&alone[0])), &at_alone[0]).await;

    let mut servers = Vec::new();
    for _ in 0..REPLICAS {
        servers.push(Server::start(&setting(&url)).await);
    }
    let mut owners = Owners::of(&url).await;
    owners.shared_by(REPLICAS).await;
    let hub = owners.hub(&servers).await.expect("one keeps the hosts");
    let [owner, third] = [(hub + 1) % REPLICAS, (hub + 2) % REPLICAS];
    let clients: Vec<Client> = servers.iter().map(Server::client).collect();
    let host = Hosting::of(looking_host(&url_of(&servers[third])), &clients[third]).await;
    let [mut run_at_one, mut run_at_three, mut run_at_three_under_load] = [0.0; 3];
    for round in 0..=rounds {
        let name = |run: String| format!("{round}-{run}");
        let [one, three] = [
            runs(&at_alone, &alone, callers, RUNS, name).await.0,
            runs(&clients, &servers, callers, RUNS, name).await.0,
        ];
        let load = runs(&clients, &servers, 3 * callers, RUNS, |run| format!("load-{round}-{run}")).await.0;
        if round > 0 {
            let part = 1.0 / f64::from(rounds);
            run_at_one += part * one;
            run_at_three += part * three;
            run_at_three_under_load += part * load;
        }
    }
    let own = sessions_of(&mut owners, &servers, owner, RUNS_ALONE as usize).await;
    let (_, run_wait_host_apart) =
        runs(&clients[owner..=owner], &servers, 1, RUNS_ALONE, in_turn(&own)).await;
    host.ends(&clients[third]).await;
    let of_hub = sessions_of(&mut owners, &servers, hub, RUNS_ALONE as usize).await;
    let host = Hosting::of(looking_host(&url_of(&servers[hub])), &clients[hub]).await;
    let (_, run_wait_at_owner) = runs(&clients[hub..=hub], &servers, 1, RUNS_ALONE, in_turn(&of_hub)).await;
    host.ends(&clients[hub]).await;

    let (unary_at_owner, unary_wait_at_owner) = unary(&clients[owner], &servers, &own[0], callers).await;
    let (unary_sent_on, unary_wait_sent_on) = unary(&clients[third], &servers, &own[0], callers).await;
    let mut measured = Vec::new();
    for prompt in ["Speak", "Chatter"] {
        for client in [&clients[owner], &clients[third]] {
            measured.push(deltas(client, &servers, &own, prompt, callers).await);
        }
    }
    let [(delta, read), (delta_on, sent_on), (quick, quick_read), (quick_on, quick_sent_on)] = measured[..]
    else {
        unreachable!("four were measured")
    };
    let [first_delta_wait_at_owner, first_delta_wait_sent_on] =
        first_deltas([&clients[owner], &clients[third]], &own).await;
    let (host, mut holding) = holding_host(&url_of(&servers[hub]));
    let host = Hosting::of(host, &clients[hub]).await;
    let cancel_at_owner = holding.waits(&clients[hub], &clients[hub], &of_hub).await;
    host.ends(&clients[hub]).await;
    let (host, mut holding) = holding_host(&url_of(&servers[third]));
    let host = Hosting::of(host, &clients[third]).await;
    let cancel_apart = holding.waits(&clients[owner], &clients[third], &own).await;
    host.ends(&clients[third]).await;
    Cost {
        unary_at_owner,
        unary_sent_on,
        unary_wait_at_owner,
        unary_wait_sent_on,
        delta_at_owner: micros(delta, read),
        delta_sent_on: micros(delta_on, sent_on),
        deltas: [read, sent_on],
        first_delta_wait_at_owner,
        first_delta_wait_sent_on,
        quick_piece_at_owner: micros(quick, PIECES * callers),
        quick_piece_sent_on: micros(quick_on, PIECES * callers),
        quick_deltas: [quick_read, quick_sent_on],
        run_at_one,
        run_at_three,
        run_at_three_under_load,
        run_wait_at_owner,
        run_wait_host_apart,
        cancel_at_owner,
        cancel_apart,
    }
}

fn url_of(server: &Server) -> String {
    format!("http://{}", server.address())
}

/// The script of the model: a text in pieces to "Speak" and, without a wait, to "Chatter", a call of `hold` to "Hold", else a call of `look` and an end.
fn answer(request: &Value) -> Answer {
    let last = request["messages"].as_array().and_then(|messages| messages.last());
    match last.map(|message| (message["role"].as_str(), message["content"].as_str())) {
        Some((_, Some("Speak"))) => {
            Answer::Slowly((0..PIECES).map(|piece| format!("{piece} ")).collect(), PIECE_EVERY)
        }
        Some((_, Some("Chatter"))) => {
            Answer::Slowly((0..PIECES).map(|piece| format!("{piece} ")).collect(), Duration::ZERO)
        }
        Some((_, Some("Say"))) => Answer::Says("Well.".to_owned()),
        Some((_, Some("Hold"))) => Answer::Asks(vec![("hold".to_owned(), json!({}))]),
        Some((Some("tool"), _)) => Answer::Says("done".to_owned()),
        _ => Answer::Asks(vec![("look".to_owned(), json!({ "at": 1 }))]),
    }
}

/// A tool host that serves.
struct Hosting {
    serving: JoinHandle<()>,
}

impl Hosting {
    async fn of(host: ToolHost, client: &Client) -> Self {
        let serving = tokio::spawn(async move {
            let _ended = host.run_until(std::future::pending()).await;
        });
        eventually("the host", || async {
            let hosts = client.list_hosts().await.ok()?;
            hosts.iter().find(|host| host.health() == HostHealth::Connected).map(drop)
        })
        .await;
        Self { serving }
    }

    async fn ends(self, client: &Client) {
        self.serving.abort();
        eventually("its end", || async {
            let hosts = client.list_hosts().await.ok()?;
            hosts.iter().all(|host| host.health() != HostHealth::Connected).then_some(())
        })
        .await;
    }
}

/// One run in each of these sessions.
fn in_turn(sessions: &[String]) -> impl FnMut(String) -> String {
    let mut sessions = sessions.iter();
    move |_| sessions.next().expect("a session for each run").clone()
}

/// Processor time of all servers, and the median of the times that pass, of one run. `session_of` names the session of each by
/// the numbers of its caller and of itself.
async fn runs(
    clients: &[Client],
    servers: &[Server],
    callers: u32,
    each: u32,
    mut session_of: impl FnMut(String) -> String,
) -> (f64, f64) {
    let (before, mut calling) = (spent(servers), JoinSet::new());
    for caller in 0..callers {
        let client = clients[caller as usize % clients.len()].clone();
        let sessions: Vec<String> = (0..each).map(|run| session_of(format!("{caller}-{run}"))).collect();
        calling.spawn(async move {
            let mut waits = Vec::new();
            for session in sessions {
                let (run, began) = (format!("look-{session}"), Instant::now());
                client.run(input(&run, &session, "Look")).await.expect("it ends");
                waits.push(began.elapsed());
            }
            waits
        });
    }
    let mut waits = Vec::new();
    while let Some(caller) = calling.join_next().await {
        waits.extend(caller.expect("it calls"));
    }
    waits.sort_unstable();
    (micros(spent(servers) - before, each * callers), micros(waits[waits.len() / 2], 1))
}

/// Processor time of all servers, and time that passes, of one call about the run of this session.
async fn unary(client: &Client, servers: &[Server], session: &str, callers: u32) -> (f64, f64) {
    let run = format!("look-{session}");
    client.get_run(run.as_str()).await.expect("it is told");
    let (before, began, mut calling) = (spent(servers), Instant::now(), JoinSet::new());
    for _ in 0..callers {
        let (client, run) = (client.clone(), run.clone());
        calling.spawn(async move {
            for _ in 0..CALLS {
                client.get_run(run.as_str()).await.expect("it is told");
            }
        });
    }
    while let Some(caller) = calling.join_next().await {
        caller.expect("it calls");
    }
    (micros(spent(servers) - before, CALLS * callers), micros(began.elapsed(), CALLS))
}

/// Processor time of all servers while each caller reads an answer to `prompt`, and the number of deltas that were read.
async fn deltas(
    client: &Client,
    servers: &[Server],
    sessions: &[String],
    prompt: &'static str,
    callers: u32,
) -> (Duration, u32) {
    let (before, mut reading) = (spent(servers), JoinSet::new());
    for session in sessions.iter().take(callers as usize) {
        let (client, session) = (client.clone(), session.clone());
        let asked = RunInput { run_id: None, ..input("", &session, prompt) };
        reading.spawn(async move {
            let mut stream = client.run_stream(asked).await.expect("it starts");
            let mut read = 0;
            while let Some(event) = stream.next().await {
                read += u32::from(matches!(event.expect("it goes on").event, Some(Event::ModelDelta(_))));
            }
            read
        });
    }
    let mut read = 0;
    while let Some(caller) = reading.join_next().await {
        read += caller.expect("it reads");
    }
    (spent(servers) - before, read)
}

/// Medians of the times from a call until its first delta, in microseconds, with one caller at these replicas in turn.
async fn first_deltas(clients: [&Client; 2], sessions: &[String]) -> [f64; 2] {
    let mut waits = [Vec::new(), Vec::new()];
    for session in sessions {
        for (client, waits) in clients.iter().zip(&mut waits) {
            let asked = RunInput { run_id: None, ..input("", session, "Say") };
            let began = Instant::now();
            let mut stream = client.run_stream(asked).await.expect("it starts");
            let mut waited = None;
            while let Some(event) = stream.next().await {
                // The whole answer so far, if the first piece came before the stream was open.
                let piece = event.expect("it goes on").event;
                if matches!(piece, Some(Event::ModelDelta(_) | Event::PartialMessage(_))) {
                    waited.get_or_insert_with(|| began.elapsed());
                }
            }
            // A run may be over before its stream is open. Then it has no work in progress to show.
            waits.extend(waited);
        }
    }
    waits.map(|mut waits| {
        waits.sort_unstable();
        micros(waits[waits.len() / 2], 1)
    })
}

fn spent(servers: &[Server]) -> Duration {
    servers.iter().map(|server| processor_time(server.pid())).sum()
}

fn micros(time: Duration, count: u32) -> f64 {
    time.as_secs_f64() * 1e6 / f64::from(count.max(1))
}
