//! The server as a process, which can be killed and started again on the same database and port.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use agentloop_client::v1::{HostHealth, HumanRequest, ListPendingRequest, RunInput};
use agentloop_client::{Backoff, Client, ClientBuilder};
use tempfile::TempDir;
use tokio::process::Command;

use super::child::Process;
use super::{built, eventually};
use crate::credentials::Authority;
use crate::postgres;

/// The exit code of a replica that others have taken for dead.
pub const FENCED: i32 = 75;

/// A builder of clients that wait for a server which is killed or takes over.
pub fn patient(url: impl Into<String>) -> ClientBuilder {
    let backoff =
        Backoff { max_retries: 1_000, initial: Duration::from_millis(20), max: Duration::from_millis(200) };
    Client::builder(url).backoff(backoff)
}

/// The time after which a host that says nothing is lost.
#[derive(Clone, Copy)]
pub enum Leases {
    /// The times that a server has if its configuration names none.
    AsByDefault,
    /// This one, with heartbeats that a test does not wait for.
    EndAfter(&'static str),
}

/// Settings of a server under test.
#[derive(Clone)]
pub struct Setting {
    /// The section of the provider `test`.
    pub provider: String,
    /// More of the section of the server.
    pub server: &'static str,
    /// More of the section of the agent.
    pub agent: &'static str,
    /// The keys of `[hosts]` about the lease of a host.
    pub leases: Leases,
    /// Time that a lost host has to reconnect to its calls.
    pub grace_period: &'static str,
    /// Time that a call in doubt waits for a human or a late result.
    pub in_doubt_timeout: &'static str,
    /// Calls of one message that may be at work together.
    pub max_parallel: u32,
    /// The agent's retry policy, as an inline table.
    pub retry: &'static str,
    /// True offers the model the tool that asks a human.
    pub ask_human: bool,
    /// True makes the model write titles of sessions.
    pub titles: bool,
    /// A run that waits longer than this for its next attempt is parked.
    pub park_after: &'static str,
    /// The level of the log.
    pub log_level: &'static str,
    /// True makes a write beyond [`Server::bound_files`] fail instead of killing the process.
    pub bounded: bool,
    /// More sections, behind all others.
    pub more: String,
    /// True encrypts its port, with a certificate of an authority of its own.
    pub tls: bool,
    /// Variables of its environment.
    pub environment: &'static [(&'static str, &'static str)],
    /// The keys of `[store]`. `None`: a store of its own.
    pub store: Option<String>,
    /// The program. `None`: the one that was built with the tests.
    pub program: Option<PathBuf>,
}

impl Default for Setting {
    /// A lost host is found out about within a test, but not where the machine is only busy.
    fn default() -> Setting {
        Setting {
            provider: String::new(),
            server: "",
            agent: "",
            leases: Leases::EndAfter("3s"),
            grace_period: "30s",
            in_doubt_timeout: "15m",
            max_parallel: 1,
            retry: "{ initial_backoff = \"10ms\" }",
            ask_human: false,
            titles: false,
            park_after: "5s",
            log_level: "info",
            bounded: false,
            more: String::new(),
            tls: false,
            environment: &[],
            store: None,
            program: None,
        }
    }
}

/// A server's files and, unless it was ended, its process.
pub struct Server {
    dir: TempDir,
    port: u16,
    bounded: bool,
    environment: &'static [(&'static str, &'static str)],
    authority: Option<Authority>,
    process: Option<Process>,
    is_replica: bool,
    replica_address: Option<String>,
    program: PathBuf,
}

/// The text that a replica prints before its address for others.
const REACH_IT_AT: &str = "others reach it at";

impl Server {
    /// Starts a server whose model is `test/m`.
    pub async fn start(setting: &Setting) -> Server {
        let dir = tempfile::tempdir().expect("a directory");
        let port = free_port();
        let mut config = configuration(port, setting) + &setting.more + "\n";
        let authority = setting.tls.then(Authority::new);
        if authority.is_some() {
            config.push_str("[tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\n");
        }
        std::fs::write(dir.path().join("agentloop.toml"), config).expect("written");
        let Setting { bounded, environment, .. } = *setting;
        let is_replica = setting.more.contains("[cluster]");
        let mut server = Server {
            dir,
            port,
            bounded,
            environment,
            authority,
            process: None,
            is_replica,
            replica_address: None,
            program: setting.program.clone().unwrap_or_else(|| built("agentloop")),
        };
        server.renew_certificate();
        server.start_again().await;
        server
    }

