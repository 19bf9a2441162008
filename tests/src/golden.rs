//! Databases of every version of the schema, kept as files: what they hold, and how they are made.
//!
//! Each has the same sessions, as far as its version knew of such: finished, compacted and forked ones, and runs in the
//! middle of everything that a server can be stopped in.

use std::path::{Path, PathBuf};

use agentloop_client::v1 as wire;
use agentloop_client::{Client, EventStream};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, SqliteConnection};
use wire::BusySessionPolicy as Busy;
use wire::run_event::Event;

use crate::input::in_session;
use crate::load::brain::{Brain, Temper, prompt};
use crate::load::live::compacting;
use crate::load::script::{ASK, LOOK, PAY, POST, PUT, Script, wish};
use crate::load::world::setting;
use crate::model::Model;
use crate::process::host::Host;
use crate::process::server::{Server, Setting};
use crate::process::{eventually, top};

/// Small pages, since most tables have few rows.
const PAGE_BYTES: u32 = 512;
/// A call of this length, in milliseconds, is under way whenever the server is killed.
const LONG_MS: u64 = 2_000;

/// A run that is in the files.
pub struct Known {
    /// Its key; the run is `r-` and this, its session `s-` and this.
    pub key: &'static str,
    /// The first version of the schema that can hold it.
    pub since: i64,
    /// The script of its model.
    pub script: Script,
    /// True if the run has ended in the files.
    pub finished: bool,
}

/// All runs, but those that wait in a queue.
pub fn known() -> Vec<Known> {
    let run = |key, since, rounds: &[&[crate::load::script::Wish]], finished| Known {
        key,
        since,
        script: Script::of(rounds),
        finished,
    };
    vec![
        run("finished", 1, &[&[wish(LOOK, 1), wish(PUT, 1)]], true),
        run("compacted", 1, &[&[wish(LOOK, 1)], &[wish(LOOK, 1)], &[wish(LOOK, 1)]], true),
        run("remembered", 6, &[&[wish(POST, 1)]], true),
        run("parked", 1, &[&[wish(POST, 1)]], false),
        run("asks", 1, &[&[wish(ASK, 1)]], false),
        run("pays", 1, &[&[wish(PAY, LONG_MS)]], false),
        run("looks", 1, &[&[wish(LOOK, LONG_MS)]], false),
    ]
}

/// The input that a known run was started with.
pub fn input(key: &str) -> wire::RunInput {
    let mut input = in_session(&format!("s-{key}"), &format!("r-{key}"), &prompt(key));
    if key == "compacted" {
        input.context_policy = Some(compacting("truncate", 4));
    }
    input
}

/// The run that waits until the session of the run `pays` is free.
pub fn queued() -> wire::RunInput {
    let mut input = in_session("s-pays", "r-queued", &prompt("queued"));
    input.on_busy_session = Busy::Enqueue.into();
    input
}

/// The file of a version.
pub fn file(version: i64) -> PathBuf {
    top().join(format!("tests/golden/{version:04}.db"))
}

/// The versions of the schema: the numbers of its migrations, in order.
///
/// # Panics
/// When they cannot be read.
pub fn versions() -> Vec<i64> {
    let files = std::fs::read_dir(top().join("server/migrations/sqlite")).expect("a folder of migrations");
    let number = |file: std::io::Result<std::fs::DirEntry>| {
        let name = file.expect("a file").file_name().into_string().expect("a plain name");
        name.split('_').next().and_then(|number| number.parse().ok()).expect("its number comes first")
    };
    let mut versions: Vec<i64> = files.map(number).collect();
    versions.sort_unstable();
    versions
}

/// Makes the file of the newest version, if it is missing. Those before it were made by servers of their time.
///
/// # Panics
/// When that does not work.
pub async fn make() {
    let newest = *versions().last().expect("there is a schema");
    if file(newest).exists() {
        return;
    }
    let (server, _model) = killed_server().await;
    write(&server.file("agentloop.db"), &file(newest)).await;
    println!("made {}", file(newest).display());
}

/// A server that was killed in the middle of everything.
async fn killed_server() -> (Server, Model) {
    let (model, brain) = (Model::start().await, Brain::default());
    brain.drive(&model, Temper { fails: 0, thinks_ms: 0 }, 1);
    let mut server = Server::start(&Setting { titles: true, ..setting(&model) }).await;
    let host = Host::start(&server, "h-1").await;
    let client = server.client();
    let mut streams = Vec::new();
    for Known { key, script, finished, .. } in known() {
        brain.learn(key, script);
        let mut events = client.run_stream(input(key)).await.expect("started");
        if key == "remembered" {
            remember(&client, &mut events).await;
        }
        if finished {
            while events.next().await.is_some() {}
        }
        streams.push(events);
    }
    streams.push(client.run_stream(queued()).await.expect("queued"));
    fork(&client, "finished", "forked").await;
    client.run(input("gone")).await.expect("a result");
    fork(&client, "gone", "kept").await;
    client.delete_session("s-gone").await.expect("deleted");
    server.question("r-parked").await;
    server.question("r-asks").await;
    host.does("begin pays.0.0").await;
    host.does("begin looks.0.0").await;
    eventually("the calls to be accepted", || async {
        let runs = client.list_runs(wire::ListRunsRequest::default()).await.expect("listed").runs;
        let busy = runs.iter().filter(|run| run.status() == wire::RunStatus::ToolRunning);
        (busy.count() == 2).then_some(())
    })
    .await;
    server.kill().await;
    (server, model)
}

async fn remember(client: &Client, events: &mut EventStream) {
    while let Some(event) = events.next().await {
        let Some(Event::HumanRequested(asked)) = event.expect("an event").event else { continue };
        let asked = asked.request.expect("a question");
        let approve = wire::decision::Decision::Approve(wire::Approve {});
        let request = wire::SubmitApprovalRequest {
            request_id: asked.request_id,
            decision: Some(wire::Decision { decision: Some(approve) }),
            digest: asked.digest,
            remember: wire::RememberScope::Session.into(),
            ..Default::default()
        };
        client.submit_approval(request).await.expect("answered");
        return;
    }
}

async fn fork(client: &Client, source: &str, session: &str) {
    let request = wire::ForkSessionRequest {
        session_id: format!("s-{source}"),
        new_session_id: Some(format!("s-{session}")),
        ..Default::default()
    };
    client.fork_session(request).await.expect("forked");
}

/// A copy of the source with small pages.
async fn write(source: &Path, path: &Path) {
    let options = SqliteConnectOptions::new().filename(source).pragma("page_size", PAGE_BYTES.to_string());
    let mut db = options.connect().await.expect("the killed server's file");
    // Work of which nobody knows any more why it was not done at once.
    let job = "INSERT OR IGNORE INTO jobs (run_no, kind, due_at, attempts, error)
               SELECT run_no, 'title', 1, 1, 'the model was busy' FROM runs WHERE run_id = 'r-finished'";
    execute(&mut db, job).await;
    execute(&mut db, &format!("VACUUM INTO '{}'", path.display())).await;
    db.close().await.expect("closed");
}

async fn execute(db: &mut SqliteConnection, sql: &str) {
    let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(db).await;
    done.unwrap_or_else(|error| panic!("{sql}: {error}"));
}
