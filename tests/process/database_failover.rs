//! Replicas over a PostgreSQL that fails over: its primary is lost, and its synchronous standby takes over at the same address.
//! Left out without a database, in one line.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use agentloop_client::Client;
use agentloop_client::v1::run_event::Event;
use agentloop_client::v1::{CreateSessionRequest, Replica, ToolStatus};
use agentloop_tests::owners::Owners;
use serde_json::json;
use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::watch;

use crate::support::balancer::Balancer;
use crate::support::database_pair::DatabasePair;
use crate::support::follow::{Follower, outcome};
use crate::support::host::Host;
use crate::support::model::{Call, Model};
use crate::support::server::{Server, Setting, input, patient};
use crate::support::soon;

const REPLICAS: usize = 3;
/// Runs that write all the time.
const BUSY_RUNS: usize = 4;
/// The database is away for as long as a payment takes: longer than the owner trusts its lease.
const PAYMENT_MS: u64 = 2_500;

const THINK: &str = "Think about it.";
const PAY_SLOWLY: &str = "Pay slowly.";
const PAY_ON: &str = "Pay again and again.";

/// The part of the test, which is the beginning of the labels of the payments that are asked for in it.
const BEFORE: &str = "before";
const AFTER: &str = "after";
const END: &str = "end";

#[tokio::test]
async fn a_synchronous_standby_becomes_the_primary_and_nothing_is_lost_or_doubled() {
    let Some(database) = DatabasePair::start().await else {
        println!("not tested: a database that fails over, because there are no programs of PostgreSQL");
        return;
    };
    let mut model = Model::start().await;
    let setting = Setting {
        store: Some(format!("url = \"{}\"", database.url())),
        more: "[audit]\nenabled = true\n[cluster]\nlisten = \"127.0.0.1:0\"\n".to_owned(),
        agent: "limits = { max_iterations = 10000 }",
        ..model.setting()
    };
    let mut servers = Vec::new();
    for _ in 0..REPLICAS {
        servers.push(Server::start(&setting).await);
    }
    for server in &servers {
        server.ready().await;
    }
    let balancer = Balancer::start(servers.iter().map(Server::address).collect()).await;
    let host = Host::start_in(&servers[0].file(""), &balancer.url(), "h-1", 16).await;
    let client = client(&balancer);

    // One run is in a model call, some write all the time, and one has a call under way at its host.
    let mut runs = vec![follow(&balancer, "r-thinks", THINK).await];
    let thought = model.call_about(THINK).await;
    let (part, shown) = watch::channel(BEFORE);
    let number = AtomicUsize::new(0);
    model.answers_by(move |call| {
        let label = format!("{}-{}", *shown.borrow(), number.fetch_add(1, Ordering::Relaxed));
        answer(call, label)
    });
    let mut busy = Vec::new();
    for number in 0..BUSY_RUNS {
        let mut run = follow(&balancer, &format!("r-{number}"), PAY_ON).await;
        run.result().await;
        busy.push(run);
    }
    runs.push(follow(&balancer, "r-pays", PAY_SLOWLY).await);
    host.does("begin slow").await;
    let before = client.list_replicas().await.expect("listed");
    let paying: Vec<_> = busy.into_iter().map(|run| tokio::spawn(until_after(run))).collect();

    database.crash_primary().await;
    // The answer and the result come while there is no database.
    thought.say("Noted.").await;
    host.does("end slow").await;
    database.promote_standby().await;
    part.send_replace(AFTER);

    for run in paying {
        runs.push(run.await.expect("it pays on"));
    }
    part.send_replace(END);
    for run in &mut runs {
        // Each event was seen once, and those from before the fail-over are in the database that has become the primary.
        assert_eq!(run.answer().await, "Noted.");
    }
    let mut told: Vec<String> = runs.iter().flat_map(paid).collect();
    let begun = host.did("begin ");
    let mut done: Vec<&str> = begun.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    let keys: BTreeSet<&str> = begun.iter().filter_map(|line| line.split(' ').next_back()).collect();
    told.sort();
    done.sort_unstable();
    assert_eq!(done, told, "each payment was made once");
    assert_eq!(keys.len(), begun.len(), "{begun:?}");
    let now = client.list_replicas().await.expect("listed");
    let numbers = |rows: &[Replica]| rows.iter().map(|row| (row.number, row.state)).collect::<Vec<_>>();
    assert_eq!(numbers(&now), numbers(&before), "nobody has lost its place");

    // Another replica begins with what is in the database alone.
    balancer.set(0, false);
    let (code, said) = servers[0].terminate().await;
    assert_eq!(code, 0, "{said}");
    Owners::of(&database.url()).await.shared_by(REPLICAS - 1).await;
    for run in &runs {
        let replayed = client.replay_run(run.run_id()).await.expect("replayed");
        assert!(replayed.faithful, "{}: {}", run.run_id(), replayed.difference);
        assert_eq!(replayed.events, run.seen.len() as u64);
    }
    assert_eq!(follow(&balancer, "r-last", THINK).await.answer().await, "Noted.");
    let audit = client.verify_audit().await.expect("checked");
    assert_eq!((audit.broken_no, audit.problem.as_str()), (0, ""));
    assert!(audit.records > runs.len() as u64, "{audit:?}");
}

