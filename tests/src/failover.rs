//! The time for which runs stand still when the replica that owns them is lost.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agentloop_client::host::{CallContext, HostError, Tool, ToolHost};
use agentloop_client::v1::RunEvent;
use agentloop_client::v1::run_event::Event;
use agentloop_client::{Client, EventStream};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::model::{Answer, Model};
use crate::owners::Owners;
use crate::postgres;
use crate::process::balancer::Balancer;
use crate::process::eventually;
use crate::process::server::{FENCED, Leases, Server, Setting, input, patient};

/// Replicas over the database.
pub(crate) const REPLICAS: usize = 3;

/// The load, and the losses of its owners.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Runs that are at work.
    pub runs: usize,
    /// Owners that are lost, one after the other.
    pub losses: usize,
    /// The fault that the owner gets.
    pub way: Way,
    /// Time that the model takes for an answer.
    pub thinks: Duration,
    /// The program that replicas run until they are lost, such as an earlier version. `None`: the one that they run afterwards.
    pub from: Option<PathBuf>,
}

/// The fault that the owner gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// SIGKILL: the process is gone at once.
    Kill,
    /// SIGSTOP, and SIGCONT when another one has its place. Its connections stay open meanwhile.
    Freeze,
    /// SIGTERM: the owner hands over.
    Terminate,
    /// SIGTERM to one replica after the other, whichever the owner is, as in a rolling deploy.
    Roll,
}

/// The times from the loss of the owner to the next durable event of each run, in milliseconds.
#[derive(Debug, Clone)]
pub struct Pauses {
    /// Number of measured times.
    pub count: usize,
    /// Half of them are shorter.
    pub p50: u64,
    /// 99 of 100 are shorter.
    pub p99: u64,
    /// The longest of all of them.
    pub max: u64,
    /// For each kind of event that came next: how many, and the longest pause.
    pub by_kind: BTreeMap<String, (usize, u64)>,
    /// Owners that were lost although nothing was done to them.
    pub lost_unasked: usize,
    /// Durable events that subscribers saw twice or not at all.
    pub out_of_order: u64,
    /// Number of runs that ended.
    pub ended: usize,
}

/// A run as its subscriber sees it.
struct Watched {
    durable: watch::Receiver<Vec<Durable>>,
}

/// A durable event of a run.
#[derive(Debug, Clone)]
struct Durable {
    /// Its time by the clock of its server, in milliseconds since 1970.
    at: u64,
    /// Name of its variant in the contract.
    kind: String,
}

impl Watched {
    /// The first durable event after this time.
    async fn first_after(&mut self, time: u64) -> Durable {
        let is_later = |event: &&Durable| event.at > time;
        let seen = self.durable.wait_for(|durable| durable.iter().any(|event| is_later(&event))).await;
        let seen = seen.expect("it is followed");
        seen.iter().find(is_later).expect("it was waited for").clone()
    }
}

/// Three replicas behind a balancer, through which a host of `look` serves all of them.
pub(crate) struct AtWork {
    pub(crate) servers: Vec<Server>,
    pub(crate) balancer: Balancer,
    pub(crate) serving: JoinHandle<Result<(), HostError>>,
    pub(crate) client: Client,
}

impl AtWork {
    /// Starts them, and waits until the tool is known.
    pub(crate) async fn start(setting: &Setting) -> Self {
        let mut servers = Vec::new();
        for _ in 0..REPLICAS {
            servers.push(Server::start(setting).await);
        }
        let balancer = Balancer::start(servers.iter().map(Server::address).collect()).await;
        let host = looking_host(&balancer.url());
        let serving = tokio::spawn(async move { host.run_until(std::future::pending()).await });
        let client = patient(balancer.url()).build().expect("a good address");
        eventually("the tool", || async { client.list_tools().await.ok()?.first().map(drop) }).await;
        Self { servers, balancer, serving, client }
    }
}

