//! More than the server takes: it says so early, keeps what it took, and is itself again when it is over.

use std::time::{Duration, Instant};

use agentloop_client::v1::{ErrorReason, RunRequest, RunResult, RunStatus, RunStreamRequest, run_event};
use agentloop_client::{Client, Error};
use futures_util::future::join_all;
use h2::client::Builder;

use super::peer::{Peer, framed, send};
use super::{Siege, scaled};
use crate::support::memory::MIB;
use crate::support::model::{Call, Model};
use crate::support::server::{Setting, input};
use crate::support::soon;

/// Runs that the server takes at a time.
const CAPACITY: usize = 8;

fn impatient(siege: &Siege) -> Client {
    siege
        .server
        .client_builder()
        .backoff(agentloop_client::Backoff { max_retries: 0, ..Default::default() })
        .build()
        .expect("a good address")
}

async fn timed(client: &Client, id: String) -> (Result<RunResult, Error>, Duration) {
    let began = Instant::now();
    (soon("a run or a refusal", client.run(input(&id, &id, "hi"))).await, began.elapsed())
}

/// Many times as many runs as there is room for, again and again, of which none is lost and none half done.
#[tokio::test]
async fn several_times_the_capacity_is_refused_early() {
    const TIMES: usize = 16;
    const GROWTH_MAX: usize = 64 * MIB;
    let model = Model::start().await;
    let setting = Setting { server: "max_live_runs = 8", tls: super::is_encrypted(), ..model.setting() };
    model.answers_by(|call: Call| call.say("fine"));
    let siege = Siege::begin(&setting).await;
    let client = impatient(&siege);
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    for round in 0..scaled(4) {
        let runs = (0..CAPACITY * TIMES).map(|at| timed(&client, format!("run-{round}-{at}")));
        for (result, took) in join_all(runs).await {
            match result {
                Ok(result) => {
                    assert_eq!(result.status(), RunStatus::Completed, "{:?}", result.last_error);
                    taken.push(took);
                }
                Err(error) => {
                    let said = error.status().unwrap_or_else(|| panic!("{error}"));
                    assert_eq!(said.reason, Some(ErrorReason::TooManyRuns), "{error}");
                    assert!(said.retry_after.is_some(), "it says when to come again");
                    refused.push(took);
                }
            }
        }
    }
    let middle = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    assert!(taken.len() >= CAPACITY, "what there is room for is taken");
    assert!(!refused.is_empty(), "and nothing beyond it");
    println!("{} taken, {} refused", taken.len(), refused.len());
    println!("in the middle {:?} and {:?}", middle(&mut taken), middle(&mut refused));
    siege.end("several times the capacity", GROWTH_MAX).await;
}

/// While the limit of live runs is reached, exactly that many runs work, and each of them finishes.
#[tokio::test]
async fn accepted_runs_finish_and_make_room() {
    let mut model = Model::start().await;
    let setting = Setting { server: "max_live_runs = 9", tls: super::is_encrypted(), ..model.setting() };
    let honest = tokio::spawn(async move {
        model.call().await.say("fine").await;
        let mut held = Vec::new();
        for _ in 0..=CAPACITY {
            held.push(model.call().await);
        }
        (model, held)
    });
    let siege = Siege::begin(&setting).await;
    let client = impatient(&siege);
    let runs: Vec<_> = (0..4 * (CAPACITY + 1))
        .map(|at| {
            let client = client.clone();
            tokio::spawn(async move { timed(&client, format!("run-{at}")).await.0 })
        })
        .collect();
    // Nobody is answered until every place is taken: whoever is not among them is refused by then or never.
    let (model, held) = soon("every place", honest).await.expect("it is called");
    model.answers_by(|call: Call| call.say("fine"));
    for call in held {
        call.say("fine").await;
    }
    let results = join_all(runs).await;
    let done = results.iter().filter(|result| matches!(result, Ok(Ok(_)))).count();
    assert!(done > CAPACITY, "{done} were taken");
    // The refused come again, and are served.
    let mut again = 0;
    for (at, result) in results.into_iter().enumerate() {
        if result.expect("no panic").is_err() {
            let id = format!("run-{at}");
            let patient = siege.server.client();
            let result = soon("a run", patient.run(input(&id, &id, "hi"))).await.expect("there is room");
            assert_eq!(result.status(), RunStatus::Completed);
            again += 1;
        }
    }
    println!("{done} taken at once, {again} later");
    siege.end("what was taken", 64 * MIB).await;
}

/// A subscriber that takes nothing costs a bounded buffer, and its run nothing.
#[tokio::test]
async fn subscribers_that_stop_reading_slow_nothing() {
    const SUBSCRIBERS: usize = 8;
    const PIECES: usize = 2_000;
    const GROWTH_MAX: usize = 160 * MIB;
    let model = Model::start().await;
    let setting = Setting { tls: super::is_encrypted(), ..model.setting() };
    model.answers_by(|call: Call| async move {
        // Pieces that are shown one by one, of 1 KiB each.
        if call.mentions("at length") {
            call.say_in_pieces(&"x".repeat(1024), PIECES).await
        } else {
            call.say("fine").await
        }
    });
    let siege = Siege::begin(&setting).await;
    for round in 0..scaled(2) {
        let id = format!("long-{round}");
        let start = RunStreamRequest { input: Some(input(&id, &id, "at length")), after_seq: 0 };
        let mut builder = Builder::new();
        builder.initial_window_size(512);
        let mut peer = Peer::dial_with(&siege.server, &builder).await;
        let mut unread = Vec::new();
        for _ in 0..SUBSCRIBERS {
            let (response, mut stream) =
                peer.call("/agentloop.v1.AgentLoop/RunStream").await.expect("it streams");
            send(&mut stream, framed(&start), true).await.expect("it is heard");
            unread.push(soon("headers", response).await.expect("it is answered").into_body());
        }
        let whole = RunRequest { input: start.input }.input.expect("it was put there");
        let result = soon("the run", siege.server.client().run(whole)).await.expect("it was started");
        assert_eq!(result.status(), RunStatus::Completed, "nobody reads, and it finishes");
        // One that reads late reads all that is durable, and the end.
        let mut late = siege.server.client().subscribe(&id, 0).await.expect("subscribed");
        let mut last = None;
        while let Some(event) = soon("an event", late.next()).await {
            last = event.expect("the stream holds").event;
        }
        assert!(matches!(last, Some(run_event::Event::RunFinished(_))), "{last:?}");
        drop(unread);
    }
    siege.end("subscribers that do not read", GROWTH_MAX).await;
}