    /// Writes another certificate of the same authority. The server reads it at SIGHUP and within seconds.
    pub fn renew_certificate(&self) {
        let Some(authority) = &self.authority else { return };
        let identity = authority.server();
        for (name, text) in [("server.key", identity.key), ("server.pem", identity.certificate)] {
            std::fs::write(self.dir.path().join(name), text).expect("written");
        }
    }

    /// The root of its certificate, in PEM, if its port is encrypted.
    pub fn root(&self) -> Option<String> {
        self.authority.as_ref().map(Authority::root)
    }

    /// Starts it on the same database and port.
    pub async fn start_again(&mut self) {
        assert!(self.process.is_none(), "it still runs");
        let mut process = self.another();
        if self.is_replica {
            let line = process.line_with(REACH_IT_AT).await;
            self.replica_address = line.split_once(REACH_IT_AT).map(|(_, address)| address.trim().to_owned());
        }
        process.line_with("agentloop listens on").await;
        self.process = Some(process);
    }

    /// Uses the program that was built with the tests from its next start on.
    pub fn renew(&mut self) {
        self.run_as(built("agentloop"));
    }

    /// Uses this program from its next start on, and returns the one that it used.
    pub fn run_as(&mut self, program: PathBuf) -> PathBuf {
        std::mem::replace(&mut self.program, program)
    }

    /// Host and port at which other replicas reach it, if it is one.
    pub fn replica_address(&self) -> Option<&str> {
        self.replica_address.as_deref()
    }

    /// One more process with the same configuration.
    pub fn another(&self) -> Process {
        self.another_with(&[])
    }

    /// The same with more arguments.
    pub fn another_with(&self, arguments: &[&str]) -> Process {
        let mut command = Command::new(&self.program);
        if self.bounded {
            // An ignored signal stays ignored by the program that is started in its place.
            command = Command::new("sh");
            command.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]).arg(&self.program);
        }
        command.args(["serve", "--config"]).arg(self.dir.path().join("agentloop.toml")).args(arguments);
        command.envs(self.environment.iter().copied());
        Process::start("server", command)
    }

    /// Starts it with a limit on the size of its files, as a full disk has one.
    pub async fn start_bounded(&mut self, bytes: u64) {
        assert!(self.process.is_none() && self.bounded, "it is made for that, and does not run");
        let mut command = Command::new("prlimit");
        command.args([&format!("--fsize={bytes}:unlimited"), "sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh"]);
        command.arg(&self.program).args(["serve", "--config"]).arg(self.dir.path().join("agentloop.toml"));
        let mut process = Process::start("server", command);
        process.line_with("agentloop listens on").await;
        self.process = Some(process);
    }

    /// Starts it and kills it a little later, wherever it is by then.
    pub async fn start_and_kill(&mut self, later: Duration) {
        assert!(self.process.is_none(), "it still runs");
        let process = self.another();
        tokio::time::sleep(later).await;
        process.kill().await;
    }

    /// Limits the size of the server's files from here on, as a full disk does; `None` removes the limit.
    pub async fn bound_files(&self, bytes: Option<u64>) {
        let bound = bytes.map_or_else(|| "unlimited".to_owned(), |bytes| bytes.to_string());
        let (pid, fsize) = (self.pid().to_string(), format!("--fsize={bound}:unlimited"));
        let set = Command::new("prlimit").args(["--pid", &pid, &fsize]).status().await;
        assert!(set.expect("there is a prlimit").success(), "{fsize}");
    }

    /// A signal, such as `STOP`.
    pub async fn signal(&self, signal: &str) {
        self.process.as_ref().expect("it runs").signal(signal).await;
    }

    /// Waits for a line of its log, or of what it prints, that contains `text`.
    pub async fn line_with(&mut self, text: &str) -> String {
        self.process.as_mut().expect("it runs").line_with(text).await
    }

    /// Id of the server's process.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("it runs").pid()
    }

    /// The process as it is, for a test that waits for its end itself.
    pub fn take(&mut self) -> Process {
        self.process.take().expect("it runs")
    }

    /// SIGKILL: it cannot do anything about it.
    pub async fn kill(&mut self) {
        self.process.take().expect("it runs").kill().await;
    }

    /// Its exit status, if it has ended by itself.
    pub async fn has_ended(&mut self) -> Option<(i32, String)> {
        let ended = self.process.as_mut()?.has_ended().await?;
        self.process = None;
        Some(ended)
    }

    /// SIGTERM, and how it ends.
    pub async fn terminate(&mut self) -> (i32, String) {
        let process = self.process.take().expect("it runs");
        process.signal("TERM").await;
        process.ended().await
    }

    /// Its address as a URL.
    pub fn url(&self) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address())
    }

    /// Its address as host and port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A path beside its database.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A client that waits for a restarted server.
    pub fn client(&self) -> Client {
        self.client_of(None)
    }

    /// As [`Self::client`], with this token.
    pub fn client_of(&self, token: Option<&str>) -> Client {
        let builder = self.root().into_iter().fold(patient(self.url()), ClientBuilder::tls_ca);
        token.into_iter().fold(builder, ClientBuilder::token).build().expect("a good address")
    }

    /// A client that trusts its certificate, to be given more.
    pub fn client_builder(&self) -> ClientBuilder {
        let builder = Client::builder(self.url());
        self.root().into_iter().fold(builder, ClientBuilder::tls_ca)
    }

    /// The question that waits, once there is one.
    pub async fn question(&self, run_id: &str) -> HumanRequest {
        let client = self.client();
        eventually("a question", || async {
            let request = ListPendingRequest { run_id: run_id.to_owned(), ..ListPendingRequest::default() };
            let mut pending = client.list_pending(request).await.expect("listed").requests;
            assert!(pending.len() < 2, "{pending:?}");
            pending.pop()
        })
        .await
    }

    /// Waits until it takes calls, as its health service says.
    pub async fn ready(&self) {
        let client = self.client();
        eventually("a server that is ready", || async {
            client.is_ready().await.is_ok_and(|up| up).then_some(())
        })
        .await;
    }

    /// Waits until the server knows this of the host.
    pub async fn host_is(&self, host_id: &str, health: HostHealth) {
        let client = self.client();
        eventually(&format!("{host_id} to be {health:?}"), || async {
            let hosts = client.list_hosts().await.expect("listed");
            hosts.iter().any(|host| host.host_id == host_id && host.health() == health).then_some(())
        })
        .await;
    }
}

