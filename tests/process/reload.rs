//! SIGHUP to the server as a process: it reads its certificate and its tokens again.

use std::time::{Duration, Instant};

use agentloop_client::{Backoff, Client, Error};
use agentloop_tests::credentials::{Authority, SecurityFiles};
use tonic::Code;

use crate::support::child::Process;
use crate::support::server::{Server, Setting};
use crate::support::{eventually, soon};

/// The server looks at its files this often without being told. What the signal does is seen sooner.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(5);
/// Changes that a test makes one after the other. By looks alone, all of them would take four times the time between two.
const CHANGES: u32 = 5;

/// A client that does not repeat what fails.
fn client(url: &str, root: &str, token: &str) -> Client {
    let once = Backoff { max_retries: 0, ..Backoff::default() };
    Client::builder(url).backoff(once).tls_ca(root).token(token).build().expect("a client")
}

/// Makes a call over a connection of its own.
async fn call(url: &str, root: &str, token: &str) -> Result<(), Error> {
    client(url, root, token).server_info().await.map(drop)
}

fn code(refused: &Result<(), Error>) -> Option<Code> {
    refused.as_ref().err().and_then(Error::code)
}

/// A server with TLS and tokens, whose files the test changes.
struct Guarded {
    files: SecurityFiles,
    url: String,
    process: Process,
    _server: Server,
}

impl Guarded {
    async fn start(authority: &Authority) -> Self {
        let files = SecurityFiles::new();
        files.write_identity(&authority.server());
        let more = files.tls("") + &files.auth();
        // No model is called.
        let provider = "kind = \"openai\"\nbase_url = \"http://127.0.0.1:9\"\n".to_owned();
        let mut server = Server::start(&Setting { provider, more, ..Setting::default() }).await;
        let url = format!("https://{}", server.address());
        Self { files, url, process: server.take(), _server: server }
    }

    async fn hang_up(&self) {
        self.process.signal("HUP").await;
    }
}

#[tokio::test]
async fn each_signal_brings_the_certificate_and_the_tokens_that_are_there_then() {
    let mut authority = Authority::new();
    let guarded = Guarded::start(&authority).await;
    let began = Instant::now();
    for change in 0..CHANGES {
        let before = authority.root();
        authority = Authority::new();
        guarded.files.write_identity(&authority.server());
        guarded.files.revoke_all();
        let token = guarded.files.token("ada", "red", &["caller"]);
        guarded.hang_up().await;
        let root = authority.root();
        eventually("the new certificate and token", || async {
            call(&guarded.url, &root, &token).await.ok()
        })
        .await;
        let old = call(&guarded.url, &before, &token).await;
        assert!(
            old.is_err_and(|error| error.is_unreachable()),
            "change {change} took the certificate before it away"
        );
        guarded.files.revoke_all();
        guarded.hang_up().await;
        eventually("the end of the token", || async {
            let refused = call(&guarded.url, &root, &token).await;
            (code(&refused) == Some(Code::Unauthenticated)).then_some(())
        })
        .await;
    }
    let took = began.elapsed();
    assert!(took < LOOKED_AT_EVERY * (CHANGES - 1), "the signals did it, not the looks: {took:?}");
}

#[tokio::test]
async fn a_file_with_a_mistake_is_told_and_what_was_read_before_stays_in_use() {
    let authority = Authority::new();
    let mut guarded = Guarded::start(&authority).await;
    let (root, url) = (authority.root(), guarded.url.clone());
    let token = guarded.files.token("ada", "red", &["caller"]);
    guarded.hang_up().await;
    eventually("the token", || async { call(&url, &root, &token).await.ok() }).await;
    for (file, text, what) in [
        ("server.pem", "no certificate", "cannot read the certificate again"),
        ("tokens.toml", "[[token]]\nname = ", "cannot read the tokens again"),
    ] {
        guarded.files.write(file, text);
        guarded.hang_up().await;
        let told = guarded.process.line_with(what).await;
        assert!(told.contains("WARN") && told.contains("stays in use"), "{told}");
        let counted = soon("the call", call(&url, &root, &token)).await;
        assert!(counted.is_ok(), "what was read before {file} stays in use: {counted:?}");
    }
}