/// The replica takes its commit for lost, and connects again to find out about it. A fail-over at this time would take it back.
#[tokio::test]
async fn nothing_is_shown_that_the_standby_has_not_confirmed() {
    let Some(database) = DatabasePair::start().await else {
        println!("not tested: a standby that is away, because there are no programs of PostgreSQL");
        return;
    };
    let model = Model::start().await;
    let setting = Setting {
        store: Some(format!("url = \"{}\"", database.url())),
        more: "[cluster]\nlisten = \"127.0.0.1:0\"\n".to_owned(),
        ..model.setting()
    };
    let server = Server::start(&setting).await;
    server.ready().await;
    let client = server.client();
    let options: PgConnectOptions = database.url().parse().expect("an address");
    let mut shell = options.connect().await.expect("it answers");

    database.stop_standby().await;
    let session =
        CreateSessionRequest { session_id: Some("s".to_owned()), ..CreateSessionRequest::default() };
    let creating = tokio::spawn(async move { client.create_session(session).await });
    // A connection that waited for the commit has been followed by another.
    let mut waited = BTreeSet::new();
    soon("a second look for the commit", async {
        while waited.len() < 2 {
            let sql = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE owners SET conn%'";
            waited.extend(sqlx::query_scalar::<_, i32>(sql).fetch_all(&mut shell).await.expect("it answers"));
            tokio::task::yield_now().await;
        }
    })
    .await;
    let sessions = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM sessions");
    assert_eq!(sessions.fetch_one(&mut shell).await.expect("it answers"), 0);

    database.start_standby().await;
    creating.await.expect("it goes on").expect("it is created");
}

/// A client whose next connection is to another replica than the one before had.
fn client(balancer: &Balancer) -> Client {
    patient(balancer.url()).build().expect("a good address")
}

/// Starts a run in a session of its own, and follows it by way of the next replica.
async fn follow(balancer: &Balancer, run: &str, prompt: &str) -> Follower {
    Follower::with(client(balancer), input(run, &format!("s-{run}"), prompt)).await
}

/// The model's answer, which has one payment more for as long as the test goes on.
async fn answer(call: Call, label: String) {
    let has_paid = call.last_message().contains("\"role\":\"tool\"");
    if call.mentions(PAY_SLOWLY) && !has_paid {
        call.use_tool("pay", json!({ "label": "slow", "ms": PAYMENT_MS })).await;
    } else if call.mentions(PAY_ON) && !label.starts_with(END) {
        call.use_tool("pay", json!({ "label": label, "ms": 20 })).await;
    } else {
        call.say("Noted.").await;
    }
}

/// Follows a run until it was told the result of a payment that was asked for after the fail-over.
async fn until_after(mut run: Follower) -> Follower {
    run.until("a payment after the fail-over", |event| match event {
        Event::ToolCallResult(result) => outcome(result).1.starts_with(AFTER).then_some(()),
        _ => None,
    })
    .await;
    run
}

/// The labels of the payments whose results a run was told.
fn paid(run: &Follower) -> Vec<String> {
    let results = run.seen.iter().filter_map(|event| match &event.event {
        Some(Event::ToolCallResult(result)) => Some(outcome(result)),
        _ => None,
    });
    let label = |(status, output): (ToolStatus, &str)| {
        assert_eq!(status, ToolStatus::Succeeded, "{output}");
        output.strip_suffix(" is done").expect("it says so").to_owned()
    };
    results.map(label).collect()
}