fn configuration(port: u16, setting: &Setting) -> String {
    let Setting { provider, server, agent, leases, grace_period, in_doubt_timeout, .. } = setting;
    let Setting { max_parallel, retry, ask_human, titles, park_after, log_level, .. } = setting;
    let store = setting.store.clone().unwrap_or_else(|| postgres::new_store("agentloop.db".into()).keys());
    let leases = match leases {
        Leases::AsByDefault => String::new(),
        Leases::EndAfter(silence) => {
            format!("heartbeat_interval = \"300ms\"\nlease_timeout = \"{silence}\"\n")
        }
    };
    format!(
        r#"
[server]
listen = "127.0.0.1:{port}"
{server}
[store]
{store}
[log]
level = "{log_level}"
[hosts]
{leases}grace_period = "{grace_period}"
[runs]
in_doubt_timeout = "{in_doubt_timeout}"
park_after = "{park_after}"
[providers.test]
{provider}
[agents.default]
model = "test/m"
retry = {retry}
tool_policy = {{ max_parallel = {max_parallel}, ask_human = {ask_human} }}
background = {{ title = {titles} }}
{agent}
"#
    )
}

/// A run of these ids.
pub fn input(run_id: &str, session_id: &str, prompt: &str) -> RunInput {
    RunInput {
        run_id: Some(run_id.to_owned()),
        session_id: Some(session_id.to_owned()),
        auto_create_session: Some(true),
        prompt: prompt.to_owned(),
        ..RunInput::default()
    }
}

/// The command, as it was built.
pub fn agentloop() -> Command {
    Command::new(built("agentloop"))
}

/// A port that is free, and stays free while the server is down: outside of what systems commonly give to clients.
pub(super) fn free_port() -> u16 {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 20_000;
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    // Test programs that run at the same time begin at different places.
    let start = std::process::id().wrapping_mul(97);
    loop {
        let number = start.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + number % COUNT).expect("these are ports");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
