//! The cost of calls that a replica sends on to the owner of the database.

use std::time::{Duration, Instant};

use agentloop_client::Client;
use agentloop_client::host::ToolHost;
use agentloop_client::v1::HostHealth;
use agentloop_client::v1::run_event::Event;
use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};

use crate::failover::looking_host;
use crate::forwarded_cancels::{CancelWaits, holding_host};
use crate::model::{Answer, Model};
use crate::postgres;
use crate::process::server::{Server, Setting, input};
use crate::process::{eventually, processor_time};

/// Calls of each caller in a measured stretch.
const CALLS: u32 = 500;
/// Runs of each caller in a measured stretch, and of the one that calls alone.
const RUNS: u32 = 50;
const RUNS_ALONE: u32 = 300;
/// Pieces of each measured answer.
const PIECES: u32 = 2_000;
/// The time between two pieces: each is a delta of its own.
const PIECE_EVERY: Duration = Duration::from_millis(5);

/// The measured cost, in microseconds of processor time but where it says otherwise.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// Of `GetServerInfo` at the owner.
    pub unary_at_owner: f64,
    /// The same at a replica that stands by: both processes together.
    pub unary_sent_on: f64,
    /// Time of such a call from its begin to its end, at the owner.
    pub unary_wait_at_owner: f64,
    /// The same at the replica that stands by.
    pub unary_wait_sent_on: f64,
    /// Of a delta at the owner.
    pub delta_at_owner: f64,
    /// The same for a caller of the replica that stands by: both processes together.
    pub delta_sent_on: f64,
    /// Deltas that were read from the owner, and from the other.
    pub deltas: [u32; 2],
    /// Of a piece of an answer that comes as fast as it is read, at the owner. A delta may carry several pieces.
    pub quick_piece_at_owner: f64,
    /// The same for a caller of the replica that stands by: both processes together.
    pub quick_piece_sent_on: f64,
    /// Deltas that carried these pieces, from the owner and from the other.
    pub quick_deltas: [u32; 2],
    /// Of a run with one tool call, callers and the tool host at the owner.
    pub run_at_owner: f64,
    /// The same with callers at all of three replicas in turn, and the host at one that stands by: all processes together.
    pub run_at_three: f64,
    /// Time of such a run for a caller at the owner, with the host at the owner; half of them are shorter.
    pub run_wait_at_owner: f64,
    /// The same with the host at a replica that stands by.
    pub run_wait_host_apart: f64,
    /// From `Abort` at the owner until the tool of a host at the owner learns of it.
    pub cancel_at_owner: CancelWaits,
    /// The same with the host at one replica that stands by, and `Abort` at another.
    pub cancel_apart: CancelWaits,
}

