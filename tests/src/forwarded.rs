//! The cost of calls that a replica sends on to the owner of the database.

use std::time::{Duration, Instant};

use agentloop_client::Client;
use agentloop_client::v1::run_event::Event;

use crate::model::{Answer, Model};
use crate::postgres;
use crate::process::server::{Server, Setting, input};
use crate::process::{eventually, processor_time};

/// Calls of a measured stretch.
const CALLS: u32 = 20_000;
/// Pieces of the measured answer.
const PIECES: u32 = 50_000;
/// The time between two pieces: each is a delta of its own.
const PIECE_EVERY: Duration = Duration::from_micros(400);

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

/// Makes the same calls at an owner and at a replica that stands by.
///
/// # Panics
/// When there is no database, or a call fails.
pub async fn measure() -> Cost {
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
    let (unary_at_owner, unary_wait_at_owner) = unary(&owner.client(), &servers).await;
    let (unary_sent_on, unary_wait_sent_on) = unary(&standby.client(), &servers).await;
    let (delta_at_owner, read) = deltas(&owner.client(), &servers, "r-1").await;
    let (delta_sent_on, sent_on) = deltas(&standby.client(), &servers, "r-2").await;
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
async fn unary(client: &Client, servers: &[&Server]) -> (f64, f64) {
    client.server_info().await.expect("it is told");
    let (before, began) = (spent(servers), Instant::now());
    for _ in 0..CALLS {
        client.server_info().await.expect("it is told");
    }
    let (passed, spent) = (began.elapsed(), spent(servers) - before);
    (micros(spent, CALLS), micros(passed, CALLS))
}

/// Processor time of all servers for one delta, and the number of deltas that were read.
async fn deltas(client: &Client, servers: &[&Server], run: &str) -> (f64, u32) {
    let mut stream = client.run_stream(input(run, run, "Speak")).await.expect("it starts");
    let (before, mut read) = (spent(servers), 0);
    while let Some(event) = stream.next().await {
        read += u32::from(matches!(event.expect("it goes on").event, Some(Event::ModelDelta(_))));
    }
    (micros(spent(servers) - before, read), read)
}

fn spent(servers: &[&Server]) -> Duration {
    servers.iter().map(|server| processor_time(server.pid())).sum()
}

fn micros(time: Duration, count: u32) -> f64 {
    time.as_secs_f64() * 1e6 / f64::from(count.max(1))
}
