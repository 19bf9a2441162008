//! Replicas that prove to each other by certificates that they are replicas. Left out without a database, in one line.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_client::RunWatch;
use agentloop_client::v1::watch_runs_response::Change;
use agentloop_client::v1::{ErrorReason, RunFilter, RunStatus, ToolStatus};
use agentloop_tests::credentials::{Authority, Identity, SecurityFiles};
use agentloop_tests::owners::sessions_of;
use agentloop_tests::postgres;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Replicas, impatient, in_time};
use crate::support::follow::{Follower, outcome};
use crate::support::model::{Call, Model};
use crate::support::server::{Server, Setting, input};
use crate::support::{eventually, soon};

/// The line of a replica that has read changed certificates.
const READ_AGAIN: &str = "read the certificate of the links between replicas again";
/// The line of a replica that does not reach another one.
const NOT_CALLED: &str = "another replica cannot be called from here";

/// The files of replicas that have one certificate.
struct Certificates {
    authority: Authority,
    files: SecurityFiles,
}

impl Certificates {
    fn new() -> Certificates {
        let certificates = Certificates { authority: Authority::new(), files: SecurityFiles::new() };
        certificates.files.write("ca.pem", &certificates.authority.root());
        certificates.renew();
        certificates
    }

    /// Writes a new certificate and key, of the root before.
    fn renew(&self) -> Identity {
        let identity = self.authority.replica();
        self.files.write_identity(&identity);
        identity
    }

    /// The section of a replica that has them.
    fn section(&self) -> String {
        let [certificate, key, ca] = ["server.pem", "server.key", "ca.pem"].map(|name| self.files.path(name));
        format!(
            "[cluster]\nlisten = \"127.0.0.1:0\"\ntls_cert = {certificate:?}\ntls_key = {key:?}\ntls_ca = {ca:?}\n"
        )
    }

    /// The certificate that the port for replicas shows to one that has this one.
    async fn shown_by(&self, server: &Server, identity: &Identity) -> CertificateDer<'static> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&self.authority.root())).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("a key");
        let config = builder.expect("versions").with_root_certificates(roots);
        let config = config.with_client_auth_cert(vec![certificate(&identity.certificate)], key);
        let connector = TlsConnector::from(Arc::new(config.expect("they fit")));
        let socket =
            TcpStream::connect(server.replica_address().expect("a replica")).await.expect("it listens");
        let name = ServerName::try_from("127.0.0.1").expect("an address");
        let secured = soon("a TLS handshake", connector.connect(name, socket)).await.expect("it is trusted");
        let (_, connection) = secured.get_ref();
        connection.peer_certificates().expect("it shows one")[0].clone().into_owned()
    }
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM")
}

/// So many replicas with these certificates; `None` where there is no database.
async fn secured(model: &Model, certificates: &Certificates, count: usize) -> Option<Replicas> {
    let Some(url) = postgres::url() else {
        println!("not tested: replicas with certificates, because AGENTLOOP_TEST_POSTGRES names no database");
        return None;
    };
    let url = postgres::in_new_schema(url);
    let setting = setting(model, certificates, &url);
    Some(Replicas::of_settings(&vec![setting; count], url).await)
}

/// A replica with these certificates, over the database at this address.
fn setting(model: &Model, certificates: &Certificates, url: &str) -> Setting {
    let store = Some(format!("url = \"{url}\""));
    Setting { store, more: certificates.section(), grace_period: "10s", ..model.setting() }
}

/// Uses the tool `slow`, for longer if the conversation asks for it, and ends.
async fn answer(call: Call) {
    if call.last_message().contains("\"role\":\"tool\"") {
        call.say("Done.").await;
    } else {
        let seconds = if call.last_message().contains("Wait long") { 4.0 } else { 0.01 };
        call.use_tool("slow", json!({ "seconds": seconds })).await;
    }
}

/// A list of all runs that is watched at a replica.
struct Watched {
    watch: RunWatch,
    runs: BTreeMap<String, RunStatus>,
}

impl Watched {
    async fn at(server: &Server) -> Watched {
        let watch = server.client().watch_runs(RunFilter::default()).await.expect("watched");
        Watched { watch, runs: BTreeMap::new() }
    }

    /// Reads on until there are so many runs, and all of them are complete.
    async fn completed(&mut self, count: usize) {
        while self.runs.len() != count || self.runs.values().any(|status| *status != RunStatus::Completed) {
            match soon("a change of the list", self.watch.next()).await.expect("it comes back") {
                Change::Reset(_) => self.runs.clear(),
                Change::Run(run) => drop(self.runs.insert(run.run_id.clone(), run.status())),
                Change::Removed(removed) => drop(self.runs.remove(&removed.run_id)),
                Change::Synced(_) => {}
            }
        }
    }
}

/// Runs of sessions of each owner, one started at each replica, to their ends. Returns their number.
async fn a_run_of_each_at_each(replicas: &mut Replicas, name: &str) -> usize {
    let Replicas { servers, owners, .. } = replicas;
    let mut runs = Vec::new();
    for owner in 0..servers.len() {
        let sessions = sessions_of(owners, servers, owner, servers.len()).await;
        for (server, session) in servers.iter().zip(&sessions) {
            let run = format!("{name}-{session}");
            runs.push(Follower::with(impatient(server), input(&run, session, "Wait")).await);
        }
    }
    for run in &mut runs {
        assert_eq!(outcome(&run.result().await), (ToolStatus::Succeeded, "slept"));
        assert_eq!(run.answer().await, "Done.");
    }
    runs.len()
}