/// Makes the same calls at an owner and at a replica that stands by, by so many callers at a time.
///
/// # Panics
/// When there is no database, or a call fails.
pub async fn measure(callers: u32) -> Cost {
    let url =
        postgres::url().expect("AGENTLOOP_TEST_POSTGRES has the address of a database: tests/with-postgres");
    let model = Model::start().await;
    model.forgets().answers(answer);
    let setting = Setting {
        provider: format!("kind = \"openai\"\nbase_url = \"{}\"\n", model.base_url()),
        store: Some(format!("url = \"{}\"", postgres::in_new_schema(url))),
        more: "[cluster]\nlisten = \"127.0.0.1:0\"\n".to_owned(),
        log_level: "warn",
        ..Setting::default()
    };
    let owner = Server::start(&setting).await;
    let client = owner.client();
    eventually("an owner", || async { client.server_info().await.ok() }).await;
    let standby = Server::start(&setting).await;
    let servers = [&owner, &standby];
    let (unary_at_owner, unary_wait_at_owner) = unary(&owner.client(), &servers, callers).await;
    let (unary_sent_on, unary_wait_sent_on) = unary(&standby.client(), &servers, callers).await;
    let (spent, read) = deltas(&owner.client(), &servers, "a", "Speak", callers).await;
    let delta_at_owner = micros(spent, read);
    let (spent, sent_on) = deltas(&standby.client(), &servers, "b", "Speak", callers).await;
    let delta_sent_on = micros(spent, sent_on);
    let (spent, quick_read) = deltas(&owner.client(), &servers, "i", "Chatter", callers).await;
    let quick_piece_at_owner = micros(spent, PIECES * callers);
    let (spent, quick_sent_on) = deltas(&standby.client(), &servers, "j", "Chatter", callers).await;
    let quick_piece_sent_on = micros(spent, PIECES * callers);
    let third = Server::start(&setting).await;
    let servers = [&owner, &standby, &third];
    let clients = servers.map(|server| server.client());
    let host = Hosting::of(looking_host(&url_of(&owner)), &clients[0]).await;
    let (run_at_owner, _) = runs(&clients[..1], &servers[..1], "c", callers, RUNS).await;
    let (_, run_wait_at_owner) = runs(&clients[..1], &servers[..1], "d", 1, RUNS_ALONE).await;
    host.ends(&clients[0]).await;
    let host = Hosting::of(looking_host(&url_of(&standby)), &clients[0]).await;
    let (run_at_three, _) = runs(&clients, &servers, "e", callers, RUNS).await;
    let (_, run_wait_host_apart) = runs(&clients[..1], &servers[..1], "f", 1, RUNS_ALONE).await;
    host.ends(&clients[0]).await;
    let (host, mut holding) = holding_host(&url_of(&owner));
    let host = Hosting::of(host, &clients[0]).await;
    let cancel_at_owner = holding.waits(&clients[0], &clients[0], "g").await;
    host.ends(&clients[0]).await;
    let (host, mut holding) = holding_host(&url_of(&standby));
    let host = Hosting::of(host, &clients[0]).await;
    let cancel_apart = holding.waits(&clients[0], &clients[2], "h").await;
    host.ends(&clients[0]).await;
    Cost {
        unary_at_owner,
        unary_sent_on,
        unary_wait_at_owner,
        unary_wait_sent_on,
        delta_at_owner,
        delta_sent_on,
        deltas: [read, sent_on],
        quick_piece_at_owner,
        quick_piece_sent_on,
        quick_deltas: [quick_read, quick_sent_on],
        run_at_owner,
        run_at_three,
        run_wait_at_owner,
        run_wait_host_apart,
        cancel_at_owner,
        cancel_apart,
    }
}

fn url_of(server: &Server) -> String {
    format!("http://{}", server.address())
}

/// What the model says: a text in pieces to "Speak" and, without a wait, to "Chatter", a call of `hold` to "Hold", else a call of `look` and an end.
fn answer(request: &Value) -> Answer {
    let last = request["messages"].as_array().and_then(|messages| messages.last());
    match last.map(|message| (message["role"].as_str(), message["content"].as_str())) {
        Some((_, Some("Speak"))) => {
            Answer::Slowly((0..PIECES).map(|piece| format!("{piece} ")).collect(), PIECE_EVERY)
        }
        Some((_, Some("Chatter"))) => {
            Answer::Slowly((0..PIECES).map(|piece| format!("{piece} ")).collect(), Duration::ZERO)
        }
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

/// Processor time of all servers, and the median of the times that pass, of one run.
async fn runs(clients: &[Client], servers: &[&Server], name: &str, callers: u32, each: u32) -> (f64, f64) {
    let (before, mut calling) = (spent(servers), JoinSet::new());
    for caller in 0..callers {
        let client = clients[caller as usize % clients.len()].clone();
        let name = format!("{name}-{caller}");
        calling.spawn(async move {
            let mut waits = Vec::new();
            for run in 0..each {
                let (run, began) = (format!("{name}-{run}"), Instant::now());
                client.run(input(&run, &run, "Look")).await.expect("it ends");
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

/// Processor time of all servers, and time that passes, of one call.
async fn unary(client: &Client, servers: &[&Server], callers: u32) -> (f64, f64) {
    client.server_info().await.expect("it is told");
    let (before, began, mut calling) = (spent(servers), Instant::now(), JoinSet::new());
    for _ in 0..callers {
        let client = client.clone();
        calling.spawn(async move {
            for _ in 0..CALLS {
                client.server_info().await.expect("it is told");
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
    servers: &[&Server],
    name: &str,
    prompt: &'static str,
    callers: u32,
) -> (Duration, u32) {
    let (before, mut reading) = (spent(servers), JoinSet::new());
    for caller in 0..callers {
        let (client, run) = (client.clone(), format!("{name}-{caller}"));
        reading.spawn(async move {
            let mut stream = client.run_stream(input(&run, &run, prompt)).await.expect("it starts");
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

fn spent(servers: &[&Server]) -> Duration {
    servers.iter().map(|server| processor_time(server.pid())).sum()
}

fn micros(time: Duration, count: u32) -> f64 {
    time.as_secs_f64() * 1e6 / f64::from(count.max(1))
}