/// Has runs at work on three replicas, and loses one owner after the other.
///
/// # Panics
/// When there is no database, or something fails that must not.
pub async fn measure(plan: &Plan) -> Pauses {
    let url =
        postgres::url().expect("AGENTLOOP_TEST_POSTGRES has the address of a database: tests/with-postgres");
    let model = Model::start().await;
    let thinks = plan.thinks;
    model.forgets().answers(move |request| {
        // Different arguments each time: equal calls would end the run.
        let place = request["messages"].as_array().map_or(0, Vec::len);
        let call = ("look".to_owned(), json!({ "at": place }));
        Answer::Later(thinks, Box::new(Answer::Asks(vec![call])))
    });
    let url = postgres::in_new_schema(url);
    let setting = Setting {
        provider: format!("kind = \"openai\"\nbase_url = \"{}\"\n", model.base_url()),
        store: Some(format!("url = \"{url}\"")),
        more: "[cluster]\nlisten = \"127.0.0.1:0\"\n".to_owned(),
        agent: "limits = { max_iterations = 10000 }\ncontext = { max_messages = 400 }\n",
        leases: Leases::AsByDefault,
        log_level: "warn",
        program: plan.from.clone(),
        ..Setting::default()
    };
    let AtWork { mut servers, balancer, serving, client } = AtWork::start(&setting).await;
    let out_of_order = Arc::new(AtomicU64::new(0));
    let (mut watched, mut watching) = (Vec::new(), JoinSet::new());
    for number in 0..plan.runs {
        let stream =
            client.run_stream(input(&format!("r-{number}"), &format!("s-{number}"), "Look on")).await;
        let (sender, durable) = watch::channel(Vec::new());
        watching.spawn(follow(stream.expect("it starts"), sender, out_of_order.clone()));
        watched.push(Watched { durable });
    }
    let mut owners = Owners::of(&url).await;
    let (mut pauses, mut lost_unasked) = (Vec::new(), 0);
    let mut by_kind = BTreeMap::<String, Vec<u64>>::new();
    for loss in 0..plan.losses {
        // Replicas of an earlier version have no parts.
        if plan.from.is_none() {
            owners.shared_by(REPLICAS).await;
        }
        let at = loss % REPLICAS;
        let mut is_lost = Vec::new();
        for number in 0..plan.runs {
            is_lost.push(owners.now(&servers, &format!("s-{number}")).await == Some(at));
        }
        // Every run has an event of this owner before it is lost.
        let begun = now_ms();
        for run in &mut watched {
            run.first_after(begun).await;
        }
        let lost = now_ms();
        match plan.way {
            Way::Freeze => balancer.avoid(at),
            Way::Kill | Way::Terminate | Way::Roll => balancer.set(at, false),
        }
        match plan.way {
            Way::Kill => servers[at].kill().await,
            Way::Freeze => servers[at].signal("STOP").await,
            Way::Terminate | Way::Roll => {
                let (code, said) = servers[at].terminate().await;
                assert_eq!(code, 0, "{said}");
            }
        }
        // An owner that is told to stop writes on until it ends.
        let is_told = matches!(plan.way, Way::Terminate | Way::Roll);
        let gone = if is_told { now_ms() } else { lost };
        for (run, is_lost) in watched.iter_mut().zip(is_lost) {
            let next = run.first_after(gone).await;
            // The runs of others go on.
            if !is_lost {
                continue;
            }
            pauses.push(next.at - lost);
            by_kind.entry(next.kind).or_default().push(next.at - lost);
        }
        if plan.way == Way::Freeze {
            servers[at].signal("CONT").await;
            let (code, said) = servers[at].take().ended().await;
            assert_eq!(code, FENCED, "{said}");
        }
        servers[at].renew();
        servers[at].start_again().await;
        balancer.set(at, true);
        for server in &mut servers {
            if let Some((code, said)) = server.has_ended().await {
                assert_eq!(code, FENCED, "{said}");
                lost_unasked += 1;
                server.start_again().await;
            }
        }
    }
    let ended = plan.runs - watching.len() + std::iter::from_fn(|| watching.try_join_next()).count();
    serving.abort();
    pauses.sort_unstable();
    let part =
        |percent: usize| pauses.get(pauses.len() * percent / 100).or(pauses.last()).copied().unwrap_or(0);
    Pauses {
        count: pauses.len(),
        p50: part(50),
        p99: part(99),
        max: part(100),
        by_kind: by_kind.into_iter().map(|(kind, all)| (kind, (all.len(), most(&all)))).collect(),
        lost_unasked,
        out_of_order: out_of_order.load(Ordering::Relaxed),
        ended,
    }
}

/// Reads the events of a run, and keeps the times of the durable ones.
async fn follow(mut stream: EventStream, durable: watch::Sender<Vec<Durable>>, out_of_order: Arc<AtomicU64>) {
    let mut last = 0;
    while let Some(event) = stream.next().await {
        let RunEvent { seq, at, event, .. } = event.expect("the stream goes on");
        if seq == 0 {
            continue;
        }
        out_of_order.fetch_add(u64::from(seq != last + 1), Ordering::Relaxed);
        last = seq;
        if matches!(event, Some(Event::RunFinished(_))) {
            break;
        }
        let at = at.unwrap_or_default();
        let millis = at.seconds * 1_000 + i64::from(at.nanos) / 1_000_000;
        let kind = event_name(event.as_ref());
        let at = u64::try_from(millis).unwrap_or_default();
        durable.send_modify(|durable| durable.push(Durable { at, kind }));
    }
}

/// The name of the event's variant in the contract.
pub(crate) fn event_name(event: Option<&Event>) -> String {
    let written = format!("{event:?}");
    written.trim_start_matches("Some(").split('(').next().unwrap_or_default().to_owned()
}

/// A host of the tool `look`, which takes no time.
pub(crate) fn looking_host(url: &str) -> ToolHost {
    let look = Tool::new("look", "Looks")
        .input_schema(&json!({ "type": "object", "properties": { "at": { "type": "integer" } } }))
        .read_only()
        .handler(|_: Value, _: CallContext| async { Ok("nothing".to_owned()) });
    ToolHost::builder(url).host_id("h-1").concurrency(256).tool(look).build().expect("a good host")
}

fn most(all: &[u64]) -> u64 {
    all.iter().copied().max().unwrap_or_default()
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
