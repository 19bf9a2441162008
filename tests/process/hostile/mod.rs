//! Attacks by hostile peers. The server's memory stays bounded, its health service answers throughout, and honest
//! callers are served meanwhile.
//!
//! `HOSTILE_SCALE=n` in the environment makes each attack n times as long; `HOSTILE_TLS=1` encrypts the port.

mod callers;
mod connections;
mod handshakes;
mod memory;
mod model;
mod overload;
mod peer;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentloop_client::Error;
use agentloop_client::v1::{RunResult, RunStatus};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::transport::{Certificate, ClientTlsConfig};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::support::memory::{MIB, Memory};
use crate::support::model::{Call, Model};
use crate::support::server::{Server, Setting, input};
use crate::support::{eventually, soon};

/// Within this the server says that it is well, on a busy machine as well.
const HEALTH_DEADLINE: Duration = Duration::from_secs(40);

/// A server under attack, watched.
struct Siege {
    server: Server,
    memory: Memory,
    health: JoinHandle<()>,
    answers: Arc<AtomicUsize>,
}

/// Scales a count of the normal test run by `HOSTILE_SCALE`.
fn scaled(count: usize) -> usize {
    let scale =
        std::env::var("HOSTILE_SCALE").map_or(1, |scale| scale.parse().expect("HOSTILE_SCALE is a number"));
    count * scale
}

/// As [`scaled`], up to the size with which the attack was once reported.
fn scaled_up_to(count: usize, reported: usize) -> usize {
    scaled(count).min(reported)
}

/// True if the whole suite runs over TLS.
fn is_encrypted() -> bool {
    std::env::var_os("HOSTILE_TLS").is_some_and(|value| !value.is_empty())
}

/// A model that says "fine" to everybody.
async fn honest_model() -> Setting {
    let model = Model::start().await;
    let setting = Setting { tls: is_encrypted(), ..model.setting() };
    model.answers_by(|call: Call| call.say("fine"));
    setting
}

impl Siege {
    async fn begin(setting: &Setting) -> Siege {
        let server = Server::start(setting).await;
        let answers = Arc::new(AtomicUsize::new(0));
        let health = tokio::spawn(watch(server.url(), server.root(), Arc::clone(&answers)));
        let siege = Siege { memory: Memory::measure(server.pid()), server, health, answers };
        // Memory that every run needs is not the attack's.
        siege.serves("before").await;
        Siege { memory: Memory::measure(siege.server.pid()), ..siege }
    }

    /// Someone honest is served, now.
    async fn serves(&self, session: &str) {
        let result = self.run(session).await.expect("an honest run is taken");
        assert_eq!(result.status(), RunStatus::Completed, "{:?}", result.last_error);
        let answered = self.answers.load(Ordering::SeqCst);
        eventually("a sign of health", || async {
            assert!(!self.health.is_finished(), "the server was not well");
            (self.answers.load(Ordering::SeqCst) > answered).then_some(())
        })
        .await;
    }

    async fn run(&self, session: &str) -> Result<RunResult, Error> {
        soon("a run", self.server.client().run(input(&format!("run-{session}"), session, "hi"))).await
    }

    /// Everything is over: still well, and within the bound.
    async fn end(self, what: &str, bound: usize) -> Server {
        self.serves("after").await;
        let growth = self.memory.growth();
        let kept = self.memory.kept();
        println!("{what}: grew by {} MiB of {} MiB, keeps {}", growth / MIB, bound / MIB, kept / MIB);
        assert!(growth <= bound, "{what}: grew by {} MiB, more than {} MiB", growth / MIB, bound / MIB);
        self.health.abort();
        self.server
    }
}

/// Asks on a connection of its own, until an answer is bad or late.
async fn watch(url: String, root: Option<String>, answers: Arc<AtomicUsize>) {
    let mut endpoint = tonic::transport::Endpoint::from_shared(url).expect("a good address");
    if let Some(root) = root {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(root));
        endpoint = endpoint.tls_config(tls).expect("it is right");
    }
    let mut client = HealthClient::new(endpoint.connect().await.expect("it listens"));
    loop {
        let asked = timeout(HEALTH_DEADLINE, client.check(HealthCheckRequest::default())).await;
        let answer = asked.expect("it answers in time").expect("it answers").into_inner();
        assert_eq!(answer.status, 1, "it serves");
        answers.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
