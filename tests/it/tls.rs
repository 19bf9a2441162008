//! TLS and client certificates on the gRPC port.

use agentloop_client::{Client, ClientBuilder, Error};
use agentloop_tests::credentials::{Authority, Identity, SecurityFiles};
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// More than the handshakes that the server makes at a time.
const IDLE_CONNECTIONS: usize = 1_100;

async fn is_served(client: Result<Client, Error>) -> bool {
    soon(client.expect("a client").server_info()).await.is_ok()
}

fn presenting(builder: ClientBuilder, identity: Identity) -> Result<Client, Error> {
    builder.tls_identity(identity.certificate, identity.key).build()
}

#[tokio::test]
async fn a_client_that_trusts_the_root_is_served() {
    let (model, authority, files) = (Model::start().await, Authority::new(), SecurityFiles::new());
    files.write_identity(&authority.server());
    let server = TestServer::with(&model, &files.tls("")).await;
    let client = || server.client_builder();
    assert!(server.url().starts_with("https://"));
    assert!(is_served(client().tls_ca(authority.root()).build()).await);
    assert!(!is_served(client().tls_ca(Authority::new().root()).build()).await, "another root");
    assert!(!is_served(client().build()).await, "the system's roots");
    let other_name = client().tls_ca(authority.root()).tls_server_name("elsewhere.example");
    assert!(!is_served(other_name.build()).await, "another name");
    let plain = server.url().replace("https", "http");
    assert!(!is_served(Client::connect(plain)).await, "not encrypted");
}

#[tokio::test]
async fn a_required_certificate_needs_the_root_and_an_allowed_subject() {
    let (model, authority, files) = (Model::start().await, Authority::new(), SecurityFiles::new());
    files.write_identity(&authority.server());
    files.write("ca.pem", &authority.root());
    let required = format!(
        "client_ca = {:?}\nclient_auth = \"required\"\nallowed_subjects = [\"CN=ada\", \"CN=worker-*\"]",
        files.path("ca.pem")
    );
    let server = TestServer::with(&model, &files.tls(&required)).await;
    let client = || server.client_builder().tls_ca(authority.root());
    for name in ["ada", "worker-7"] {
        assert!(is_served(presenting(client(), authority.client(name))).await, "{name}");
    }
    assert!(!is_served(presenting(client(), authority.client("bob"))).await, "not allowed");
    assert!(!is_served(presenting(client(), Authority::new().client("ada"))).await, "another root");
    assert!(!is_served(client().build()).await, "no certificate");
}

#[tokio::test]
async fn a_renewed_certificate_is_used_at_once_and_a_broken_one_never() {
    let (model, old, new, files) =
        (Model::start().await, Authority::new(), Authority::new(), SecurityFiles::new());
    files.write_identity(&old.server());
    let server =
        TestServer::with(&model, &format!("{}[metrics]\nlisten = \"127.0.0.1:0\"", files.tls(""))).await;
    let trusts = |authority: &Authority| server.client_builder().tls_ca(authority.root()).build();
    let connected = trusts(&old).expect("a client");
    soon(connected.server_info()).await.expect("it is served");

    files.write_identity(&new.server());
    server.reload().await;
    assert!(is_served(trusts(&new)).await);
    assert!(!is_served(trusts(&old)).await);
    soon(connected.server_info()).await.expect("an open connection stays");

    // A key without its certificate, as in the middle of a renewal.
    files.write("server.key", &old.server().key);
    server.reload().await;
    assert!(is_served(trusts(&new)).await);
    files.write("server.pem", "nothing");
    server.reload().await;
    assert!(is_served(trusts(&new)).await);
    assert!(server.scrape().await.get("tls_certificate_expiry_seconds") > 0.0);
}

#[tokio::test]
async fn the_metric_has_the_end_of_the_certificate_in_use() {
    let (model, authority, files) = (Model::start().await, Authority::new(), SecurityFiles::new());
    let ends = [4_000_000_000, 4_100_000_000];
    files.write_identity(&authority.server_until(ends[0]));
    let metrics = "[metrics]\nlisten = \"127.0.0.1:0\"";
    let server = TestServer::with(&model, &format!("{}{metrics}", files.tls(""))).await;
    let shown = async || server.scrape().await.get("tls_certificate_expiry_seconds");
    assert_eq!(shown().await, 4_000_000_000.0);
    files.write_identity(&authority.server_until(ends[1]));
    server.reload().await;
    assert_eq!(shown().await, 4_100_000_000.0);
}

#[tokio::test]
async fn certificates_are_rotated_under_load_without_a_failed_call() {
    let (model, authority, files) = (Model::start().await, Authority::new(), SecurityFiles::new());
    files.write_identity(&authority.server());
    let server = TestServer::with(&model, &files.tls("")).await;
    let callers = (0..8).map(|_| {
        let builder = server.client_builder().tls_ca(authority.root());
        tokio::spawn(async move {
            for _ in 0..20 {
                // Each with a connection of its own, so that there are handshakes all the time.
                let client = builder.clone().build().expect("a client");
                soon(client.server_info()).await.expect("it is served");
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    while !callers.iter().all(tokio::task::JoinHandle::is_finished) {
        files.write_identity(&authority.server());
        server.reload().await;
        tokio::task::yield_now().await;
    }
    for caller in callers {
        caller.await.expect("no call failed");
    }
}

#[tokio::test]
async fn handshakes_that_never_end_keep_nobody_out() {
    let (model, authority, files) = (Model::start().await, Authority::new(), SecurityFiles::new());
    files.write_identity(&authority.server());
    let server = TestServer::with(&model, &files.tls("handshake_timeout = \"5m\"")).await;
    let address = server.url().trim_start_matches("https://").to_owned();
    let mut idle = Vec::new();
    for _ in 0..IDLE_CONNECTIONS {
        idle.push(soon(TcpStream::connect(&address)).await.expect("it listens"));
    }
    assert!(is_served(server.client_builder().tls_ca(authority.root()).build()).await);
    // The oldest was ended for the newest.
    let mut byte = [0];
    let ended = soon(idle[0].read(&mut byte)).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}
