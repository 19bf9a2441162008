//! The server killed after each event of many kinds of run: alone, and with its hosts.

use std::sync::Arc;

use agentloop_client::v1::{BusySessionPolicy as Busy, RunStatus};
use agentloop_tests::input::in_session;
use agentloop_tests::load::brain::{Brain, Temper, prompt};
use agentloop_tests::load::counts::Counts;
use agentloop_tests::load::dice::Dice;
use agentloop_tests::load::human::Manner;
use agentloop_tests::load::live::{Live, compacting};
use agentloop_tests::load::script::{ASK, BOOK, INQUIRE, LOOK, PAY, POST, PUT, Script, Wish, wish};
use agentloop_tests::load::site::{Fault, Site};
use agentloop_tests::load::world::{World, setting};
use agentloop_tests::model::Model;
use agentloop_tests::process::server::Server;
use agentloop_tests::process::times;
use futures_util::future::join_all;

/// More than any of these runs has.
const EVENTS_MAX: u64 = 60;

/// A kind of run.
struct Scenario {
    name: &'static str,
    script: Script,
    manner: Manner,
    /// Answers of the model, of a hundred, that are errors.
    model_fails: u64,
    compacts: Option<&'static str>,
    /// A second request to the same session while the run is live.
    second: Option<Busy>,
    /// True if the run is aborted while the server is killed.
    aborts: bool,
}

fn scenario(name: &'static str, rounds: &[&[Wish]]) -> Scenario {
    Scenario {
        name,
        script: Script::of(rounds),
        manner: Manner::Approves,
        model_fails: 0,
        compacts: None,
        second: None,
        aborts: false,
    }
}

fn scenarios() -> Vec<Scenario> {
    let refused = Wish { refusals: 1, ..wish(PAY, 20) };
    let post: &[&[Wish]] = &[&[wish(POST, 20)]];
    let rounds: &[&[Wish]] = &[&[wish(LOOK, 0)], &[wish(LOOK, 0)], &[wish(LOOK, 0)]];
    let pay: &[&[Wish]] = &[&[wish(PAY, 60)]];
    vec![
        scenario("parallel", &[&[wish(LOOK, 30), wish(PUT, 40), wish(BOOK, 50), wish(PAY, 60)]]),
        scenario("approved", post),
        Scenario { manner: Manner::Edits, ..scenario("edited", post) },
        Scenario { manner: Manner::Denies, ..scenario("denied", post) },
        scenario("tried again", &[&[refused, Wish { refusals: 1, ..wish(PUT, 20) }]]),
        Scenario { model_fails: 60, ..scenario("model fails", &[&[wish(LOOK, 0)]]) },
        Scenario { compacts: Some("summarize"), ..scenario("summarized", rounds) },
        Scenario { compacts: Some("truncate"), ..scenario("truncated", rounds) },
        scenario("asks a human", &[&[wish(ASK, 0)]]),
        scenario("a call asks a human", &[&[wish(INQUIRE, 20)]]),
        Scenario { aborts: true, ..scenario("aborted", &[&[wish(PAY, 100), wish(POST, 0)]]) },
        Scenario { second: Some(Busy::Enqueue), ..scenario("enqueued", pay) },
        Scenario { second: Some(Busy::Interrupt), ..scenario("interrupted", pay) },
        Scenario { second: Some(Busy::Steer), ..scenario("steered", pay) },
    ]
}

#[tokio::test]
async fn the_server_is_killed() {
    let counts = Counts::default();
    attack(scenarios(), Fault::KillServer, 2, &counts).await;
    println!("{counts}");
}

#[tokio::test]
async fn the_server_is_killed_with_its_hosts() {
    let counts = Counts::default();
    let uses_hosts =
        |of: &Scenario| of.script.rounds.iter().flatten().any(|wish| [PAY, INQUIRE].contains(&wish.tool));
    let of = scenarios().into_iter().filter(uses_hosts).collect();
    // Hosts come back by a time and not at once, which makes this slow.
    attack(of, Fault::KillAll, 4, &counts).await;
    println!("{counts}");
}

/// All of them together. The fault comes after one of so many events, another one of each kind; where more is asked
/// for, after every event.
async fn attack(of: Vec<Scenario>, fault: Fault, sampled: u64, counts: &Counts) {
    let every = if times() > 1 { 1 } else { sampled };
    let all = of.into_iter().zip(1..).map(|(of, number)| {
        let first = 1 + Dice::new(number).below(every);
        every_event(of, &fault, (first..EVENTS_MAX).step_by(index(every)), counts)
    });
    join_all(all).await;
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("a small number")
}

/// Runs it again for each of these events, each time with the fault after it, until it has no such event.
async fn every_event(of: Scenario, fault: &Fault, events: impl Iterator<Item = u64>, counts: &Counts) {
    let (model, brain) = (Model::start().await, Brain::default());
    brain.drive(&model, Temper { fails: of.model_fails, thinks_ms: 10 }, 1);
    let server = Server::start(&setting(&model)).await;
    let world = World::new(server.client(), &server.file(""), brain, counts.clone());
    let mut site = Site::start(server, 1, counts.clone()).await;
    for after in events {
        println!("{}: {fault:?} after event {after}", of.name);
        let mut run = start(&of, &world, after);
        let reached = run.watch_to(after).await;
        let second = of.second.map(|policy| second(&world, after, policy));
        if of.aborts {
            tokio::join!(run.abort(), site.suffer(fault.clone()));
        } else {
            site.suffer(fault.clone()).await;
        }
        let (first, second) = tokio::join!(run.watch(), watch(second));
        let cut = of.aborts || of.second == Some(Busy::Interrupt);
        first.check(cut).await;
        if let Some(second) = second
            && second.run_id != first.run_id
        {
            second.check(false).await;
            assert_eq!(second.finished().status(), RunStatus::Completed, "{}", of.name);
        }
        if reached < after {
            world.settled().await;
            assert_eq!(model.faults(), Vec::<String>::new());
            return;
        }
    }
    panic!("{} has fewer events than {EVENTS_MAX}", of.name);
}

async fn watch(run: Option<Live>) -> Option<agentloop_tests::load::live::Ended> {
    match run {
        Some(run) => Some(run.watch().await),
        None => None,
    }
}

/// All runs are of one session, which thereby shows that it takes the next message after each.
fn start(of: &Scenario, world: &Arc<World>, number: u64) -> Live {
    let key = format!("k-{number}");
    let session = format!("s-{}", number / 8);
    let mut input = in_session(&session, &format!("r-{key}"), &prompt(&key));
    input.context_policy = of.compacts.map(|strategy| compacting(strategy, 4));
    Live::new(world, &key, of.script.clone(), input, of.manner, Dice::new(number))
}

fn second(world: &Arc<World>, number: u64, policy: Busy) -> Live {
    let key = format!("second-{number}");
    let session = format!("s-{}", number / 8);
    let mut input = in_session(&session, &format!("r-{key}"), &prompt(&key));
    input.on_busy_session = policy.into();
    Live::new(world, &key, Script::default(), input, Manner::Approves, Dice::new(number))
}
