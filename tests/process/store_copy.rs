//! `agentloop store copy` of the database of a server, which is refused while the server runs, and killed in its middle. Left out
//! without a PostgreSQL, in one line.

use std::collections::BTreeMap;
use std::path::Path;

use agentloop_client::Client;
use agentloop_client::v1::{ListRunsRequest, RunStatus};
use agentloop_tests::postgres;
use agentloop_tests::stored::Stored;
use futures_util::future::join_all;
use serde_json::Value;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Executor as _, PgConnection};

use crate::support::child::Process;
use crate::support::eventually;
use crate::support::model::Model;
use crate::support::server::{Server, Setting, agentloop, input};

/// Sessions of the source, each of which has two runs. A batch of the copy has 64.
const SESSIONS: usize = 150;
/// Sessions of the batches before the one in which the copy is killed.
const COPIED: i64 = 128;

/// Makes a copy wait in the batch after the sessions before, until the lock of the test is released.
const WAITS: &str = "
    CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF (SELECT count(*) FROM sessions) >= 128 THEN
            PERFORM pg_advisory_xact_lock(hashtext(current_schema()));
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER waits BEFORE INSERT ON sessions FOR EACH ROW EXECUTE FUNCTION waits();";

/// Starts to copy the database of a server alone to the address of another one.
fn copy(from: &Path, to: &str) -> Process {
    let mut command = agentloop();
    command.args(["store", "copy", "--json"]).arg(from).arg(to);
    Process::start("copy", command)
}

/// The report of a command that has succeeded, and what it said before.
async fn report(copy: Process) -> (Value, String) {
    let (code, said) = copy.ended().await;
    assert_eq!(code, 0, "{said}");
    let report = said.lines().find(|line| line.starts_with('{')).expect("a report");
    (serde_json::from_str(report).expect("JSON"), said)
}

/// The digests of the replays of all runs, each of which is faithful, by their ids.
async fn replays(client: &Client) -> BTreeMap<String, [String; 2]> {
    let (mut runs, mut request) = (Vec::new(), ListRunsRequest { page_size: 500, ..Default::default() });
    loop {
        let page = client.list_runs(request.clone()).await.expect("listed");
        runs.extend(page.runs);
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    let replay = async |run: agentloop_client::v1::Run| {
        assert_eq!(run.status(), RunStatus::Completed, "{run:?}");
        let replayed = client.replay_run(&run.run_id).await.expect("replayed");
        assert!(replayed.faithful && replayed.unverified_events == 0, "{replayed:?}");
        (run.run_id, [replayed.state_digest, replayed.context_digest])
    };
    join_all(runs.into_iter().map(replay)).await.into_iter().collect()
}

async fn connect(url: &str) -> PgConnection {
    url.parse::<PgConnectOptions>().expect("an address").connect().await.expect("a database")
}

async fn number(db: &mut PgConnection, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(db).await.expect("it answers")
}

#[tokio::test]
async fn a_copy_is_refused_while_a_server_runs_and_goes_on_after_it_was_killed() {
    let Some(database) = postgres::url() else {
        println!("not tested: copies of databases, because AGENTLOOP_TEST_POSTGRES names no database");
        return;
    };
    let [cut, whole] = [database.clone(), database].map(postgres::in_new_schema);
    let model = Model::start().await;
    let setting = Setting { store: Some("path = \"agentloop.db\"".to_owned()), ..model.setting() };
    model.answers_by(|call| call.say("Hello."));
    let mut server = Server::start(&setting).await;
    let client = server.client();
    for turn in 0..2 {
        let run =
            |session| client.run(input(&format!("r-{session}-{turn}"), &format!("s-{session}"), "Say hello"));
        for run in join_all((0..SESSIONS).map(run)).await {
            assert_eq!(run.expect("it runs").status(), RunStatus::Completed);
        }
    }
    let before = replays(&client).await;
    assert_eq!(before.len(), 2 * SESSIONS);

    let file = server.file("agentloop.db");
    let (code, said) = copy(&file, &cut).ended().await;
    let in_use = format!("{} is in use by another server", file.display());
    assert!(
        code == 1 && said.contains(&in_use) && said.contains(&server.pid().to_string()),
        "{code}: {said}"
    );
    let mut shell = connect(&cut).await;
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()";
    assert_eq!(number(&mut shell, tables).await, 0, "nothing was made");
    let (code, said) = server.terminate().await;
    assert_eq!(code, 0, "{said}");

    // The tables are there, and nothing in them.
    Stored::Postgres(cut.clone()).opened(async |_| {}).await;
    shell.execute(WAITS).await.expect("made");
    shell.execute("SELECT pg_advisory_lock(hashtext(current_schema()))").await.expect("locked");
    let mut killed = copy(&file, &cut);
    killed.line_with(&format!("{COPIED} of {SESSIONS} sessions")).await;
    let shared = tokio::sync::Mutex::new(&mut shell);
    eventually("a copy that waits for the test", || async {
        let waits =
            "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))";
        (number(*shared.lock().await, waits).await == 1).then_some(())
    })
    .await;
    killed.kill().await;
    assert_eq!(number(&mut shell, "SELECT count(*) FROM sessions").await, COPIED);
    shell.execute("SELECT pg_advisory_unlock_all()").await.expect("unlocked");
    // It waits until the connection of the killed copy has rolled back.
    shell.execute("DROP TRIGGER waits ON sessions; DROP FUNCTION waits").await.expect("dropped");
    assert_eq!(number(&mut shell, "SELECT count(*) FROM sessions").await, COPIED, "no part of a batch stays");

    let mut early = agentloop();
    early.arg("serve").current_dir(server.file("")).env("AGENTLOOP_STORE_URL", &cut);
    early.env("AGENTLOOP_SERVER_LISTEN", "127.0.0.1:0");
    let (code, said) = Process::start("early", early).ended().await;
    assert!(code == 1 && said.contains("a copy into the database at"), "{code}: {said}");
    let (resumed, said) = report(copy(&file, &cut)).await;
    assert!(!said.contains(&format!("{COPIED} of {SESSIONS} sessions")), "it does not begin anew: {said}");
    assert!(said.contains(&format!("{SESSIONS} of {SESSIONS} sessions")), "{said}");
    let (uncut, _) = report(copy(&file, &whole)).await;
    assert_eq!(resumed, uncut);
    assert_eq!((&resumed["sessions"], &resumed["runs"]), (&SESSIONS.into(), &(2 * SESSIONS).into()));
    let (code, said) = copy(&file, &cut).ended().await;
    assert!(code == 1 && said.contains("the PostgreSQL database is not empty"), "{code}: {said}");

    let copied = Server::start(&Setting { store: Some(format!("url = \"{cut}\"")), ..setting }).await;
    assert_eq!(replays(&copied.client()).await, before);
}
