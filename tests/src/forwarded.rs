//! The cost of calls that a replica sends on to the owner of the database.

use std::time::{Duration, Instant};

use agentloop_client::Client;
use agentloop_client::v1::run_event::Event;
use tokio::task::JoinSet;

use crate::model::{Answer, Model};
use crate::postgres;
use crate::process::server::{Server, Setting, input};
use crate::process::{eventually, processor_time};

/// Calls of each caller in a measured stretch.
const CALLS: u32 = 500;
/// Pieces of each measured answer.
const PIECES: u32 = 2_000;
/// The time between two pieces: each is a delta of its own.
const PIECE_EVERY: Duration = Duration::from_millis(5);

/// The measured cost, in microseconds of processor time.
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
}

/// Makes the same calls at an owner and at a replica that stands by, by so many callers at a time.
///
/// # Panics
/// When there is no database, or a call fails.
pub async fn measure(callers: u32) -> Cost {
    let url =
        postgres::url().expect("AGENTLOOP_TEST_POSTGRES has the address of a database: tests/with-postgres");
    let model = Model::start().await;
    model.answers(|_| Answer::Slowly((0..PIECES).map(|piece| format!("{piece} ")).collect(), PIECE_EVERY));
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
    let (delta_at_owner, read) = deltas(&owner.client(), &servers, "a", callers).await;
    let (delta_sent_on, sent_on) = deltas(&standby.client(), &servers, "b", callers).await;
    Cost {
        unary_at_owner,
        unary_sent_on,
        unary_wait_at_owner,
        unary_wait_sent_on,
        delta_at_owner,
        delta_sent_on,
        deltas: [read, sent_on],
    }
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

/// Processor time of all servers for one delta, and the number of deltas that were read.
async fn deltas(client: &Client, servers: &[&Server], name: &str, callers: u32) -> (f64, u32) {
    let (before, mut reading) = (spent(servers), JoinSet::new());
    for caller in 0..callers {
        let (client, run) = (client.clone(), format!("{name}-{caller}"));
        reading.spawn(async move {
            let mut stream = client.run_stream(input(&run, &run, "Speak")).await.expect("it starts");
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
    (micros(spent(servers) - before, read), read)
}

fn spent(servers: &[&Server]) -> Duration {
    servers.iter().map(|server| processor_time(server.pid())).sum()
}

fn micros(time: Duration, count: u32) -> f64 {
    time.as_secs_f64() * 1e6 / f64::from(count.max(1))
}
