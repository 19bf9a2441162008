//! The wait of a quiet tenant beside a noisy one, measured through a whole server: for each thing that runs of several
//! tenants may wait for.

mod model;
pub mod writes;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use agentloop_client::host::{CallContext, Tool, ToolHost};
use agentloop_client::v1::{HostHealth, RunStatus};
use agentloop_client::{Backoff, Client};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::model::SharedModel;
use crate::credentials::{Authority, SecurityFiles};
use crate::model::{Answer, Model};
use crate::process::eventually;
use crate::process::server::{Server, Setting, input};

/// Runs of the noisy tenant at a time. It starts another as soon as one has ended.
const NOISY: usize = 200;
/// Calls that the host of a tenant takes at a time.
const PLACES: usize = 4;
/// Time that a call of the tool takes.
const CALL: Duration = Duration::from_millis(10);
/// Time that an answer of the model takes where it takes any.
const THOUGHT: Duration = Duration::from_millis(500);
/// Runs of the noisy tenant that end before anything is measured beside it.
const WARM_UP: usize = NOISY;

/// The thing that runs wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Commits of the store, and the processor: the model answers at once.
    Writes,
    /// Places at the tool host of the tenant. Each run makes one call.
    Tools,
    /// A model that takes its time, over a connection for each call.
    Model,
    /// The same over HTTP/2, where the provider takes so many requests of one connection.
    Http2Model,
}

impl Wait {
    /// Each of them, in the order in which they are measured.
    pub const ALL: [Self; 4] = [Self::Writes, Self::Tools, Self::Model, Self::Http2Model];

    /// Measured runs of the quiet tenant, one at a time.
    fn runs(self) -> usize {
        match self {
            Self::Writes | Self::Tools => 200,
            Self::Model | Self::Http2Model => 30,
        }
    }

    fn prompt(self) -> &'static str {
        match self {
            Self::Writes => "Write",
            Self::Tools => "Look",
            Self::Model | Self::Http2Model => "Think",
        }
    }
}

/// The times that runs took.
#[derive(Debug, Clone)]
pub struct Times(Vec<Duration>);

impl Times {
    fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// The time that so many of a hundred runs did not pass.
    #[must_use]
    pub fn at(&self, part: usize) -> Duration {
        self.0[(self.0.len() * part / 100).min(self.0.len() - 1)]
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1?}, 99 %: {:.1?}", self.at(50), self.at(99))
    }
}

/// The times of both tenants while their runs wait for one thing.
#[derive(Debug)]
pub struct Measured {
    /// Runs of the quiet tenant while nobody else calls.
    pub alone: Times,
    /// The same beside the noisy tenant.
    pub beside: Times,
    /// Runs of the noisy tenant meanwhile. In a queue that does not know tenants, a run of the quiet one takes as long.
    pub noisy: Times,
    /// Runs that ended in a second, of both together.
    pub per_second: f64,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  quiet, alone:  {}", self.alone)?;
        writeln!(f, "  quiet, beside: {}", self.beside)?;
        writeln!(f, "  noisy:         {}", self.noisy)?;
        write!(f, "  runs a second: {:.0}", self.per_second)
    }
}

/// Measures one of them with a server of its own. `AGENTLOOP_TEST_POSTGRES` chooses its store, as for tests.
///
/// # Panics
/// When the server does not do as it should.
pub async fn measure(wait: Wait) -> Measured {
    let stage = Stage::new(wait).await;
    let quiet = stage.tenant("quiet").await;
    let noisy = stage.tenant("noisy").await;
    let alone = Times::new(quiet.runs("alone", wait.prompt(), wait.runs()).await);
    let (stop, started) = (Arc::new(AtomicBool::new(false)), Instant::now());
    let mut running = JoinSet::new();
    for caller in 0..NOISY {
        let (client, stop) = (noisy.client.clone(), stop.clone());
        running.spawn(async move {
            let mut ended = Vec::new();
            for number in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let began = Instant::now();
                run(&client, &format!("n{caller}-{number}"), wait.prompt()).await;
                ended.push((started.elapsed(), began.elapsed()));
            }
            ended
        });
    }
    // Each of its callers has had one run end, so all that it can fill is full.
    noisy.until_ended(WARM_UP).await;
    let (from, times) = (started.elapsed(), quiet.runs("beside", wait.prompt(), wait.runs()).await);
    let to = started.elapsed();
    stop.store(true, Ordering::Relaxed);
    let mut all = Vec::new();
    while let Some(ended) = running.join_next().await {
        all.extend(ended.expect("its runs end"));
    }
    let meanwhile: Vec<Duration> =
        all.into_iter().filter(|(at, _)| *at > from && *at <= to).map(|(_, took)| took).collect();
    assert!(!meanwhile.is_empty(), "runs of the noisy tenant ended while the quiet one was measured");
    let per_second = (meanwhile.len() + times.len()) as f64 / (to - from).as_secs_f64();
    Measured { alone, beside: Times::new(times), noisy: Times::new(meanwhile), per_second }
}

