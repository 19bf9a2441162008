//! Tool hosts of every language at a server that asks for a certificate and a token.

use std::path::PathBuf;

use agentloop_client::Client;
use agentloop_tests::credentials::{Authority, Identity, SecurityFiles};
use serde_json::json;

use crate::support::child::Process;
use crate::support::follow::Follower;
use crate::support::host::example_command;
use crate::support::model::Model;
use crate::support::server::{Server, Setting, input, patient};

/// A language, and the words with which its host reports a connection that was not made.
struct Language {
    name: &'static str,
    lost: &'static str,
}

const RUST: Language = Language { name: "rust", lost: "cannot reach the server" };
const PYTHON: Language = Language { name: "python", lost: "connection to" };
const TYPESCRIPT: Language = Language { name: "typescript", lost: "connection to" };
const GO: Language = Language { name: "go", lost: "connection to the server lost" };

/// A server with a certificate of a private authority. It serves clients that show both a certificate of that authority and
/// a token.
struct GuardedServer {
    server: Server,
    files: SecurityFiles,
    root: String,
    identity: Identity,
    caller: String,
}

/// The variables that a host is started with.
struct Credentials {
    ca: PathBuf,
    /// Files of a certificate and its key.
    identity: Option<[PathBuf; 2]>,
    token: String,
}

impl GuardedServer {
    async fn start(model: &Model) -> (GuardedServer, Credentials) {
        let (authority, files) = (Authority::new(), SecurityFiles::new());
        let (root, identity) = (authority.root(), authority.client("tools"));
        files.write_identity(&authority.server());
        files.write("ca.pem", &root);
        files.write("tools.pem", &identity.certificate);
        files.write("tools.key", &identity.key);
        let caller = files.token("ada", "red", &["caller"]);
        let credentials = Credentials {
            ca: files.path("ca.pem"),
            identity: Some([files.path("tools.pem"), files.path("tools.key")]),
            token: files.token("tools", "red", &["host"]),
        };
        let required = format!(
            "client_ca = {:?}\nclient_auth = \"required\"\nallowed_subjects = [\"CN=tools\"]",
            files.path("ca.pem")
        );
        let setting = Setting { more: files.tls(&required) + &files.auth(), ..model.setting() };
        let server = Server::start(&setting).await;
        (GuardedServer { server, files, root, identity, caller }, credentials)
    }

    fn url(&self) -> String {
        format!("https://{}", self.server.address())
    }

    /// A client of a caller in the tenant of the tool hosts.
    fn client(&self) -> Client {
        let Identity { certificate, key } = self.identity.clone();
        let builder = patient(self.url()).tls_ca(&self.root).tls_identity(certificate, key);
        builder.token(&self.caller).build().expect("a client")
    }

    /// Starts the example host of a language; `None` where it was not set up and needs not be.
    fn host(&self, language: &Language, credentials: &Credentials) -> Option<Process> {
        let mut command = example_command(language.name)?;
        command.args(["--server", &self.url(), "--host-id", "h-1"]);
        command.env("AGENTLOOP_CA_FILE", &credentials.ca).env("AGENTLOOP_TOKEN", &credentials.token);
        if let Some([certificate, key]) = &credentials.identity {
            command.env("AGENTLOOP_CERT_FILE", certificate).env("AGENTLOOP_KEY_FILE", key);
        }
        Some(Process::start(language.name, command))
    }
}

/// A wrong token ends the host. A connection that is not made is reported each time, and tried again: certificates may be
/// renewed meanwhile. With everything that the server asks for, its tool is used.
async fn serves_and_says_what_is_wrong(language: Language) {
    let mut model = Model::start().await;
    let (guarded, good) = GuardedServer::start(&model).await;

    let wrong_token =
        Credentials { token: "wrong".into(), ca: good.ca.clone(), identity: good.identity.clone() };
    let Some(host) = guarded.host(&language, &wrong_token) else { return };
    let (code, said) = host.ended().await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("the credentials are missing or wrong"), "{said}");

    guarded.files.write("another.pem", &Authority::new().root());
    let wrong_ca = Credentials { ca: guarded.files.path("another.pem"), token: good.token.clone(), ..good };
    let mut host = guarded.host(&language, &wrong_ca).expect("it was there before");
    for _ in 0..2 {
        let report = host.line_with(language.lost).await;
        assert!(report.contains("certificate"), "{report}");
    }
    host.kill().await;

    let Credentials { identity, token, .. } = wrong_ca;
    let no_certificate = Credentials { ca: guarded.files.path("ca.pem"), identity: None, token };
    let mut host = guarded.host(&language, &no_certificate).expect("it was there before");
    for _ in 0..2 {
        host.line_with(language.lost).await;
    }
    host.kill().await;

    let good = Credentials { identity, ..no_certificate };
    let mut host = guarded.host(&language, &good).expect("it was there before");
    host.line_with("ready").await;
    let mut run = Follower::with(guarded.client(), input("r-1", "s-1", "How is Oslo?")).await;
    model.call().await.use_tool("get_weather", json!({ "city": "Oslo" })).await;
    let call = model.call().await;
    assert!(call.last_message().contains("clear"), "{}", call.last_message());
    call.say("Clear.").await;
    assert_eq!(run.answer().await, "Clear.");
}

#[tokio::test]
async fn of_rust() {
    serves_and_says_what_is_wrong(RUST).await;
}

#[tokio::test]
async fn of_python() {
    serves_and_says_what_is_wrong(PYTHON).await;
}

#[tokio::test]
async fn of_typescript() {
    serves_and_says_what_is_wrong(TYPESCRIPT).await;
}

#[tokio::test]
async fn of_go() {
    serves_and_says_what_is_wrong(GO).await;
}