/// The host dials a replica that does not keep the hosts, and the owner that is killed is a third one.
#[tokio::test]
async fn replicas_with_certificates_work_for_each_other_over_a_kill_and_a_renewal() {
    let (model, certificates) = (Model::start().await, Certificates::new());
    let Some(mut replicas) = secured(&model, &certificates, 3).await else { return };
    model.answers_by(answer);
    let hub = replicas.owners.hub(&replicas.servers).await.expect("one keeps the hosts");
    let (dialled, killed) = ((hub + 1) % 3, (hub + 2) % 3);
    let host = replicas.host(dialled, "h-1").await;
    let mut lists = Vec::new();
    for server in &replicas.servers {
        lists.push(Watched::at(server).await);
    }
    let mut count = a_run_of_each_at_each(&mut replicas, "before").await;
    for list in &mut lists {
        list.completed(count).await;
    }

    let session = sessions_of(&mut replicas.owners, &replicas.servers, killed, 1).await.remove(0);
    let client = impatient(&replicas.servers[dialled]);
    let mut run = Follower::with(client, input("killed", &session, "Wait long")).await;
    eventually("the call", || async { (host.did("slow-start").len() == count + 1).then_some(()) }).await;
    replicas.servers[killed].kill().await;
    assert_eq!(outcome(&run.result().await), (ToolStatus::Succeeded, "slept"));
    assert_eq!(run.answer().await, "Done.");
    count += 1;
    assert_eq!(host.did("slow-start").len(), count, "no call was made again");

    let renewed = certificates.renew();
    for place in [hub, dialled] {
        let server = &mut replicas.servers[place];
        server.signal("HUP").await;
        server.line_with(READ_AGAIN).await;
    }
    replicas.servers[killed].start_again().await;
    in_time("equal parts", replicas.owners.shared_by(3)).await;
    for server in &replicas.servers {
        let shown = certificates.shown_by(server, &renewed).await;
        assert_eq!(shown, certificate(&renewed.certificate));
    }
    count += a_run_of_each_at_each(&mut replicas, "after").await;
    for list in &mut lists {
        list.completed(count).await;
    }
    assert_eq!(host.did("slow-end").len(), count, "each call was made once");
}

/// It shares the database, so it takes its part of the sessions, which nobody else reaches until it has ended.
#[tokio::test]
async fn a_replica_with_a_certificate_of_other_roots_is_named_and_sessions_of_the_others_do_not_notice() {
    let (model, certificates, of_others) = (Model::start().await, Certificates::new(), Certificates::new());
    let Some(mut replicas) = secured(&model, &certificates, 2).await else { return };
    let stranger = Server::start(&setting(&model, &of_others, &replicas.url)).await;
    replicas.servers.push(stranger);
    in_time("equal parts of three", replicas.owners.shared_by(3)).await;
    model.answers_by(|call| call.say("Hello."));
    let Replicas { servers, owners, .. } = &mut replicas;
    let address = servers[2].replica_address().expect("a replica").to_owned();
    let rows = impatient(&servers[0]).list_replicas().await.expect("listed");
    let unreached: Vec<_> = rows.iter().filter(|row| !row.problem.is_empty()).collect();
    let [stranger] = unreached[..] else { panic!("one is not reached: {rows:?}") };
    assert!(stranger.address == address && stranger.problem.contains("certificate"), "{stranger:?}");

    for (place, server) in servers.iter_mut().enumerate() {
        let names = server.line_with(NOT_CALLED).await;
        let is_named = names.contains(&format!("at=\"{address}\""));
        assert!(names.contains("certificate") && is_named == (place < 2), "{names}");
    }

    let lost = sessions_of(owners, servers, 2, 1).await.remove(0);
    let (client, asked) = (impatient(&servers[0]), input("lost", &lost, "Say hello"));
    let refused = tokio::spawn(async move { client.run(asked).await });
    for owner in 0..2 {
        for (number, session) in sessions_of(owners, servers, owner, 4).await.iter().enumerate() {
            let run = input(&format!("r-{owner}-{number}"), session, "Say hello");
            let ended = impatient(&servers[number % 2]).run(run).await.expect("it runs");
            assert_eq!(ended.status(), RunStatus::Completed);
        }
    }
    let refused =
        soon("the refusal", refused).await.expect("no panic").expect_err("nobody reaches its owner");
    assert_eq!(refused.reason(), Some(ErrorReason::OwnerUnavailable), "{refused:?}");

    let (code, said) = servers[2].terminate().await;
    assert_eq!(code, 0, "{said}");
    in_time("equal parts of two", owners.shared_by(2)).await;
    let ended = impatient(&servers[0]).run(input("lost", &lost, "Say hello")).await.expect("it runs");
    assert_eq!(ended.status(), RunStatus::Completed);
}