/// A server with a model and two tenants.
struct Stage {
    server: Server,
    _files: SecurityFiles,
    tokens: Vec<(&'static str, [String; 2])>,
    _model: Model,
    _shared: Option<SharedModel>,
}

impl Stage {
    async fn new(wait: Wait) -> Self {
        let model = Model::start().await;
        model.forgets().answers(answer);
        let files = SecurityFiles::new();
        let tokens = ["quiet", "noisy"]
            .map(|tenant| (tenant, ["operator", "host"].map(|role| files.token(role, tenant, &[role]))));
        let mut setting = Setting {
            provider: format!("kind = \"openai\"\nbase_url = \"{}\"\n", model.base_url()),
            log_level: "warn",
            more: files.auth(),
            ..Setting::default()
        };
        let mut shared = None;
        if wait == Wait::Http2Model {
            let authority = Authority::new();
            let model = SharedModel::start(&authority.server(), THOUGHT).await;
            files.write("roots.pem", &authority.root());
            setting.provider = format!("kind = \"openai\"\nbase_url = \"{}\"\n", model.base_url());
            setting.environment = roots(&files);
            shared = Some(model);
        }
        let server = Server::start(&setting).await;
        Self { server, _files: files, tokens: tokens.into(), _model: model, _shared: shared }
    }

    async fn tenant(&self, name: &str) -> Tenant {
        let (_, [operator, host]) =
            self.tokens.iter().find(|(tenant, _)| *tenant == name).expect("there is a tenant of this name");
        let once = Backoff { max_retries: 0, ..Backoff::default() };
        let builder = self.server.client_builder().backoff(once).token(operator);
        let client = builder.build().expect("a good address");
        let host = looking_host(&self.server.url(), host);
        tokio::spawn(async move {
            let _ended = host.run_until(std::future::pending()).await;
        });
        eventually("the host", || async {
            let hosts = client.list_hosts().await.ok()?;
            hosts.iter().find(|host| host.health() == HostHealth::Connected).map(drop)
        })
        .await;
        Tenant { client }
    }
}

/// The variable that makes a server trust the certificates of a test alone. The program measures once and ends.
fn roots(files: &SecurityFiles) -> &'static [(&'static str, &'static str)] {
    let path = files.path("roots.pem").to_string_lossy().into_owned();
    Box::leak(Box::new([("SSL_CERT_FILE", &*path.leak())]))
}

/// A tenant whose runs are timed.
struct Tenant {
    client: Client,
}

impl Tenant {
    async fn runs(&self, name: &str, prompt: &str, count: usize) -> Vec<Duration> {
        let mut times = Vec::with_capacity(count);
        for number in 0..count {
            let began = Instant::now();
            run(&self.client, &format!("{name}-{number}"), prompt).await;
            times.push(began.elapsed());
        }
        times
    }

    /// Until this many of its runs have ended.
    async fn until_ended(&self, runs: usize) {
        eventually("the noise", || async {
            let usage = self.client.get_usage(Default::default()).await.expect("it is told");
            let calls: u64 = usage.rows.iter().map(|row| row.model_calls).sum();
            (calls >= runs as u64).then_some(())
        })
        .await;
    }
}

async fn run(client: &Client, id: &str, prompt: &str) {
    let result = client.run(input(id, id, prompt)).await.expect("it ends");
    assert_eq!(result.status(), RunStatus::Completed, "{:?}", result.last_error);
}

fn looking_host(url: &str, token: &str) -> ToolHost {
    let look = Tool::new("look", "Looks")
        .input_schema(&json!({ "type": "object", "properties": { "at": { "type": "integer" } } }))
        .read_only()
        .handler(|_: Value, _: CallContext| async {
            tokio::time::sleep(CALL).await;
            Ok("nothing".to_owned())
        });
    let builder = ToolHost::builder(url).host_id("h-1").token(token).concurrency(PLACES);
    builder.tool(look).build().expect("a good host")
}

fn answer(request: &Value) -> Answer {
    let last = request["messages"].as_array().and_then(|messages| messages.last());
    let says = || Answer::Says("done".to_owned());
    match last.and_then(|message| message["content"].as_str()) {
        Some("Look") => Answer::Asks(vec![("look".to_owned(), json!({ "at": 1 }))]),
        Some("Think") => Answer::Later(THOUGHT, Box::new(says())),
        _ => says(),
    }
}
